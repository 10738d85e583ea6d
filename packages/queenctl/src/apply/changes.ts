import { jsonText } from '../output/exact_json.ts';

/** A place in a document where two of them differ. Undefined: it is not there. */
export interface Change {
  readonly path: string;
  readonly before?: unknown;
  readonly after?: unknown;
}

/** Where two documents differ, member by member, in the order of their paths. */
export function changesBetween(before: unknown, after: unknown, path = ''): Change[] {
  if (isBranch(before) && isBranch(after) && Array.isArray(before) === Array.isArray(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    const at = (name: string) =>
      Array.isArray(before) ? `${path}[${name}]` : path === '' ? name : `${path}.${name}`;
    return names.flatMap((name) => changesBetween(before[name], after[name], at(name)));
  }
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  return [{ path, ...(before === undefined ? {} : { before }), ...(after === undefined ? {} : { after }) }];
}

/** A line for people: `+` what comes, `-` what goes, `~` what becomes another. */
export function lineOf({ path, before, after }: Change): string {
  if (before === undefined) return `  + ${path}: ${jsonText(after)}`;
  if (after === undefined) return `  - ${path}: ${jsonText(before)}`;
  return `  ~ ${path}: ${jsonText(before)} -> ${jsonText(after)}`;
}

function isBranch(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
