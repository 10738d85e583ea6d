/** Numbers of the pop path, in the units of their names. */
export interface PopSettings {
  /** Messages of a pop that says nothing. */
  readonly batchDefault: number;
  /** The in-memory ready index; without it candidates come from a scan. */
  readonly hotlist: boolean;
  /** Waiting messages that open a windowed partition early. */
  readonly windowBatch: number;
  /**
   * Bytes of stored (compressed) segments in one answer; the segment that crosses the line is still taken. The budget
   * of a pop is in messages, and two hundred of them may be 12 GB.
   */
  readonly answerBytesMax: number;
  readonly autopilot: 'on' | 'shadow' | 'off';
  readonly autopilotBatch: number;
  readonly autopilotTargetAgeMs: number;
  readonly autopilotDwellMs: number;
  readonly autopilotDwellPops: number;
  readonly autopilotLanesMax: number;
  /** 0: no cap. */
  readonly autopilotBurstCap: number;
  /** How long what is known of a queue or scope is used without asking again. */
  readonly memoMs: number;
}

export const POP_DEFAULTS: PopSettings = {
  batchDefault: 200,
  hotlist: true,
  windowBatch: 100,
  answerBytesMax: 32 * 1024 * 1024,
  autopilot: 'on',
  autopilotBatch: 100,
  autopilotTargetAgeMs: 25,
  autopilotDwellMs: 500,
  autopilotDwellPops: 16,
  autopilotLanesMax: 50_000,
  autopilotBurstCap: 0,
  memoMs: 30_000,
};

/** Partitions that one answer of a conflating group may name. */
export const CONFLATED_PARTITIONS_MAX = 64;
/** Partitions asked for in one statement. */
export const DRAW_MAX = 64;
/** A partition that could not be read is left alone for so long. */
export const CORRUPT_PARK_MS = 1_000;
