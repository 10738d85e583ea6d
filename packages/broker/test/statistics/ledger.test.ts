import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ledger, PARTITIONS_MAX, QUEUES_MAX } from '../../src/engine/statistics/ledger.ts';
import {
  type AckStatus,
  type AckVerdict,
  DEFAULT_TENANT,
  type PopAnswer,
  type PopRequest,
  type PushRequest,
  type PushStatus,
} from '../../src/engine/types.ts';

const OTHER = '00000000-0000-4000-8000-00000000000b';
const NOW = 1_000_000_000;

function push(queues: string[], tenant = DEFAULT_TENANT): PushRequest {
  const items = queues.map((queue) => ({
    queue,
    partition: 'p',
    payload: Buffer.from('1'),
    transactionId: null,
  }));
  return { tenant, producerSub: null, items };
}

const pushed = (status: PushStatus) => ({
  status,
  messageId: '',
  transactionId: '',
  partitionId: null,
  offset: null,
  error: null,
});

const verdict = (over: Partial<AckVerdict> = {}): AckVerdict => ({
  success: true,
  error: null,
  leaseReleased: false,
  dlq: false,
  noop: false,
  ...over,
});

const ack = (statuses: AckStatus[], partitionId = '7', tenant = DEFAULT_TENANT) => ({
  tenant,
  group: 'g',
  items: statuses.map((status) => ({
    partitionId,
    leaseId: 'l',
    status,
    error: null,
    transactionId: 't',
  })),
});

function pop(queue: string | null, autoAck = false): PopRequest {
  const scope = queue === null ? { kind: 'discovery', namespace: 'n', task: null } : { kind: 'queue', queue };
  return { tenant: DEFAULT_TENANT, scope, group: 'g', autoAck } as unknown as PopRequest;
}

function delivered(claims: [queue: string, ages: number[]][]): PopAnswer {
  return {
    claims: claims.map(([queue, ages]) => ({
      queue,
      messages: ages.map((age) => ({ createdAtMicros: NOW - age })),
    })),
  } as unknown as PopAnswer;
}

/** What was counted, without zeros, by whatever it belongs to. */
function written(ledger: Ledger) {
  const { totals, queues } = ledger.take();
  const some = (counts: object) =>
    Object.fromEntries(Object.entries(counts).filter(([, value]) => value !== 0));
  return {
    totals: some(totals),
    queues: queues.map(({ place, counts }) => ({ ...place, ...some(counts) })),
  };
}

test('pushes: a request counts once a queue, and only what is stored counts as a message', () => {
  const ledger = new Ledger(() => NOW);
  const statuses: PushStatus[] = ['queued', 'duplicate', 'buffered', 'failed', 'queued'];
  ledger.pushed(push(['a', 'a', 'b', 'b', 'a']), statuses.map(pushed));
  ledger.pushed(push(['a'], OTHER), [pushed('queued')]);
  const place = (queue: string, tenant = DEFAULT_TENANT) => ({ tenant, queue });
  assert.deepEqual(written(ledger), {
    totals: { pushRequests: 2, pushMessages: 4 },
    queues: [
      { ...place('a'), pushRequests: 1, pushMessages: 2 },
      { ...place('b'), pushRequests: 1, pushMessages: 1 },
      { ...place('a', OTHER), pushRequests: 1, pushMessages: 1 },
    ],
  });
  assert.deepEqual(written(ledger), { totals: {}, queues: [] }, 'what was taken is not there again');
});

test('pops: by queue, an empty one too; a scope counts for the queues that it found', () => {
  const ledger = new Ledger(() => NOW);
  ledger.popped(pop('a'), delivered([['a', [5, 10]]]));
  ledger.popped(pop('a'), delivered([]));
  ledger.popped(pop('a', true), delivered([['a', [-3]]]));
  ledger.popped(
    pop(null),
    delivered([
      ['b', [1]],
      ['b', [2]],
      ['c', [3]],
    ]),
  );
  ledger.popped(pop(null), delivered([]));
  const { totals, queues } = written(ledger);
  assert.deepEqual(totals, {
    popRequests: 5,
    popEmpty: 2,
    popMessages: 6,
    ackMessages: 1,
    ackSuccess: 1,
    lagCount: 6,
    lagSumUs: 21,
    lagMaxUs: 10,
  });
  assert.deepEqual(
    queues.map((row) => ({ ...row, tenant: undefined })),
    [
      {
        tenant: undefined,
        queue: 'a',
        popRequests: 3,
        popMessages: 3,
        popEmpty: 1,
        ackMessages: 1,
        ackSuccess: 1,
        lagCount: 3,
        lagSumUs: 15,
        lagMaxUs: 10,
      },
      {
        tenant: undefined,
        queue: 'b',
        popRequests: 1,
        popMessages: 2,
        lagCount: 2,
        lagSumUs: 3,
        lagMaxUs: 2,
      },
      {
        tenant: undefined,
        queue: 'c',
        popRequests: 1,
        popMessages: 1,
        lagCount: 1,
        lagSumUs: 3,
        lagMaxUs: 3,
      },
    ],
  );
});

test('acks: by partition, with what became of them', () => {
  const ledger = new Ledger(() => NOW);
  ledger.acked(ack(['completed', 'completed', 'failed', 'retry', 'dlq', 'completed']), [
    verdict(),
    verdict({ conflated: 4 }),
    verdict(),
    verdict(),
    verdict({ dlq: true }),
    verdict({ success: false, error: 'invalid or expired lease' }),
  ]);
  for (const malformed of ['', '0', '-1', '1.5', 'x', '99999999999999999', '0x1']) {
    ledger.acked(ack(['completed'], malformed), [verdict({ success: false })]);
  }
  ledger.acked(ack(['completed'], '7', OTHER), [verdict({ success: false })]);
  const { totals, queues } = written(ledger);
  assert.deepEqual(totals, {
    ackRequests: 9,
    ackMessages: 14,
    ackSuccess: 2,
    ackFailed: 11,
    dlq: 1,
    conflated: 4,
  });
  assert.deepEqual(queues, [
    {
      tenant: DEFAULT_TENANT,
      partition: 7,
      ackRequests: 1,
      ackMessages: 6,
      ackSuccess: 2,
      ackFailed: 3,
      dlq: 1,
      conflated: 4,
    },
    { tenant: OTHER, partition: 7, ackRequests: 1, ackMessages: 1, ackFailed: 1 },
  ]);
});

test('transactions: committed ones, once for each queue that they pushed to', () => {
  const ledger = new Ledger(() => NOW);
  const result = (queue: string, duplicate = false) => ({ type: 'push', queue, duplicate });
  const acked = { type: 'ack', transactionId: 't', verdict: verdict() };
  const operation = { type: 'ack', group: 'g', item: ack(['completed'], '9').items[0]! };
  const request = (operations: unknown[]) => ({ tenant: DEFAULT_TENANT, operations }) as never;
  const answer = (results: unknown[], success = true) => ({ success, results }) as never;
  ledger.transacted(
    request([null, null, null, operation]),
    answer([result('a'), result('a', true), result('b'), acked]),
  );
  ledger.transacted(request([operation]), answer([acked]));
  ledger.transacted(request([null]), answer([result('a')], false));
  const { totals, queues } = written(ledger);
  assert.deepEqual(totals, { transactions: 2, pushMessages: 2, ackMessages: 2, ackSuccess: 2 });
  assert.deepEqual(
    queues.map((row) => ({ ...row, tenant: undefined })),
    [
      { tenant: undefined, queue: 'a', transactions: 1, pushMessages: 1 },
      { tenant: undefined, queue: 'b', transactions: 1, pushMessages: 1 },
      { tenant: undefined, partition: 9, ackMessages: 2, ackSuccess: 2, transactions: 1 },
    ],
  );
});

test('names without end: the sums go on, and an early flush is asked for', () => {
  const ledger = new Ledger(() => NOW);
  let asked = 0;
  ledger.onFull = () => asked++;
  for (let i = 0; i < QUEUES_MAX + 10; i++) ledger.pushed(push([`q${i}`]), [pushed('queued')]);
  assert.equal(asked, 10);
  for (let i = 1; i <= PARTITIONS_MAX + 10; i++) ledger.acked(ack(['completed'], String(i)), [verdict()]);
  assert.equal(asked, 20);
  const { totals, queues } = ledger.take();
  assert.equal(totals.pushMessages, QUEUES_MAX + 10);
  assert.equal(totals.ackSuccess, PARTITIONS_MAX + 10);
  assert.equal(queues.length, QUEUES_MAX + PARTITIONS_MAX);
  ledger.pushed(push(['later']), [pushed('queued')]);
  assert.equal(asked, 20, 'there is room again');
});
