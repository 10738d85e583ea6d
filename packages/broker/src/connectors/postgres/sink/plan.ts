/**
 * From operations in the order of their messages to runs, each of which one statement applies. Pure.
 *
 * A run holds operations of one kind and shape and no key twice: a statement sees the table as it was before it, so it could
 * not apply two changes of a row one after the other, and must not fold them into one (each has triggers and constraints to
 * meet). In strict order a run ends where any of that ends.
 *
 * In layers, runs are longer: the first operation on each key is in the first layer, the second in the second, and so on;
 * inside a layer operations of one kind and shape stand together. Operations on one key keep their order and the others
 * commute, as long as nothing binds rows to each other (a foreign key, a second unique index). Whoever applies layers
 * must therefore go back to strict order before anybody is blamed for an error. An operation that touches every row keeps
 * its place between the layers before it and those behind.
 */
import type { OperationKind, Planned } from './operations.ts';

export const RUN_BYTES_MAX = 16 * 1024 * 1024;

/** Kinds whose order among themselves is theirs alone: runs of them are never sorted. */
const IN_ORDER: ReadonlySet<OperationKind> = new Set(['append', 'statement']);

/** Consecutive operations that one statement can apply, in their order. */
export function strictRuns<T extends Planned>(operations: readonly T[], bytesMax = RUN_BYTES_MAX): T[][] {
  const runs: T[][] = [];
  let run: T[] = [];
  let bytes = 0;
  const keys = new Set<string>();
  for (const operation of operations) {
    const first = run[0];
    const fits =
      first !== undefined &&
      operation.kind !== 'truncate' &&
      first.kind === operation.kind &&
      first.shape === operation.shape &&
      bytes + operation.bytes <= bytesMax &&
      !operation.keys.some((key) => keys.has(key));
    if (!fits) {
      run = [];
      runs.push(run);
      bytes = 0;
      keys.clear();
    }
    run.push(operation);
    bytes += operation.bytes;
    for (const key of operation.keys) keys.add(key);
  }
  return runs;
}

/** The same in layers; only for operations that name all rows they touch. */
export function layeredRuns<T extends Planned>(operations: readonly T[], bytesMax = RUN_BYTES_MAX): T[][] {
  const runs: T[][] = [];
  const layers = new Layers<T>();
  for (const operation of operations) {
    if (operation.kind !== 'truncate') {
      layers.add(operation);
      continue;
    }
    runs.push(...layers.take(bytesMax), [operation]);
  }
  runs.push(...layers.take(bytesMax));
  return runs;
}

class Layers<T extends Planned> {
  #layers: Map<string, T[]>[] = [];
  readonly #depths = new Map<string, number>();

  add(operation: T): void {
    let depth = 0;
    for (const key of operation.keys) depth = Math.max(depth, this.#depths.get(key) ?? 0);
    for (const key of operation.keys) this.#depths.set(key, depth + 1);
    this.#layers[depth] ??= new Map();
    const groups = this.#layers[depth]!;
    const name = `${operation.kind}\u0000${operation.shape}`;
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [operation]);
    else group.push(operation);
  }

  take(bytesMax: number): T[][] {
    const runs: T[][] = [];
    for (const groups of this.#layers) {
      for (const group of groups.values()) runs.push(...cut(byKey(group), bytesMax));
    }
    this.#layers = [];
    this.#depths.clear();
    return runs;
  }
}

/** Two workers that write the same rows lock them in one order, and seldom meet head-on. */
function byKey<T extends Planned>(group: T[]): T[] {
  if (IN_ORDER.has(group[0]!.kind)) return group;
  return group.sort((a, b) => (a.keys[0]! < b.keys[0]! ? -1 : 1));
}

function cut<T extends Planned>(group: T[], bytesMax: number): T[][] {
  const runs: T[][] = [];
  let from = 0;
  let bytes = 0;
  for (let i = 0; i < group.length; i++) {
    const size = group[i]!.bytes;
    if (i > from && bytes + size > bytesMax) {
      runs.push(group.slice(from, i));
      from = i;
      bytes = 0;
    }
    bytes += size;
  }
  if (from < group.length) runs.push(from === 0 ? group : group.slice(from));
  return runs;
}
