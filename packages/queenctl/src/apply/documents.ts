import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { usage } from '../exit.ts';
import { textOf } from '../input/lines.ts';
import { nearest } from '../output/text.ts';
import { yamlLibrary } from '../output/yaml.ts';

/** A document of a manifest: what is wanted of one queue or connector. */
export interface Manifest {
  readonly kind: Kind;
  readonly name: string;
  readonly spec: Readonly<Record<string, unknown>>;
  /** File and line. */
  readonly where: string;
}

const KINDS = ['Queue', 'Connector'] as const;
type Kind = (typeof KINDS)[number];

const MEMBERS = ['kind', 'name', 'spec'];
const MANIFEST = /\.(?:ya?ml|json)$/i;

/**
 * All documents of files, of the manifests in directories (by name, not those below them) and of standard input (`-`), in
 * their order.
 *
 * @throws Failure that names file and line for the first that is wrong, and for one that is there twice
 */
export async function manifestsOf(paths: readonly string[]): Promise<Manifest[]> {
  const manifests: Manifest[] = [];
  for (const path of paths.flatMap(filesOf)) {
    const name = path === '-' ? 'standard input' : path;
    manifests.push(
      ...documentsOf(await textOf(path), name).map(({ value, where }) => manifestOf(value, where)),
    );
  }
  if (manifests.length === 0) throw usage(`there is no document in ${paths.join(', ')}`);
  const seen = new Map<string, string>();
  for (const { kind, name, where } of manifests) {
    const id = `${kind} ${name}`;
    const before = seen.get(id);
    if (before !== undefined) throw usage(`${where}: ${id} is there a second time, after ${before}`);
    seen.set(id, where);
  }
  return manifests;
}

function filesOf(path: string): string[] {
  if (path === '-' || !isDirectory(path)) return [path];
  const files = readdirSync(path).filter((name) => MANIFEST.test(name));
  if (files.length === 0) throw usage(`${path} has no .yaml, .yml or .json files`);
  return files.sort().map((name) => join(path, name));
}

function isDirectory(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch (error) {
    throw usage(`${path} cannot be read: ${(error as Error).message}`);
  }
}

/** The documents of a YAML or JSON text that are not empty. @throws Failure for a text that is neither */
export function documentsOf(text: string, name: string): { value: unknown; where: string }[] {
  const { LineCounter, parseAllDocuments } = yamlLibrary();
  const lines = new LineCounter();
  const found: { value: unknown; where: string }[] = [];
  for (const document of parseAllDocuments(text, { lineCounter: lines, prettyErrors: false })) {
    const [error] = document.errors;
    if (error !== undefined) {
      const { line, col } = lines.linePos(error.pos[0]);
      throw usage(`${name}, line ${line}, column ${col}: ${error.message}`);
    }
    const { line } = lines.linePos(document.contents?.range?.[0] ?? 0);
    let value: unknown;
    try {
      value = document.toJS();
    } catch (error) {
      throw usage(`${name}, line ${line}: ${(error as Error).message}`);
    }
    if (value === null || value === undefined) continue;
    found.push({ value, where: `${name}, line ${line}` });
  }
  return found;
}

/** @throws Failure for what is no manifest */
export function manifestOf(value: unknown, where: string): Manifest {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw usage(`${where}: a document has the members kind, name and spec`);
  const { kind, name, spec = {} } = value as Record<string, unknown>;
  for (const member of Object.keys(value)) {
    if (!MEMBERS.includes(member))
      throw usage(`${where}: "${member}" is no member of a document: kind, name, spec`);
  }
  if (!KINDS.includes(kind as Kind)) {
    const near = typeof kind === 'string' ? nearest(kind, KINDS) : null;
    throw usage(
      `${where}: kind is ${KINDS.join(' or ')}, not ${JSON.stringify(kind)}`,
      near === null ? undefined : `did you mean "${near}"?`,
    );
  }
  if (typeof name !== 'string' || name === '') throw usage(`${where}: name is a text that is not empty`);
  if (typeof spec !== 'object' || spec === null || Array.isArray(spec))
    throw usage(`${where}: spec of ${kind} ${name} is a mapping`);
  return { kind: kind as Kind, name, spec: spec as Record<string, unknown>, where };
}
