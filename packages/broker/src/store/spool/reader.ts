/** The reading end of the spool: files as units, which are stored whole. */
import { readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { type SpoolRecord, spoolPieces } from '../../log/spool_record.ts';

/** Messages of one partition that were accepted together. */
export interface SpooledUnit {
  readonly records: readonly SpoolRecord[];
  /** Where it ends in its file. */
  readonly end: number;
  /** Nothing says that it is whole: its last record announces another one. */
  readonly open: boolean;
}

/** A stretch of a file that cannot be read. */
export interface Damage {
  readonly at: number;
  readonly bytes: number;
  readonly reason: string;
  /** The file ends there, and nobody finished writing it. */
  readonly torn: boolean;
}

/** The units of a file, and what lies between them. Payloads are views into `file`. */
export function* spooledUnits(file: Buffer): Generator<SpooledUnit | Damage, void> {
  let records: SpoolRecord[] = [];
  let end = 0;
  for (const piece of spoolPieces(file)) {
    const next = 'record' in piece ? piece.record : null;
    // What is damaged ends a unit: what is left of it is worth more than nothing.
    if (records.length > 0 && (next === null || !sameLane(records[0]!, next))) {
      yield { records, end, open: true };
      records = [];
    }
    if ('fault' in piece) {
      yield { at: piece.at, bytes: piece.end - piece.at, reason: piece.fault, torn: piece.torn };
      continue;
    }
    records.push(piece.record);
    end = piece.end;
    if (piece.record.more) continue;
    yield { records, end, open: false };
    records = [];
  }
  if (records.length > 0) yield { records, end, open: true };
}

function sameLane(a: SpoolRecord, b: SpoolRecord): boolean {
  return a.queue === b.queue && a.partition === b.partition && a.tenant === b.tenant;
}

/** The first `bytes` of a file; less when it is shorter. */
export async function readSpoolFile(path: string, bytes: number): Promise<Buffer> {
  const handle = await open(path, 'r');
  try {
    const { size } = await handle.stat();
    const out = Buffer.allocUnsafe(Math.min(size, bytes));
    let done = 0;
    while (done < out.length) {
      const { bytesRead } = await handle.read(out, done, out.length - done, done);
      if (bytesRead === 0) break;
      done += bytesRead;
    }
    return out.subarray(0, done);
  } finally {
    await handle.close();
  }
}

/**
 * Cuts off the end of a file whose writer died: a record that is not whole, and the records of a unit whose last one is
 * missing. Nobody was told that they are kept. Answers how many bytes went.
 */
export function cutTornEnd(path: string): number {
  const file = readFileSync(path);
  let whole = 0;
  for (const piece of spooledUnits(file)) {
    if ('records' in piece) whole = piece.open ? whole : piece.end;
    else if (!piece.torn) whole = piece.at + piece.bytes;
  }
  if (whole < file.length) truncateSync(path, whole);
  return file.length - whole;
}

/** How far a file is stored. A hint: what it forgets is told apart again by its transactionIds. */
export function readPosition(path: string): number {
  try {
    const position = Number(readFileSync(positionPath(path), 'utf8'));
    return Number.isSafeInteger(position) && position > 0 ? position : 0;
  } catch {
    return 0;
  }
}

export function writePosition(path: string, position: number): void {
  writeFileSync(positionPath(path), String(position));
}

export function removeFile(path: string): void {
  rmSync(path, { force: true });
  rmSync(positionPath(path), { force: true });
}

export function positionPath(path: string): string {
  return path.replace(/\.\w+$/, '.pos');
}
