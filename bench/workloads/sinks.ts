/**
 * Rows a second of a sink in each mode, against a bare loop over as many connections that runs the very statements of the
 * sink, from data that is ready, in transactions of the same size. In turns; each turn of the sink drains a backlog, measured
 * from its first commit to its last.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { SinkMode, SinkSettings } from '../../packages/broker/src/connectors/postgres/document/types.ts';
import type { SqlSession } from '../../packages/broker/src/connectors/postgres/session/types.ts';
import type { Message } from '../../packages/broker/src/connectors/postgres/sink/message.ts';
import type {
  Operation,
  RowOperation,
} from '../../packages/broker/src/connectors/postgres/sink/operations.ts';
import { recordSet } from '../../packages/broker/src/connectors/postgres/sink/statements.ts';
import { readTarget } from '../../packages/broker/src/connectors/postgres/sink/target.ts';
import { workOf } from '../../packages/broker/src/connectors/postgres/sink/work.ts';
import { HttpConnection } from '../http.ts';
import { inTurns, type Measured } from '../load.ts';
import { assertStored, partitionName } from '../messages.ts';
import type { Rig } from '../rig.ts';
import { ConnectorTarget } from '../target.ts';
import type { Result, Row, Scale, Workload } from '../workload.ts';

const BATCH = 500;
const PARTITIONS = 100;
const MODES: readonly SinkMode[] = ['append', 'upsert', 'cdc', 'sql'];
const TABLE = `CREATE TABLE rows (id bigint PRIMARY KEY, amount numeric(12,2) NOT NULL, ref text NOT NULL, note text,
  at timestamptz NOT NULL DEFAULT now())`;
const NOTE = 'amber birch cedar delta ember flint grove haven inlet jetty knoll larch maple north';

let ids = 0;

function payload(mode: SinkMode): string {
  const id = ++ids;
  const row = `{"id":${id},"amount":"${id % 10_000}.25","ref":"${(id * 2_654_435_761).toString(36)}","note":"${NOTE}"}`;
  if (mode !== 'cdc') return row;
  return `{"op":"c","table":"public.rows","key":{"id":${id}},"after":${row},"before":null,"lsn":"0/1526990","xid":7,"ts":"2026-10-03T06:14:43.797508Z","seq":0}`;
}

function sinkOf(mode: SinkMode, workers: number, queue: string): Record<string, unknown> {
  const statement = 'INSERT INTO rows (id, amount, ref, note) VALUES ($1::bigint, $2::numeric, $3, $4)';
  const sql = mode === 'sql' ? { statement, params: ['$.id', '$.amount', '$.ref', '$.note'] } : {};
  return { queue, table: 'public.rows', mode, batch: BATCH, workers, ...sql };
}

/** The statements of one ready batch, as a sink would send them. */
type Ready = (session: SqlSession) => Promise<unknown>[];

async function readyBatches(session: SqlSession, settings: SinkSettings, count: number): Promise<Ready[]> {
  const target = settings.mode === 'sql' ? null : await readTarget(session, settings);
  const { reader, writing } = workOf(settings, target);
  return Array.from({ length: count }, () => {
    const operations = Array.from({ length: BATCH }, () => {
      const message = { partition: 'p', partitionId: '1', offset: 0, transactionId: '', createdAtMicros: 0 };
      return reader.read({ ...message, payload: Buffer.from(payload(settings.mode)) } satisfies Message);
    });
    if ('statement' in writing) {
      const values = operations.map((operation) => (operation.kind === 'statement' ? operation.values : []));
      return (on) =>
        values.map((params) =>
          on.query(writing.statement, params, { name: 'bare', textParams: true, joined: true }),
        );
    }
    const rows = operations as readonly (Operation & RowOperation)[];
    const [text] = writing.texts.of(rows[0]!.kind, rows[0]!.columnsOf);
    const set = recordSet(rows, 0);
    return (on) => [on.query(text!, [set], { name: `bare_${settings.mode}`, joined: true })];
  });
}

/** As many rows as the sink gets, over as many connections as it has workers. From the first commit to the last, too. */
async function bareLoop(
  target: ConnectorTarget,
  mode: SinkMode,
  workers: number,
  messages: number,
): Promise<Measured> {
  const sessions = await Promise.all(Array.from({ length: workers }, () => target.session()));
  try {
    await sessions[0]!.query('TRUNCATE rows');
    const settings = target.document(sinkOf(mode, workers, 'q')).sink;
    const ready = await readyBatches(sessions[0]!, settings, messages / BATCH);
    let first = 0;
    let turn = 0;
    await Promise.all(
      sessions.map(async (session) => {
        for (let n = turn++; n < ready.length; n = turn++) {
          const begun = session.query('BEGIN', [], { joined: true });
          await Promise.all([begun, ...ready[n]!(session), session.query('COMMIT')]);
          first ||= performance.now();
        }
      }),
    );
    const seconds = (performance.now() - first) / 1000;
    return { rate: (messages - BATCH) / seconds, latencies: [] };
  } finally {
    await Promise.all(sessions.map((session) => session.close()));
  }
}

async function fill(rig: Rig, queue: string, mode: SinkMode, messages: number): Promise<void> {
  const connection = await HttpConnection.open(rig.broker.port);
  for (let from = 0; from < messages; from += BATCH) {
    const items = Array.from(
      { length: BATCH },
      (_, i) =>
        `{"queue":"${queue}","partition":"${partitionName((from + i) % PARTITIONS)}","payload":${payload(mode)}}`,
    );
    assertStored(
      await connection.request('POST', '/api/v1/push', Buffer.from(`{"items":[${items.join(',')}]}`)),
      0,
    );
  }
  connection.close();
}

let runs = 0;

/** Drains a backlog through a sink that is made for it. */
async function drain(
  rig: Rig,
  target: ConnectorTarget,
  mode: SinkMode,
  workers: number,
  messages: number,
): Promise<Measured> {
  const name = `bench-${++runs}`;
  const session = await target.session();
  await session.query('TRUNCATE rows');
  await session.close();
  await fill(rig, name, mode, messages);
  await rig.ask('PUT', `/api/v1/connectors/${name}`, {
    kind: 'sink',
    connection: target.connection,
    sink: sinkOf(mode, workers, name),
  });
  let first: { at: number; applied: number } | null = null;
  for (;;) {
    const { status } = (await rig.ask('GET', `/api/v1/connectors/${name}`)) as {
      status: { applied?: number; error?: { message: string } | null };
    };
    if (status.error != null) throw new Error(status.error.message);
    const applied = status.applied ?? 0;
    if (applied > 0) first ??= { at: performance.now(), applied };
    if (applied >= messages) {
      const seconds = (performance.now() - first!.at) / 1000;
      await rig.ask('DELETE', `/api/v1/connectors/${name}`);
      await rig.deleteQueue(name);
      return { rate: (messages - first!.applied) / seconds, latencies: [] };
    }
    await sleep(20);
  }
}

async function measure(rig: Rig, scale: Scale, target: ConnectorTarget): Promise<Result> {
  const session = await target.session();
  await session.query(TABLE);
  await session.close();
  const messages = scale.quick ? 3_000 : 40_000;
  const rounds = scale.quick ? 1 : 3;
  const rows: Row[] = [];
  const goals: Result['goals'] = [];
  for (const mode of MODES) {
    for (const workers of scale.quick ? [1] : [1, 4]) {
      const { bare, sink } = await inTurns(rounds, {
        bare: () => bareLoop(target, mode, workers, messages),
        sink: () => drain(rig, target, mode, workers, messages),
      });
      rows.push({
        what: `${mode}, ${workers} ${workers === 1 ? 'worker' : 'workers'}`,
        figures: { 'rows/s': sink, 'bare rows/s': bare, 'of the bare loop': sink / bare },
      });
      goals.push({
        what: `sink ${mode} against the bare loop, ${workers} ${workers === 1 ? 'worker' : 'workers'}`,
        value: sink / bare,
        unit: '',
        target: 0.6,
        better: 'above',
      });
    }
  }
  return { rows, goals };
}

export const sinks: Workload = {
  name: 'sinks',
  about: `batches of ${BATCH} from ${PARTITIONS} partitions, against the same statements from ready data`,
  async run(rig, scale): Promise<Result> {
    const target = await ConnectorTarget.start();
    try {
      return await measure(rig, scale, target);
    } finally {
      await target.stop();
    }
  },
};
