/**
 * What a snapshot of PostgreSQL sees: which transactions count as done for it.
 *
 * A commit is in the write-ahead log before it is visible: the stream may have carried a transaction that a query begun
 * later does not see yet (its backend waits for a synchronous standby, or was not scheduled). So the order of the log
 * says nothing about what a query sees, and this has to be asked of the query's own snapshot.
 */

/** The text of `pg_snapshot`: `xmin:xmax:running,running`. */
const PATTERN = /^(\d{1,20}):(\d{1,20}):((?:\d{1,20}(?:,\d{1,20})*)?)$/;

export class Visibility {
  /** Below, every transaction has ended. */
  readonly xmin: bigint;
  /** At and above, none has ended, as far as this snapshot goes. */
  readonly xmax: bigint;
  readonly #running: ReadonlySet<bigint>;
  /** The same as distances from xmax, for transactions of which only the lower 32 bits are known. */
  readonly #xmaxLow: number;
  readonly #toXmin: number;
  readonly #toRunning: ReadonlySet<number>;

  constructor(xmin: bigint, xmax: bigint, running: readonly bigint[]) {
    this.xmin = xmin;
    this.xmax = xmax;
    this.#running = new Set(running);
    this.#xmaxLow = Number(BigInt.asUintN(32, xmax));
    this.#toXmin = Number(xmin - xmax);
    this.#toRunning = new Set(running.map((xid) => Number(xid - xmax)));
  }

  get running(): readonly bigint[] {
    return [...this.#running];
  }

  sees(xid: bigint): boolean {
    return xid < this.xmin || (xid < this.xmax && !this.#running.has(xid));
  }

  /** Of a transaction as the stream names it, by the lower 32 bits of its number. */
  seesLow(xid: number): boolean {
    const distance = (xid - this.#xmaxLow) | 0;
    return distance < this.#toXmin || (distance < 0 && !this.#toRunning.has(distance));
  }

  /** The whole number of a transaction that the stream names by its lower 32 bits: the one that is nearest. */
  widen(xid: number): bigint {
    return this.xmax + BigInt((xid - this.#xmaxLow) | 0);
  }

  /** Whether all that `other` sees is seen here too. */
  covers(other: Visibility): boolean {
    if (other.xmax <= this.xmin) return true;
    for (const xid of this.#running) if (other.sees(xid)) return false;
    // What began after this snapshot and had ended before the other one.
    for (let xid = this.xmax; xid < other.xmax; xid++) if (other.sees(xid)) return false;
    return true;
  }
}

/** Null: not the text of a snapshot. */
export function parseVisibility(text: string): Visibility | null {
  const match = PATTERN.exec(text);
  if (match === null) return null;
  const [, xmin, xmax, running] = match as unknown as [string, string, string, string];
  if (BigInt(xmin) > BigInt(xmax)) return null;
  return new Visibility(BigInt(xmin), BigInt(xmax), running === '' ? [] : running.split(',').map(BigInt));
}

export function printVisibility({ xmin, xmax, running }: Visibility): string {
  return `${xmin}:${xmax}:${running.join(',')}`;
}
