/** What a workload is to the run that calls it. */
import type { Rig } from './rig.ts';

export interface Scale {
  quick: boolean;
  /** Seconds of one measurement. */
  seconds: number;
  warmUpSeconds: number;
  /** Turns of workloads that compare. */
  rounds: number;
  /** Minutes of load for the memory curve. */
  minutes: number;
}

/** One line of the table: what was done and the figures that came out, with their units in the names. */
export interface Row {
  what: string;
  figures: Record<string, number>;
}

/** A figure that has a target. `better`: which way from the target is good. */
export interface Goal {
  what: string;
  value: number;
  unit: string;
  target: number;
  better: 'above' | 'below';
}

export interface Result {
  rows: Row[];
  goals: Goal[];
}

export interface Workload {
  name: string;
  about: string;
  run(rig: Rig, scale: Scale): Promise<Result>;
}
