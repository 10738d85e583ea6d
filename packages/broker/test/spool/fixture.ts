/** Spools on directories of a test's own, over a log that is only a list. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { atEnd, type Cleanup } from '../../../../test/kit/cleanup.ts';
import { systemClock } from '../../src/engine/clock.ts';
import { EngineError } from '../../src/engine/errors.ts';
import type { Detoured } from '../../src/engine/push/detour.ts';
import { laneKey } from '../../src/engine/push/unit.ts';
import type { Restored } from '../../src/engine/spool/restore.ts';
import { Spool, type SpoolDeps } from '../../src/engine/spool/spool.ts';
import { encodeSpoolRecord } from '../../src/log/spool_record.ts';
import { mintUuidV7 } from '../../src/log/uuid.ts';
import { silentLog } from '../../src/store/log.ts';
import type { SpooledUnit } from '../../src/store/spool/reader.ts';
import { Shelf, type ShelfOptions } from '../../src/store/spool/shelf.ts';

export const DATABASE = '11111111-2222-4333-8444-555555555555';
export const TENANT = '00000000-0000-0000-0000-000000000001';
export const MIB = 1024 * 1024;

export function temporary(t: Cleanup): string {
  const directory = mkdtempSync(join(tmpdir(), `queen-test-${process.pid}-`));
  atEnd(t, () => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Messages of one lane that were accepted together. */
export function messages(partition: string, ids: readonly string[], bytes: number = 0): Detoured {
  return {
    tenant: TENANT,
    queue: 'q',
    partition,
    key: laneKey(TENANT, 'q', partition),
    encrypts: false,
    frames: ids.map((transactionId) => ({
      messageId: mintUuidV7(Date.now()),
      traceId: null,
      transactionId,
      producerSub: null,
      encrypted: false,
      payload: Buffer.from(JSON.stringify(`${transactionId}${'x'.repeat(bytes)}`)),
    })),
  };
}

/** As they lie on disk. */
export function encoded({ tenant, queue, partition, frames }: Detoured): Buffer {
  return Buffer.concat(
    frames.map((frame, i) =>
      encodeSpoolRecord({ tenant, queue, partition, frame, more: i + 1 < frames.length }),
    ),
  );
}

export function openShelf(
  directory: string,
  over: Partial<ShelfOptions> = {},
  seen: (unit: SpooledUnit) => void = () => {},
): Promise<Shelf> {
  const options = {
    directory,
    databaseId: DATABASE,
    eventsPerFile: 100,
    fileBytesMax: MIB,
    bytesMax: 10 * MIB,
  };
  return Shelf.open({ ...options, log: silentLog, ...over }, seen);
}

export async function append(shelf: Shelf, partition: string, ids: readonly string[]): Promise<void> {
  await shelf.append(encoded(messages(partition, ids)), ids.length);
}

/** Everything on the shelf, unit by unit, taken off file by file. */
export async function takeAll(shelf: Shelf): Promise<{ units: string[][]; damages: number }> {
  const units: string[][] = [];
  let damages = 0;
  for (let file = await shelf.oldest(); file !== null; file = await shelf.oldest()) {
    let damaged = false;
    for (const piece of await shelf.read(file)) {
      if (!('records' in piece)) {
        damages++;
        damaged = true;
      } else if (piece.end > file.position) {
        units.push(piece.records.map((record) => record.frame.transactionId));
      }
    }
    shelf.done(file, damaged);
  }
  return { units, damages };
}

/** Files of a slot by their endings. */
export function filesOf(slot: string, ending: string): string[] {
  return readdirSync(slot)
    .filter((name) => name.endsWith(ending))
    .sort();
}

export type Mood = 'fine' | 'away' | 'in doubt' | 'refuses';

/** A log by lanes that knows what it has. Its mood says what becomes of what it is given. */
export class FakeLog {
  readonly lanes = new Map<string, string[]>();
  /** Asked for each call. */
  mood: () => Mood = () => 'fine';
  /** What no log takes. */
  readonly poison = new Set<string>();
  calls = 0;

  readonly store = async (units: readonly SpooledUnit[]): Promise<Map<string, Restored>> => {
    this.calls++;
    const mood = this.mood();
    const out = new Map<string, Restored>();
    for (const [partition, own] of Map.groupBy(units, (unit) => unit.records[0]!.partition)) {
      const ids = own.flatMap((unit) => unit.records.map((record) => record.frame.transactionId));
      out.set(laneKey(TENANT, 'q', partition), this.#take(partition, ids, mood));
    }
    return out;
  };

  /** As a live push does it. */
  push(partition: string, ids: readonly string[]): void {
    this.#take(partition, ids, 'fine');
  }

  #take(partition: string, ids: readonly string[], mood: Mood): Restored {
    if (mood === 'away') return { error: new EngineError('unavailable', 'pool', 'away'), lasting: false };
    if (mood === 'refuses' || ids.some((id) => this.poison.has(id))) {
      return { error: new EngineError('refused', 'database_error', 'no'), lasting: true };
    }
    const lane = this.lanes.get(partition) ?? [];
    this.lanes.set(partition, lane);
    const fresh = ids.filter((id, i) => !lane.includes(id) && ids.indexOf(id) === i);
    lane.push(...fresh);
    if (mood === 'in doubt')
      return { error: new EngineError('in_doubt', 'database_timeout', '?'), lasting: false };
    return { stored: fresh.length, duplicates: ids.length - fresh.length };
  }
}

export function openSpool(directory: string, log: FakeLog, over: Partial<SpoolDeps> = {}): Promise<Spool> {
  return Spool.open({
    place: { directory, lasting: true },
    databaseId: DATABASE,
    settings: {
      directories: [directory],
      flushMs: 5,
      batchEvents: 10,
      eventsPerFile: 20,
      bytesMax: 10 * MIB,
    },
    store: log.store,
    paused: () => false,
    seal: null,
    clock: systemClock,
    log: silentLog,
    ...over,
  });
}
