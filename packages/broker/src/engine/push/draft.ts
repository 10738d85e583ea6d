/**
 * A segment in the making: the units of one lane that go into one flush, and what is left of them while verdicts come
 * back. A frame leaves the draft when it turns out to be a duplicate, the draft ends when it is stored, empty or failed.
 *
 * Here is the second layer of deduplication: between the requests that were fused, by the same 16 bytes that the
 * database compares, so that a match here is judged as it would be there. It applies only while the queue has a
 * window; the append refuses a segment that was built without it when there is one.
 */
import type { Frame } from '../../log/frame.ts';
import { packSegment } from '../../log/segment.ts';
import type { Append, Place } from '../../store/push.ts';
import type { EngineError } from '../errors.ts';
import { type PushResult, ZERO_UUID } from '../types.ts';
import { failureText } from './failure.ts';
import { firstsOf, hashesAt } from './hash_index.ts';
import { type Follower, follow, type Unit } from './unit.ts';

/** Encrypts a payload for storage; null: this broker has no key. */
export type Seal = ((payload: Buffer) => Buffer) | null;
/** What is inside an envelope of this broker's key; null: it is none. */
export type Unseal = (payload: Buffer) => Buffer | null;

export class Draft {
  readonly units: readonly Unit[];
  /** Null: no partition is known, the draft can only fail. */
  place: Place | null;
  /** Times that the partition was not there. */
  missed = 0;
  #frames: Frame[];
  #results: PushResult[];
  #hashes: Buffer;
  #followers: Follower[] = [];
  /** Answered already: stored before, as duplicates. */
  readonly #answered = new Set<PushResult>();
  /** There are no equal hashes, or they have been taken out. */
  #distinct: boolean;
  #ended = false;
  /** A blob that was packed ahead, of which frames, as they were to be dressed. */
  #prepared: { frames: readonly Frame[]; encrypts: boolean; blob: Buffer } | null = null;

  constructor(units: readonly Unit[], place: Place | null) {
    this.units = units;
    this.place = place;
    const first = units[0]!;
    this.#distinct = units.length === 1 && first.distinct;
    if (units.length === 1) {
      this.#frames = first.frames;
      this.#results = first.results;
      this.#hashes = first.hashes;
    } else {
      this.#frames = units.flatMap((unit) => unit.frames);
      this.#results = units.flatMap((unit) => unit.results);
      this.#hashes = Buffer.concat(units.map((unit) => unit.hashes));
    }
  }

  get lane(): Pick<Unit, 'tenant' | 'queue' | 'partition' | 'key'> {
    return this.units[0]!;
  }

  get key(): string {
    return this.units[0]!.key;
  }

  /** Every payload is sealed already: it comes from the spool. */
  get sealed(): boolean {
    return this.#frames.every((frame) => frame.encrypted);
  }

  get count(): number {
    return this.#frames.length;
  }

  get frames(): readonly Frame[] {
    return this.#frames;
  }

  get hashes(): Buffer {
    return this.#hashes;
  }

  /** The segment as its queue wants it now. Packing may throw: then nothing of the draft can be stored. */
  build(
    verifiedUpto: (hashes: Buffer) => number,
    level: number,
    seal: Seal,
    unseal: Unseal = () => null,
  ): Append | Promise<Append> {
    const { partitionId, windowSeconds, encrypts } = this.place!;
    if (windowSeconds > 0 && !this.#distinct) this.#dropEqual();
    const frames = this.#dressed(encrypts, seal, unseal);
    const append = {
      partitionId,
      count: frames.length,
      verifiedUpto: windowSeconds > 0 ? verifiedUpto(this.#hashes) : -1,
      windowSeconds,
      hashes: this.#hashes,
      sealed: encrypts,
    };
    const prepared = this.#prepared;
    if (prepared !== null && prepared.frames === this.#frames && prepared.encrypts === encrypts) {
      return { ...append, blob: prepared.blob };
    }
    const blob = packSegment(frames, level);
    return Buffer.isBuffer(blob) ? { ...append, blob } : blob.then((packed) => ({ ...append, blob: packed }));
  }

  /**
   * Packs the segment ahead for a lane that is like this. Never rejects: what cannot be packed is found out when it is built.
   */
  async prepare({ windowSeconds, encrypts }: Place, level: number, seal: Seal): Promise<void> {
    if (windowSeconds > 0 && !this.#distinct) return;
    if (this.#frames.some((frame) => frame.encrypted !== encrypts) && seal === null) return;
    const frames = this.#frames;
    try {
      const dressedFrames = this.#dressed(encrypts, seal, () => null);
      this.#prepared = { frames, encrypts, blob: await packSegment(dressedFrames, level) };
    } catch {
      this.#prepared = null;
    }
  }

  /**
   * The partition was not there: what is left goes to its successor, which may belong to another queue of that name with
   * other options. So what the first queue's window took out comes back in.
   */
  moved(place: Place): void {
    this.place = place;
    this.#distinct = this.units.length === 1 && this.units[0]!.distinct;
    if (this.#followers.length === 0) return;
    this.#followers = [];
    this.#frames = this.units.flatMap((unit) => unit.frames);
    this.#results = this.units.flatMap((unit) => unit.results);
    this.#hashes = Buffer.concat(this.units.map((unit) => unit.hashes));
    this.#keep(this.#results.flatMap((result, i) => (this.#answered.has(result) ? [] : [i])));
  }

  /** All that is left is stored from `base` on. */
  stored(base: number): void {
    const partitionId = String(this.place!.partitionId);
    for (let i = 0; i < this.#results.length; i++) {
      const result = this.#results[i]!;
      result.status = 'queued';
      result.partitionId = partitionId;
      result.offset = base + i;
    }
    this.#end();
  }

  /**
   * These frames are stored already, at these offsets: answers them and goes on without them.
   * @param originals message id by offset; an offset without one is no longer readable
   */
  duplicates(
    found: readonly { index: number; offset: number }[],
    originals: ReadonlyMap<number, string>,
  ): void {
    const partitionId = String(this.place!.partitionId);
    const gone = new Set<number>();
    for (const { index, offset } of found) {
      const result = this.#results[index]!;
      gone.add(index);
      this.#answered.add(result);
      result.status = 'duplicate';
      result.messageId = originals.get(offset) ?? ZERO_UUID;
      result.partitionId = partitionId;
      result.offset = offset;
    }
    const kept: number[] = [];
    for (let i = 0; i < this.count; i++) if (!gone.has(i)) kept.push(i);
    this.#keep(kept);
    if (this.count === 0) this.#end();
  }

  /**
   * Nothing of what is left will be stored.
   * @param unkept it was for the disk, which did not take it
   */
  failed(error: EngineError, unkept: boolean = false): void {
    if (this.#ended) return;
    const text = failureText(error);
    for (const result of this.#results) {
      result.status = 'failed';
      result.error = text;
      if (unkept) result.unkept = true;
    }
    this.#end();
  }

  /** What is left is kept elsewhere until the database can take it. */
  buffered(): void {
    for (const result of this.#results) result.status = 'buffered';
    this.#end();
  }

  #dressed(encrypts: boolean, seal: Seal, unseal: Unseal): readonly Frame[] {
    return this.#frames.every((frame) => frame.encrypted === encrypts)
      ? this.#frames
      : this.#frames.map((frame) => dressed(frame, encrypts, seal, unseal));
  }

  #end(): void {
    this.#ended = true;
    this.#frames = [];
    for (const follower of this.#followers) follow(follower);
    for (const unit of this.units) unit.settle();
  }

  /** Layer 2: of equal hashes the first leads, the others follow it. */
  #dropEqual(): void {
    this.#distinct = true;
    const kept = firstsOf(this.#hashes, (i, leader) => {
      this.#followers.push({ result: this.#results[i]!, leader: this.#results[leader]! });
    });
    if (kept !== null) this.#keep(kept);
  }

  #keep(kept: readonly number[]): void {
    this.#hashes = hashesAt(this.#hashes, kept);
    this.#frames = kept.map((i) => this.#frames[i]!);
    this.#results = kept.map((i) => this.#results[i]!);
  }
}

/** As the queue wants it. What no key of ours opens stays sealed, and says so: another broker may have the key. */
function dressed(frame: Frame, encrypts: boolean, seal: Seal, unseal: Unseal): Frame {
  if (frame.encrypted === encrypts) return frame;
  if (encrypts) return { ...frame, encrypted: true, payload: seal!(frame.payload) };
  const payload = unseal(frame.payload);
  return payload === null ? frame : { ...frame, encrypted: false, payload };
}
