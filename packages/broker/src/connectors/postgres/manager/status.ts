/**
 * What one connector looks like from this node. Outlives the units that write into it: counters go on over a restart,
 * and are forgotten with the connector.
 */
import type { StoreLog } from '../../../store/log.ts';
import type { ConnectorDocument } from '../document/types.ts';
import type { ConnectorFault, FaultCode } from '../fault.ts';
import { instantNow } from '../instants.ts';
import { formatLsn } from '../replication/lsn.ts';
import type { Phase, UnitCounter, UnitStatus } from '../unit.ts';

export interface ErrorShown {
  readonly code: FaultCode;
  readonly message: string;
  readonly at: string;
}

type Facts = Readonly<Record<string, unknown>>;

const SOURCE_COUNTERS = ['transactions', 'messages', 'bundles'] as const;
const SINK_COUNTERS = ['applied', 'skipped', 'dlq', 'batches'] as const;
/** Facts that mean something only in the phase that they came with. */
const PASSING = ['owner', 'activePid', 'detail'] as const;

const OWNERS = ['pointerLsn', 'slotLagBytes', 'walStatus', 'confirmedFlushLsn', 'snapshot'] as const;

export class ConnectorStatus implements UnitStatus {
  phase: Phase = 'starting';
  readonly name: string;
  readonly counters: Record<UnitCounter, number> = {
    transactions: 0,
    messages: 0,
    bundles: 0,
    snapshotRows: 0,
    applied: 0,
    skipped: 0,
    dlq: 0,
    batches: 0,
    errors: 0,
  };
  readonly gauges: { slotLagBytes: bigint | null; pointerLsn: bigint | null } = {
    slotLagBytes: null,
    pointerLsn: null,
  };
  /** This node runs the work. */
  owned = false;
  /** Units begun, and those of them after an error. */
  generation = 0;
  restarts = 0;
  kind: 'source' | 'sink' | null;
  #enabled = true;
  #since = instantNow();
  #error: ErrorShown | null = null;
  #retryAt: number | null = null;
  #facts: Record<string, unknown> = {};
  readonly #log: StoreLog;

  constructor(name: string, kind: 'source' | 'sink' | null, log: StoreLog) {
    this.name = name;
    this.kind = kind;
    this.#log = log;
  }

  /** A document is about to run. What was shown of the former one goes, what was counted stays. */
  begin(document: ConnectorDocument): void {
    this.kind = document.kind;
    this.#enabled = document.enabled;
    this.#facts = document.kind === 'source' ? sourceFacts(document.source) : sinkFacts(document.sink);
  }

  enter(phase: Phase, facts: Facts = {}): void {
    for (const fact of PASSING) delete this.#facts[fact];
    this.show(facts);
    if (phase !== 'error') {
      this.#error = null;
      this.#retryAt = null;
    }
    if (phase === this.phase) return;
    this.phase = phase;
    this.#since = instantNow();
    this.#log.info({ connector: this.name, phase, ...facts }, `connector ${this.name}: ${phase}`);
  }

  show(facts: Facts): void {
    for (const [name, value] of Object.entries(facts)) {
      if (value === undefined) delete this.#facts[name];
      else this.#facts[name] = value;
    }
  }

  count(what: UnitCounter, by: number): void {
    this.counters[what] += by;
  }

  gauge(what: 'slotLagBytes' | 'pointerLsn', value: bigint | null): void {
    this.gauges[what] = value;
  }

  owner(yes: boolean): void {
    this.owned = yes;
    // What only an owner sees would grow old.
    if (!yes && this.kind === 'source') for (const fact of OWNERS) this.#facts[fact] = null;
  }

  /** It does not run, because of this; `retryInMs` null: only another document helps. */
  fail(fault: ConnectorFault, retryInMs: number | null): void {
    this.counters.errors++;
    this.owned = false;
    this.gauges.slotLagBytes = null;
    this.enter('error');
    this.#error = { code: fault.code, message: cleaned(fault.message), at: instantNow() };
    this.#retryAt = retryInMs === null ? null : performance.now() + retryInMs;
    const { code, sqlState } = fault;
    const facts = { connector: this.name, code, retryInMs, ...(sqlState === null ? {} : { sqlState }) };
    this.#log.warn(facts, `connector ${this.name}: ${this.#error.message}`);
  }

  /** As the API and `/status` show it. */
  render(): Record<string, unknown> {
    const { kind, phase, counters, gauges } = this;
    const own = kind === 'source' ? SOURCE_COUNTERS : kind === 'sink' ? SINK_COUNTERS : [];
    const { pointerLsn, slotLagBytes } = gauges;
    return {
      name: this.name,
      kind,
      enabled: this.#enabled,
      phase,
      since: this.#since,
      error: this.#error,
      ...(this.#retryAt === null
        ? {}
        : { retryInMs: Math.max(0, Math.round(this.#retryAt - performance.now())) }),
      ...this.#facts,
      ...(pointerLsn === null ? {} : { pointerLsn: formatLsn(pointerLsn) }),
      ...(slotLagBytes === null ? {} : { slotLagBytes: Number(slotLagBytes) }),
      ...Object.fromEntries(own.map((name) => [name, counters[name]])),
    };
  }
}

function sourceFacts({ slot, publication }: { slot: string; publication: string }) {
  return {
    slot,
    publication,
    systemId: null,
    epoch: null,
    pointerLsn: null,
    lastCommitAt: null,
    slotLagBytes: null,
    walStatus: null,
    confirmedFlushLsn: null,
    truncatesSkipped: 0,
    resyncedAt: null,
    snapshot: null,
  };
}

function sinkFacts(sink: {
  queue: string;
  consumerGroup: string;
  schema: string;
  table: string;
  mode: string;
  workers: number;
}) {
  const { queue, consumerGroup, schema, table, mode, workers } = sink;
  return {
    queue,
    group: consumerGroup,
    table: `${schema}.${table}`,
    mode,
    workers,
    lastAppliedAt: null,
    lastError: null,
  };
}

/** A driver may quote what it was given. */
export function cleaned(text: string): string {
  return text.replace(/\bpostgres(?:ql)?:\/\/\S+/gi, 'postgres://…');
}
