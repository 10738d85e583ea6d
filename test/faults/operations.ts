/** The events of a history, put together again to operations with a beginning and an end. */
import type {
  AckedItem,
  AckOutcome,
  Delivered,
  HistoryEvent,
  PushedItem,
  PushOutcome,
  Reading,
} from './history.ts';

interface Span {
  op: number;
  by: string;
  /** Microseconds. Whatever was done was done after it. */
  from: number;
  /** And before this. Infinity: no answer came, so it may still be on its way. */
  to: number;
}

export type PushOperation = Span & {
  items: PushedItem[];
  via: string;
  results: PushOutcome[] | null;
  certainlyNot: boolean;
};
export type PopOperation = Span & {
  group: string;
  leaseMs: number;
  autoAck: boolean;
  lease: string;
  messages: Delivered[];
  /** No answer came: it may have claimed, and with autoAck committed, what nobody saw. */
  unheard: boolean;
};
export type AckOperation = Span & {
  group: string;
  lease: string;
  items: AckedItem[];
  verdicts: AckOutcome[] | null;
  certainlyNot: boolean;
};
export type ExtendOperation = Span & { lease: string; seconds: number; renewed: number | null };

export interface Operations {
  pushes: PushOperation[];
  pops: PopOperation[];
  acks: AckOperation[];
  /** By lease id. */
  extends: Map<string, ExtendOperation[]>;
  reading: Reading | null;
  /** What is wrong with the record itself. */
  faults: string[];
}

export function operationsOf(events: readonly HistoryEvent[]): Operations {
  const out: Operations = { pushes: [], pops: [], acks: [], extends: new Map(), reading: null, faults: [] };
  const ends = new Map<number, HistoryEvent>();
  for (const event of events) {
    if (event.type === 'invoke' || event.f === 'nemesis') continue;
    if (event.f === 'reading') out.reading = event;
    else if (ends.has(event.op)) out.faults.push(`operation ${event.op} ends twice`);
    else ends.set(event.op, event);
  }
  for (const event of events) if (event.type === 'invoke') add(out, event, ends.get(event.op));
  return out;
}

function add(out: Operations, event: HistoryEvent & { type: 'invoke' }, end: HistoryEvent | undefined): void {
  const { op, by, at: from } = event;
  if (end !== undefined && (end.f !== event.f || end.at < from)) {
    out.faults.push(`operation ${op}: the end does not belong to the beginning`);
    return;
  }
  const answered = end?.type === 'ok';
  const certainlyNot = end?.type === 'fail';
  const span = { op, by, from, to: answered || certainlyNot ? end.at : Number.POSITIVE_INFINITY };
  const answer = answered ? end : null;
  switch (event.f) {
    case 'push': {
      const results = answer?.f === 'push' ? answer.results : null;
      if (results !== null && results.length !== event.items.length) {
        out.faults.push(`push ${op}: ${results.length} answers to ${event.items.length} items`);
      }
      const { items, via = '' } = event;
      out.pushes.push({ ...span, items, via, results, certainlyNot });
      break;
    }
    case 'pop': {
      const { group, leaseMs, autoAck } = event;
      const { lease, messages } = answer?.f === 'pop' ? answer : { lease: '', messages: [] };
      const unheard = !answered && !certainlyNot;
      out.pops.push({ ...span, group, leaseMs, autoAck, lease, messages, unheard });
      break;
    }
    case 'ack': {
      const { group, lease, items } = event;
      const verdicts = answer?.f === 'ack' ? answer.verdicts : null;
      if (verdicts !== null && verdicts.length !== items.length) {
        out.faults.push(`ack ${op}: ${verdicts.length} verdicts on ${items.length} items`);
      }
      out.acks.push({ ...span, group, lease, items, verdicts, certainlyNot });
      break;
    }
    case 'extend': {
      const renewed = answer?.f === 'extend' ? answer.renewed : certainlyNot ? 0 : null;
      const { lease, seconds } = event;
      const renewals = out.extends.get(lease) ?? [];
      out.extends.set(lease, [...renewals, { ...span, lease, seconds, renewed }]);
      break;
    }
  }
}

export function laneOf(at: { queue: string; partition: string }): string {
  return `${at.queue}/${at.partition}`;
}
