/** The timer procedures (sql/090_timers.sql), one function each: parameters named, results decoded. */
import { boolArray, byteaArray, int4Array, int8Array, textArray, uuidArray } from './arrays.ts';
import { type Queryable, statement } from './database.ts';
import { invariant } from './invariant.ts';
import { prefixEnd } from './kv.ts';
import type { QueueDemands } from './push.ts';

export const TIMER_STATUS = ['scheduled', 'rescheduled', 'cancelled', 'absent', 'too_late'] as const;
export type TimerStatus = (typeof TIMER_STATUS)[number];

/** What a timer will push. */
export interface TimerContent {
  partition: string;
  transactionId: string;
  /** Of the message to come, UUID text. */
  messageId: string;
  payload: Buffer;
  /** The payload is compressed. */
  payloadZstd: boolean;
  /** By whoever scheduled it. */
  encrypted: boolean;
  /** By the broker. */
  sealed: boolean;
}

/** One validated operation; of a (queue, key) at most one in a call. */
export type TimerStep = { queue: string; timerKey: string } & (
  | { op: 'schedule'; delayMs: number; content: TimerContent }
  | { op: 'cancel' }
);

export interface TimersCall {
  tenant: string;
  producerSub: string | null;
  steps: readonly TimerStep[];
  /** What the tenant's plan still allows; null: any number. */
  timersLeft: number | null;
}

export type TimersOutcome =
  /** `grown`: timers that are pending now and were not before. One result a step. */
  | { kind: 'applied'; results: TimerOutcome[]; grown: number }
  /** Nothing was done: the payloads of these steps have to be sealed. */
  | { kind: 'sealing'; steps: number[] }
  /** The plan allows no more. Something may have been written: roll back. */
  | { kind: 'over_quota' };

export interface TimerOutcome {
  status: TimerStatus;
  /** Of a schedule. */
  dueAtMicros: number | null;
  /** Of what was cancelled. */
  transactionId: string | null;
}

const APPLY = statement(
  'timers_apply',
  `SELECT outcome, sealing, statuses, due, txns, grown
     FROM queen.timers_apply($1::uuid, $2::text, $3::int[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[],
                             $9::uuid[], $10::bytea[], $11::boolean[], $12::boolean[], $13::boolean[], $14::bigint)`,
);
const NOTHING: TimerContent = {
  partition: '',
  transactionId: '',
  messageId: '00000000-0000-0000-0000-000000000000',
  payload: Buffer.alloc(0),
  payloadZstd: false,
  encrypted: false,
  sealed: false,
};

/** Schedules and cancels, all of it or nothing. One statement; the caller rolls back what is over the quota. */
export async function applyTimers(db: Queryable, call: TimersCall): Promise<TimersOutcome> {
  const { tenant, producerSub, timersLeft } = call;
  const order = lockOrder(call.steps);
  const steps = order.map((i) => call.steps[i]!);
  const contents = steps.map((step) => (step.op === 'schedule' ? step.content : NOTHING));
  const rows = await db.query<{
    outcome: number;
    sealing: number[] | null;
    statuses: number[];
    due: (number | null)[];
    txns: (string | null)[];
    grown: number;
  }>(APPLY, [
    tenant,
    producerSub,
    int4Array(steps.map((step) => (step.op === 'schedule' ? 0 : 1))),
    textArray(steps.map((step) => step.queue)),
    textArray(steps.map((step) => step.timerKey)),
    textArray(contents.map((content) => content.partition)),
    int8Array(steps.map((step) => (step.op === 'schedule' ? step.delayMs : 0))),
    textArray(contents.map((content) => content.transactionId)),
    uuidArray(contents.map((content) => content.messageId)),
    byteaArray(contents.map((content) => content.payload)),
    boolArray(contents.map((content) => content.payloadZstd)),
    boolArray(contents.map((content) => content.encrypted)),
    boolArray(contents.map((content) => content.sealed)),
    timersLeft,
  ]);
  const row = rows[0];
  invariant(row !== undefined, 'timers_apply_row');
  if (row.outcome === 1) return { kind: 'sealing', steps: row.sealing!.map((i) => order[i - 1]!) };
  if (row.outcome === 2) return { kind: 'over_quota' };
  invariant(row.statuses.length === steps.length, 'timers_apply_results', { steps: steps.length });
  const results = new Array<TimerOutcome>(steps.length);
  order.forEach((at, i) => {
    const status = TIMER_STATUS[row.statuses[i]!];
    invariant(status !== undefined, 'timer_status', { status: row.statuses[i] });
    results[at] = { status, dueAtMicros: row.due[i]!, transactionId: row.txns[i]! };
  });
  return { kind: 'applied', results, grown: row.grown };
}

/** Indexes of the steps in the order in which their rows are locked: by the bytes of queue and key. */
function lockOrder(steps: readonly TimerStep[]): number[] {
  const bytes = steps.map(({ queue, timerKey }) => [Buffer.from(queue), Buffer.from(timerKey)] as const);
  return steps
    .map((_, i) => i)
    .sort((a, b) => bytes[a]![0].compare(bytes[b]![0]) || bytes[a]![1].compare(bytes[b]![1]));
}

/** A claim of one timer; the token proves it. */
export interface TimerClaim {
  tenant: string;
  queue: string;
  timerKey: string;
  token: string;
}

export interface ClaimedTimer extends TimerClaim {
  partition: string;
  dueAtMicros: number;
  transactionId: string;
  /** 16 bytes. */
  messageId: Buffer;
  payload: Buffer;
  payloadZstd: boolean;
  encrypted: boolean;
  sealed: boolean;
  producerSub: string | null;
  /** Failures so far. */
  attempts: number;
}

export interface ClaimedTimers {
  /** False: firing is switched off, and nothing was claimed. */
  enabled: boolean;
  /** In the order of their times. */
  timers: ClaimedTimer[];
  /** Due ones are left, or were held by somebody. */
  more: boolean;
  passedBy: number;
  /** Without `more`: ms until the next one is due, null when there is none. */
  waitMs: number | null;
}

interface ClaimRow {
  enabled: boolean;
  more: boolean;
  passedBy: number;
  waitMs: number | null;
  tenants: string[] | null;
  queues: string[];
  keys: string[];
  tokens: string[];
  partitions: string[];
  due: number[];
  txns: string[];
  ids: Buffer[];
  payloads: Buffer[];
  zstd: boolean[];
  encrypted: boolean[];
  sealed: boolean[];
  subs: (string | null)[];
  attempts: number[];
}

const CLAIM = statement(
  'timers_claim',
  `SELECT enabled, more, passed_by AS "passedBy", wait_ms AS "waitMs", tenants, queues, keys, tokens, partitions, due, txns,
          ids, payloads, zstd, encrypted, sealed, subs, attempts
     FROM queen.timers_claim($1::int, $2::bigint, $3::bigint)`,
);

/** Claims due timers, waiting for nobody: at most `limit`, of about `bytesMax` of payload, for `leaseMs`. */
export async function claimTimers(
  db: Queryable,
  wanted: { limit: number; bytesMax: number; leaseMs: number },
): Promise<ClaimedTimers> {
  const rows = await db.query<ClaimRow>(CLAIM, [wanted.limit, wanted.bytesMax, wanted.leaseMs]);
  const row = rows[0];
  invariant(row !== undefined, 'timers_claim_row');
  const timers = (row.tenants ?? []).map(
    (tenant, i): ClaimedTimer => ({
      tenant,
      queue: row.queues[i]!,
      timerKey: row.keys[i]!,
      token: row.tokens[i]!,
      partition: row.partitions[i]!,
      dueAtMicros: row.due[i]!,
      transactionId: row.txns[i]!,
      messageId: row.ids[i]!,
      payload: row.payloads[i]!,
      payloadZstd: row.zstd[i]!,
      encrypted: row.encrypted[i]!,
      sealed: row.sealed[i]!,
      producerSub: row.subs[i]!,
      attempts: row.attempts[i]!,
    }),
  );
  timers.sort((a, b) => a.dueAtMicros - b.dueAtMicros);
  const { enabled, more, passedBy, waitMs } = row;
  return { enabled, timers, more, passedBy, waitMs };
}

/** Claimed timers of one partition, packed. */
export interface TimerSegment {
  partitionId: number;
  /** In the order of the frames. */
  claims: readonly TimerClaim[];
  /** 16 bytes a frame. */
  hashes: Buffer;
  blob: Buffer;
  /** All payloads in it are encrypted. */
  sealed: boolean;
}

const FIRE_OUTCOME = ['fired', 'stale', 'released', 'kept', 'busy'] as const;
/**
 * `stale`: somebody else's by now. `released`: given back, since it is not due (any more). `kept`: still claimed, since its
 * segment was not appended. `busy`: still claimed, and locked by somebody.
 */
export type FireOutcome = (typeof FIRE_OUTCOME)[number];

export interface SegmentVerdict {
  /** Of each claim, in order. */
  outcomes: FireOutcome[];
  /** Null: not appended, since not all of its claims could be fired. */
  verdict:
    | { kind: 'stored'; base: number; createdAtMicros: number; queue: QueueDemands }
    | { kind: 'missing' }
    /** The queue wants encrypted payloads. */
    | { kind: 'unsealed'; queue: QueueDemands }
    | null;
}

const FIRE = statement(
  'timers_fire',
  `SELECT outcomes, verdicts, bases, created, windows, encrypts
     FROM queen.timers_fire($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::int[], $6::bigint[], $7::int[], $8::bytea[],
                            $9::bytea[], $10::boolean[])`,
);

/**
 * Appends the segments and removes their timers, in one transaction, which is this one statement. Each partition at most
 * once.
 */
export async function fireTimers(
  db: Queryable,
  segments: readonly TimerSegment[],
): Promise<SegmentVerdict[]> {
  const claims = segments.flatMap((segment) => segment.claims);
  const rows = await db.query<{
    outcomes: number[];
    verdicts: (number | null)[];
    bases: (number | null)[];
    created: (number | null)[];
    windows: (number | null)[];
    encrypts: (boolean | null)[];
  }>(FIRE, [
    ...claimParams(claims),
    int4Array(segments.flatMap((segment, k) => segment.claims.map(() => k + 1))),
    int8Array(segments.map((segment) => segment.partitionId)),
    int4Array(segments.map((segment) => segment.claims.length)),
    byteaArray(segments.map((segment) => segment.hashes)),
    byteaArray(segments.map((segment) => segment.blob)),
    boolArray(segments.map((segment) => segment.sealed)),
  ]);
  const row = rows[0];
  invariant(row !== undefined && row.outcomes.length === claims.length, 'timers_fire_row', {
    claims: claims.length,
  });
  let from = 0;
  return segments.map((segment, k) => {
    const outcomes = row.outcomes.slice(from, from + segment.claims.length).map((code) => {
      const outcome = FIRE_OUTCOME[code];
      invariant(outcome !== undefined, 'timers_fire_outcome', { code });
      return outcome;
    });
    from += segment.claims.length;
    const code = row.verdicts[k]!;
    if (code === null) return { outcomes, verdict: null };
    if (code === 2) return { outcomes, verdict: { kind: 'missing' } };
    const queue = { windowSeconds: row.windows[k]!, encrypts: row.encrypts[k]! };
    if (code === 3) return { outcomes, verdict: { kind: 'unsealed', queue } };
    const base = row.bases[k]!;
    invariant(
      code === 0 && base >= 0 && outcomes.every((outcome) => outcome === 'fired'),
      'timers_fire_verdict',
      {
        code,
        base,
      },
    );
    return { outcomes, verdict: { kind: 'stored', base, createdAtMicros: row.created[k]!, queue } };
  });
}

const RELEASE = statement(
  'timers_release',
  `SELECT queen.timers_release($1::uuid[], $2::text[], $3::text[], $4::uuid[], $5::bigint, $6::boolean, $7::text) AS given`,
);

/**
 * Gives claims back; how many there still were. `failed`: it was the timer's own fault, which is counted, and prolongs the
 * pause.
 */
export async function releaseTimers(
  db: Queryable,
  claims: readonly TimerClaim[],
  how: { pauseMs: number; failed: boolean; error: string | null },
): Promise<number> {
  const rows = await db.query<{ given: number }>(RELEASE, [
    ...claimParams(claims),
    how.pauseMs,
    how.failed,
    how.error,
  ]);
  return rows[0]!.given;
}

const BURY = statement(
  'timers_bury',
  `SELECT queen.timers_bury($1::uuid, $2::text, $3::text, $4::uuid, $5::bigint, $6::bytea, $7::text) AS outcome`,
);

/** Turns a claimed timer into a dead letter of the partition. `payload` null: it cannot be told. */
export async function buryTimer(
  db: Queryable,
  claim: TimerClaim,
  partitionId: number,
  payload: Buffer | null,
  error: string,
): Promise<'buried' | 'stale' | 'missing'> {
  const { tenant, queue, timerKey, token } = claim;
  const rows = await db.query<{ outcome: number }>(BURY, [
    tenant,
    queue,
    timerKey,
    token,
    partitionId,
    payload,
    error,
  ]);
  const outcome = (['buried', 'stale', 'missing'] as const)[rows[0]!.outcome];
  invariant(outcome !== undefined, 'timers_bury_outcome', { outcome: rows[0]!.outcome });
  return outcome;
}

function claimParams(claims: readonly TimerClaim[]): Buffer[] {
  return [
    uuidArray(claims.map((claim) => claim.tenant)),
    textArray(claims.map((claim) => claim.queue)),
    textArray(claims.map((claim) => claim.timerKey)),
    uuidArray(claims.map((claim) => claim.token)),
  ];
}

/** A pending timer, for people who look. */
export interface TimerRow {
  timerKey: string;
  partition: string;
  dueAtMicros: number;
  transactionId: string;
  messageId: string;
  /** As stored. Null: not asked for. */
  payload: Buffer | null;
  payloadZstd: boolean;
  encrypted: boolean;
  producerSub: string | null;
  attempts: number;
  lastError: string | null;
  /** It is being fired. */
  claimed: boolean;
  createdAtMicros: number;
  updatedAtMicros: number;
}

const COLUMNS = `t.timer_key AS "timerKey", t.partition, t.deliver_at AS "dueAtMicros", t.txn AS "transactionId",
  t.message_id AS "messageId", t.payload_zstd AS "payloadZstd", t.encrypted OR t.sealed AS encrypted,
  t.producer_sub AS "producerSub", t.attempts, t.last_error AS "lastError",
  t.claim_token IS NOT NULL AND t.claimed_until > queen.clock() AS claimed,
  t.created_at AS "createdAtMicros", t.updated_at AS "updatedAtMicros"`;
const ONE = statement(
  'timers_one',
  `SELECT ${COLUMNS}, t.payload FROM queen.log_timers t
    WHERE t.tenant_id = $1::uuid AND t.queue = $2::text AND t.timer_key = $3::text`,
);
const LIST = statement(
  'timers_list',
  `SELECT ${COLUMNS}, NULL::bytea AS payload FROM queen.log_timers t
    WHERE t.tenant_id = $1::uuid AND t.queue = $2::text AND t.timer_key > coalesce($3::text, '')
      AND t.timer_key >= $4::text AND ($5::text IS NULL OR t.timer_key < $5::text)
    ORDER BY t.timer_key LIMIT $6::int`,
);
const QUEUES = statement(
  'timers_queues',
  // From one queue to the next by the key: what there is of each is not read.
  `WITH RECURSIVE steps AS (
     (SELECT t.queue FROM queen.log_timers t WHERE t.tenant_id = $1::uuid AND t.queue > $2::text
       ORDER BY t.queue LIMIT 1)
     UNION ALL
     SELECT (SELECT t.queue FROM queen.log_timers t WHERE t.tenant_id = $1::uuid AND t.queue > s.queue
              ORDER BY t.queue LIMIT 1)
       FROM steps s WHERE s.queue IS NOT NULL
   )
   SELECT s.queue FROM steps s WHERE s.queue IS NOT NULL LIMIT $3::int`,
);
const COUNT = statement(
  'timers_count',
  `SELECT count(*) AS count FROM queen.log_timers t
    WHERE t.tenant_id = $1::uuid AND t.queue = $2::text
      AND t.timer_key >= $3::text AND ($4::text IS NULL OR t.timer_key < $4::text)`,
);

/** Null: nothing is pending under the key. */
export async function peekTimer(
  db: Queryable,
  tenant: string,
  queue: string,
  timerKey: string,
): Promise<TimerRow | null> {
  const rows = await db.query<TimerRow>(ONE, [tenant, queue, timerKey], { readOnly: true });
  return rows[0] ?? null;
}

/** In byte order of the keys, without payloads. `after`: exclusive; null: from the first. */
export function listTimers(
  db: Queryable,
  tenant: string,
  queue: string,
  page: { prefix: string; after: string | null; limit: number },
): Promise<TimerRow[]> {
  const { prefix, after, limit } = page;
  return db.query<TimerRow>(LIST, [tenant, queue, after, prefix, prefixEnd(prefix), limit], {
    readOnly: true,
  });
}

/** Queues with pending timers, in byte order. `after`: exclusive; '': from the first. */
export async function timerQueues(
  db: Queryable,
  tenant: string,
  after: string,
  limit: number,
): Promise<string[]> {
  const rows = await db.query<{ queue: string }>(QUEUES, [tenant, after, limit], { readOnly: true });
  return rows.map(({ queue }) => queue);
}

export async function countTimers(
  db: Queryable,
  tenant: string,
  queue: string,
  prefix: string,
): Promise<number> {
  const rows = await db.query<{ count: number }>(COUNT, [tenant, queue, prefix, prefixEnd(prefix)], {
    readOnly: true,
  });
  return rows[0]!.count;
}

export interface TimerBacklog {
  /** Due and not fired, over all tenants, counted up to a bound. */
  due: number;
  /** There may be more. */
  capped: boolean;
  /** How late the latest of them is. */
  lateMs: number;
}

const BACKLOG = statement(
  'timers_backlog',
  'SELECT due, capped, late_ms AS "lateMs" FROM queen.timers_backlog()',
);

export async function readBacklog(db: Queryable): Promise<TimerBacklog> {
  const rows = await db.query<TimerBacklog>(BACKLOG, [], { readOnly: true });
  return rows[0]!;
}
