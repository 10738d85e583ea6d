/**
 * Push against the floor: the same bytes as ready-made rows, inserted by a bare loop into the same tables of the
 * same server, with as many connections as the broker has clients. One variant writes the segment alone, one the
 * hash sidecar too, which every push has to write as well. In turns with the broker, deduplication on and off.
 */
import { hashTransactionIds } from '../../packages/broker/src/log/hash.ts';
import { packSegment } from '../../packages/broker/src/log/segment.ts';
import { mintUuidV7 } from '../../packages/broker/src/log/uuid.ts';
import { type Database, statement } from '../../packages/broker/src/store/database.ts';
import { provision } from '../../packages/broker/src/store/push.ts';
import { closedLoop, inTurns } from '../load.ts';
import { partitionName, payload } from '../messages.ts';
import { pushSteps, type Rig } from '../rig.ts';
import type { Result, Scale, Workload } from '../workload.ts';

const BATCH = 100;
const PARTITIONS = 100;
const CLIENTS = 16;
const READY_MADE = 64;
const ZSTD_LEVEL = 3;
const TENANT = '00000000-0000-0000-0000-000000000001';

const SEGMENT = statement(
  'bench_segment',
  `INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
   VALUES ($1::bigint, $2::bigint, $3::bigint, clock_timestamp(), $4::bytea)`,
);
const BOTH = statement(
  'bench_both',
  `WITH s AS (INSERT INTO queen.log_segments (partition_id, base_offset, end_offset, created_at, blob)
              VALUES ($1::bigint, $2::bigint, $3::bigint, clock_timestamp(), $4::bytea))
   INSERT INTO queen.log_txns (partition_id, base_offset, end_offset, created_at, hashes)
   VALUES ($1::bigint, $2::bigint, $3::bigint, clock_timestamp(), $5::bytea)`,
);

interface ReadyMade {
  blob: Buffer;
  hashes: Buffer;
}

async function readyMade(): Promise<ReadyMade[]> {
  const segments: ReadyMade[] = [];
  for (let n = 0; n < READY_MADE; n++) {
    const txns = Array.from({ length: BATCH }, (_, i) => String(n * BATCH + i).padStart(16, '0'));
    const frames = txns.map((transactionId, i) => ({
      messageId: mintUuidV7(Date.now()),
      traceId: null,
      transactionId,
      producerSub: null,
      encrypted: false,
      payload: Buffer.from(payload(n * 1000 + i)),
    }));
    segments.push({ blob: await packSegment(frames, ZSTD_LEVEL), hashes: hashTransactionIds(txns) });
  }
  return segments;
}

/** A loop's step: one row (or two) that continues a partition of its turn. */
async function floorSteps(db: Database, queue: string, sidecar: boolean): Promise<() => Promise<number>> {
  const names = Array.from({ length: PARTITIONS }, (_, i) => partitionName(i));
  const places = await provision(
    db,
    TENANT,
    names.map((partition) => ({ queue, partition })),
  );
  const segments = await readyMade();
  const next = new Array<number>(PARTITIONS).fill(0);
  let turn = 0;
  return async () => {
    const n = turn++;
    const partition = n % PARTITIONS;
    const base = next[partition]!;
    next[partition] = base + BATCH;
    const { blob, hashes } = segments[n % READY_MADE]!;
    const range = [places[partition]!.partitionId, base, base + BATCH - 1, blob];
    if (sidecar) await db.query(BOTH, [...range, hashes]);
    else await db.query(SEGMENT, range);
    return BATCH;
  };
}

async function compare(rig: Rig, scale: Scale, db: Database): Promise<Result> {
  const connections = await rig.connections(CLIENTS);
  const seconds = Math.max(0.4, scale.seconds / 2);
  const measure = (step: (worker: number) => Promise<number>) => () =>
    closedLoop(CLIENTS, seconds, scale.warmUpSeconds, step);
  const rates = await inTurns(scale.rounds, {
    floor: measure(await floorSteps(db, 'bench-floor', false)),
    sidecar: measure(await floorSteps(db, 'bench-floor-sidecar', true)),
    on: measure(pushSteps('bench-dedup-on', connections, PARTITIONS, BATCH)),
    off: measure(pushSteps('bench-dedup-off', connections, PARTITIONS, BATCH)),
  });
  for (const connection of connections) connection.close();
  const figures = (rate: number) => ({
    'messages/s': rate,
    'rows or requests/s': rate / BATCH,
    'of the floor': rate / rates.floor,
  });
  const blobBytes = (await readyMade()).reduce((sum, segment) => sum + segment.blob.length, 0) / READY_MADE;
  return {
    rows: [
      { what: `floor: segment rows of ${Math.round(blobBytes)} bytes`, figures: figures(rates.floor) },
      { what: 'floor: segment and sidecar rows', figures: figures(rates.sidecar) },
      { what: 'push, deduplication on', figures: figures(rates.on) },
      { what: 'push, deduplication off', figures: figures(rates.off) },
    ],
    goals: [
      {
        what: 'push against the floor (segment rows)',
        value: rates.on / rates.floor,
        unit: '',
        target: 0.5,
        better: 'above',
      },
      {
        what: 'push against the floor with sidecar rows',
        value: rates.on / rates.sidecar,
        unit: '',
        target: 0.5,
        better: 'above',
      },
      {
        what: 'deduplication on against off',
        value: rates.on / rates.off,
        unit: '',
        target: 0.95,
        better: 'above',
      },
    ],
  };
}

export const floor: Workload = {
  name: 'floor',
  about: `batches of ${BATCH} to ${PARTITIONS} partitions, ${CLIENTS} connections each, in turns`,
  async run(rig, scale): Promise<Result> {
    const db = await rig.database(CLIENTS);
    try {
      return await rig.withQueue('bench-dedup-on', PARTITIONS, { dedupWindowSeconds: 3600 }, () =>
        rig.withQueue('bench-dedup-off', PARTITIONS, { dedupWindowSeconds: 0 }, () =>
          compare(rig, scale, db),
        ),
      );
    } finally {
      await db.close();
      await rig.deleteQueue('bench-floor');
      await rig.deleteQueue('bench-floor-sidecar');
    }
  },
};
