/** The trace procedures (sql/140_traces.sql), one function each: parameters named, results decoded. */
import { textArray } from './arrays.ts';
import { type Queryable, statement } from './database.ts';

export interface NewTrace {
  tenant: string;
  partitionId: number;
  transactionId: string;
  group: string;
  eventType: string;
  /** JSON text. */
  data: string;
  worker: string;
  names: readonly string[];
  /** Only if the partition is the tenant's. */
  owned: boolean;
}

export interface TraceRow {
  id: string;
  eventType: string;
  /** JSON text, as it was written. Null: `omitted`. */
  data: string | null;
  /** The answer has no room for its data and names. */
  omitted: boolean;
  group: string;
  worker: string;
  createdAtMicros: number;
  names: string[];
}

export interface NamedTraceRow extends TraceRow {
  transactionId: string;
  partitionId: number;
  queue: string;
  partition: string;
  /** How many bear the name in all. */
  total: number;
}

export interface TraceNameRow {
  name: string;
  traces: number;
  /** Distinct transactionIds. */
  messages: number;
  lastSeenMicros: number;
  /** How many names there are in all. */
  total: number;
}

const COLUMNS = `id, event_type AS "eventType", data, omitted, consumer_group AS "group", worker_id AS worker,
          created_at AS "createdAtMicros", names`;
const WRITE = statement(
  'trace_write',
  `SELECT queen.trace_write($1::uuid, $2::bigint, $3::text, $4::text, $5::text, $6::json, $7::text, $8::text[],
                            $9::boolean) AS id`,
);
const OF_MESSAGE = statement(
  'trace_of_message',
  `SELECT ${COLUMNS} FROM queen.trace_of_message($1::uuid, $2::bigint, $3::text, $4::int, $5::bigint)`,
);
const BY_NAME = statement(
  'trace_by_name',
  `SELECT ${COLUMNS}, transaction_id AS "transactionId", partition_id AS "partitionId", queue, partition, total
     FROM queen.trace_by_name($1::uuid, $2::text, $3::int, $4::bigint, $5::bigint)`,
);
const NAMES = statement(
  'trace_names',
  `SELECT trace_name AS name, traces, messages, last_seen AS "lastSeenMicros", total
     FROM queen.trace_names($1::uuid, $2::int, $3::bigint)`,
);

/** The id of the trace; null: the partition had to be the tenant's and is not. */
export async function writeTrace(db: Queryable, trace: NewTrace): Promise<string | null> {
  const rows = await db.query<{ id: string | null }>(WRITE, [
    trace.tenant,
    trace.partitionId,
    trace.transactionId,
    trace.group,
    trace.eventType,
    trace.data,
    trace.worker,
    textArray(trace.names),
    trace.owned,
  ]);
  return rows[0]!.id;
}

/** The oldest first. Data and names are left out once those before come to more than `bytesMax`. */
export function tracesOfMessage(
  db: Queryable,
  tenant: string,
  partitionId: number,
  transactionId: string,
  page: { limit: number; bytesMax: number },
): Promise<TraceRow[]> {
  const { limit, bytesMax } = page;
  return db.query<TraceRow>(OF_MESSAGE, [tenant, partitionId, transactionId, limit, bytesMax], {
    readOnly: true,
  });
}

/** The same for a page of those under a name. */
export function tracesByName(
  db: Queryable,
  tenant: string,
  name: string,
  page: { limit: number; skip: number; bytesMax: number },
): Promise<NamedTraceRow[]> {
  const { limit, skip, bytesMax } = page;
  return db.query<NamedTraceRow>(BY_NAME, [tenant, name, limit, skip, bytesMax], { readOnly: true });
}

/** A page, the most recently seen first. */
export function traceNames(
  db: Queryable,
  tenant: string,
  limit: number,
  skip: number,
): Promise<TraceNameRow[]> {
  return db.query<TraceNameRow>(NAMES, [tenant, limit, skip], { readOnly: true });
}
