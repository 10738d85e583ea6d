/** What passed through this process since it started: plain numbers, added to on the hot paths. */
import type { Metrics } from './metrics.ts';

/** Queues told apart in one period of the rate log; what comes beyond is counted in the totals only. */
const QUEUES_MAX = 10_000;
/** Deliveries of one batch from which on it counts as stuck. */
const REPEATED_ATTEMPTS = 10;

export interface QueueTraffic {
  pushed: number;
  popped: number;
}

export class Traffic {
  pushRequests = 0;
  pushMessages = 0;
  popRequests = 0;
  popMessages = 0;
  popEmpty = 0;
  popTargeted = 0;
  popWildcard = 0;
  redeliveredMessages = 0;
  /** See `repeated`. */
  repeatedClaims = 0;
  ackRequests = 0;
  ackMessages = 0;
  ackFailed = 0;
  ackUnfenced = 0;
  readonly pushResults = { queued: 0, duplicate: 0, buffered: 0, failed: 0 };
  /** By the first digit of the status; index 0 is unused. */
  readonly answers = [0, 0, 0, 0, 0, 0];
  readonly refused = new Map<string, number>();
  /** Pops that wait right now, by queue; '' stands for discovery. */
  readonly #waiting = new Map<string, number>();
  #queues = new Map<string, QueueTraffic>();

  pushed(queue: string, messages: number): void {
    const entry = this.#queue(queue);
    if (entry !== undefined) entry.pushed += messages;
  }

  popped(queue: string, messages: number): void {
    const entry = this.#queue(queue);
    if (entry !== undefined) entry.popped += messages;
  }

  /** A pop that may wait begins. To be ended by `waited`. */
  waits(queue: string): void {
    this.#waiting.set(queue, (this.#waiting.get(queue) ?? 0) + 1);
  }

  waited(queue: string): void {
    const left = (this.#waiting.get(queue) ?? 1) - 1;
    if (left > 0) this.#waiting.set(queue, left);
    else this.#waiting.delete(queue);
  }

  /**
   * A batch was delivered for the so-manyth time. An expired lease costs no retry budget, so a message that kills its
   * worker comes back for ever: these claims are counted. True at 10, 100, 1000, …: worth a line in the log.
   */
  repeated(deliveryAttempt: number): boolean {
    if (deliveryAttempt < REPEATED_ATTEMPTS) return false;
    this.repeatedClaims++;
    return /^10+$/.test(String(deliveryAttempt));
  }

  refuse(reason: string): void {
    this.refused.set(reason, (this.refused.get(reason) ?? 0) + 1);
  }

  /** The queues that saw traffic since the previous call. */
  takeQueues(): Map<string, QueueTraffic> {
    const taken = this.#queues;
    this.#queues = new Map();
    return taken;
  }

  /** Registers every family that these numbers feed. */
  register(metrics: Metrics): void {
    metrics.sources({
      queen_process_push_requests_total: () => this.pushRequests,
      queen_process_push_messages_total: () => this.pushMessages,
      queen_process_pop_requests_total: () => this.popRequests,
      queen_process_pop_messages_total: () => this.popMessages,
      queen_process_ack_requests_total: () => this.ackRequests,
      queen_process_ack_messages_total: () => this.ackMessages,
      queen_pop_empty_total: () => this.popEmpty,
      queen_pop_targeted_total: () => this.popTargeted,
      queen_pop_wildcard_total: () => this.popWildcard,
      queen_pop_redelivered_messages_total: () => this.redeliveredMessages,
      queen_pop_repeated_offset_total: () => this.repeatedClaims,
      queen_parked_long_polls: () =>
        [...this.#waiting].map(([queue, value]) => ({ labels: { queue }, value })),
      queen_ack_failed_total: () => this.ackFailed,
      queen_ack_unfenced_total: () => this.ackUnfenced,
      queen_push_results_total: () =>
        Object.entries(this.pushResults).map(([status, value]) => ({ labels: { status }, value })),
      queen_http_answers_total: () =>
        [2, 4, 5].map((digit) => ({ labels: { class: `${digit}xx` }, value: this.answers[digit]! })),
      queen_http_refused_total: () =>
        [...this.refused].map(([reason, value]) => ({ labels: { reason }, value })),
    });
  }

  #queue(name: string): QueueTraffic | undefined {
    let entry = this.#queues.get(name);
    if (entry === undefined && this.#queues.size < QUEUES_MAX) {
      entry = { pushed: 0, popped: 0 };
      this.#queues.set(name, entry);
    }
    return entry;
  }
}
