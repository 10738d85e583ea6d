import { createReadStream, statSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { Failure } from '../exit.ts';

export interface Line {
  readonly text: string;
  /** From 1 on. */
  readonly number: number;
  /** Bytes read up to its end. */
  readonly end: number;
}

export interface Source {
  /** For messages. */
  readonly name: string;
  /** Null: not known before it is read. */
  readonly bytes: number | null;
  open(): Readable;
}

/** A file, or standard input as `-`. @throws Failure when it cannot be read */
export function sourceOf(path: string): Source {
  if (path === '-') return { name: 'standard input', bytes: null, open: () => process.stdin };
  try {
    const stat = statSync(path);
    if (stat.isDirectory()) throw new Error('it is a directory');
    return { name: path, bytes: stat.isFile() ? stat.size : null, open: () => createReadStream(path) };
  } catch (error) {
    throw new Failure('usage', `${path} cannot be read: ${(error as Error).message}`);
  }
}

const LINE_BYTES_MAX = 64 * 1024 * 1024;

/** The lines of a source that are not blank; ends are `\n` or `\r\n`, and only they (JSON may hold other line ends). */
export async function* linesOf(source: Source): AsyncGenerator<Line, void, undefined> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let rest: Buffer[] = [];
  let restBytes = 0;
  let number = 0;
  let end = 0;
  const line = (last: Buffer): Line | null => {
    number++;
    const bytes = restBytes === 0 ? last : Buffer.concat([...rest, last]);
    rest = [];
    restBytes = 0;
    try {
      const text = decoder.decode(bytes).trim();
      return text === '' ? null : { text, number, end };
    } catch {
      throw new Failure('usage', `${source.name}, line ${number}: it is not UTF-8`);
    }
  };
  for await (const chunk of source.open()) {
    const bytes = chunk as Buffer;
    let from = 0;
    for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, from)) {
      end += at + 1 - from;
      const found = line(bytes.subarray(from, at));
      from = at + 1;
      if (found !== null) yield found;
    }
    if (from < bytes.length) {
      rest.push(bytes.subarray(from));
      restBytes += bytes.length - from;
      end += bytes.length - from;
      if (restBytes > LINE_BYTES_MAX)
        throw new Failure('usage', `${source.name}, line ${number + 1}: it is longer than 64 MiB`);
    }
  }
  if (restBytes > 0) {
    const found = line(Buffer.alloc(0));
    if (found !== null) yield found;
  }
}

/** All of a source as text. */
export async function textOf(path: string): Promise<string> {
  const source = sourceOf(path);
  const chunks: Buffer[] = [];
  for await (const chunk of source.open()) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}
