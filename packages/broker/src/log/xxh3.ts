/**
 * XXH3-128 (seed 0, default secret) of inputs of 9 to 64 bytes, in 32-bit arithmetic. Crossing into WebAssembly three
 * times for one short text costs several times more than hashing it; a transactionId is mostly a UUID or shorter.
 *
 * A 64-bit number is a pair of signed 32-bit halves here. Functions that have to answer two halves leave them in module
 * variables, since an object for each product would cost more than the product. Nothing awaits in between.
 *
 * Rejected: BigInt (an allocation an operation), and doing the same for other lengths: they are rare, and every branch
 * of the algorithm is another one to get wrong. Source: xxHash specification 0.2.0, "XXH3 algorithm".
 */

export const XXH3_SHORT_MIN = 9;
export const XXH3_SHORT_MAX = 64;

/** The first 64 bytes of the default secret, as little-endian words. */
const SECRET = new Int32Array([
  0x396cfeb8, 0xbe4ba423, 0x2c81017c, 0x1cad21f7, 0xe96dd4de, 0xdb979083, 0xa4a44072, 0x1f67b3b7, 0x4ee679cb,
  0x78e5c0cc, 0x7dd05a82, 0x2172ffcc, 0x744608b8, 0x8e2443f7, 0xe69035e0, 0x4c263a81,
]);

const PRIME1_HI = 0x9e3779b1;
const PRIME1_LO = 0x85ebca87;
const PRIME2_HI = 0xc2b2ae3d;
const PRIME2_LO = 0x27d4eb4f;
const PRIME4_HI = 0x85ebca77;
const PRIME4_LO = 0xc2b2ae63;
const PRIME32_2 = 0x85ebca77;
const AVALANCHE_HI = 0x16566791;
const AVALANCHE_LO = 0x9e3779f9;

let high = 0;
let low = 0;
/** The upper 64 bits of a 128-bit product; the lower ones are in `high` and `low`. */
let topHigh = 0;
let topLow = 0;

/** Writes the hash of `bytes[0..length)` into `out` at `at`, 16 bytes big-endian. `length` within the two bounds above. */
export function xxh3Short(bytes: DataView, length: number, out: Uint8Array, at: number): void {
  if (length <= 16) upTo16(bytes, length, out, at);
  else upTo64(bytes, length, out, at);
}

function upTo16(bytes: DataView, length: number, out: Uint8Array, at: number): void {
  const loLow = bytes.getInt32(0, true);
  const loHigh = bytes.getInt32(4, true);
  let hiLow = bytes.getInt32(length - 8, true);
  let hiHigh = bytes.getInt32(length - 4, true);
  multiply128(
    loHigh ^ hiHigh ^ SECRET[9]! ^ SECRET[11]!,
    loLow ^ hiLow ^ SECRET[8]! ^ SECRET[10]!,
    PRIME1_HI,
    PRIME1_LO,
  );
  let lowLow = low;
  let lowHigh = (high + ((length - 1) << 22)) | 0;
  hiLow ^= SECRET[12]! ^ SECRET[14]!;
  hiHigh ^= SECRET[13]! ^ SECRET[15]!;
  let upLow = topLow;
  let upHigh = topHigh;
  // + the input, + its lower half times (PRIME32_2 - 1)
  multiply64(0, hiLow, 0, PRIME32_2 - 1);
  add(hiHigh, hiLow, high, low);
  add(upHigh, upLow, high, low);
  upLow = low;
  upHigh = high;
  lowLow ^= swap(upHigh);
  lowHigh ^= swap(upLow);
  multiply64(upHigh, upLow, PRIME2_HI, PRIME2_LO);
  const addHigh = high;
  const addLow = low;
  multiply128(lowHigh, lowLow, PRIME2_HI, PRIME2_LO);
  lowHigh = high;
  lowLow = low;
  add(topHigh, topLow, addHigh, addLow);
  avalanche(high, low);
  write(out, at, high, low);
  avalanche(lowHigh, lowLow);
  write(out, at + 8, high, low);
}

function upTo64(bytes: DataView, length: number, out: Uint8Array, at: number): void {
  multiply64(0, length, PRIME1_HI, PRIME1_LO);
  let aHigh = high;
  let aLow = low;
  let bHigh = 0;
  let bLow = 0;
  for (let round = (length - 1) >> 5; round >= 0; round--) {
    const front = round * 16;
    const back = length - 16 - front;
    fold(bytes, front, round * 8);
    add(aHigh, aLow, high, low);
    aHigh = high;
    aLow = low;
    sum(bytes, back);
    aHigh ^= high;
    aLow ^= low;
    fold(bytes, back, round * 8 + 4);
    add(bHigh, bLow, high, low);
    bHigh = high;
    bLow = low;
    sum(bytes, front);
    bHigh ^= high;
    bLow ^= low;
  }
  multiply64(aHigh, aLow, PRIME1_HI, PRIME1_LO);
  const a1High = high;
  const a1Low = low;
  multiply64(bHigh, bLow, PRIME4_HI, PRIME4_LO);
  add(high, low, a1High, a1Low);
  const sumHigh = high;
  const sumLow = low;
  multiply64(0, length, PRIME2_HI, PRIME2_LO);
  add(high, low, sumHigh, sumLow);
  avalanche(high, low);
  // Negated.
  const negatedLow = -low | 0;
  write(out, at, (low === 0 ? -high : ~high) | 0, negatedLow);
  add(aHigh, aLow, bHigh, bLow);
  avalanche(high, low);
  write(out, at + 8, high, low);
}

/** The two halves of the 16 bytes at `at`, mixed with the secret's words from `word` on, multiplied and folded. */
function fold(bytes: DataView, at: number, word: number): void {
  multiply128(
    bytes.getInt32(at + 4, true) ^ SECRET[word + 1]!,
    bytes.getInt32(at, true) ^ SECRET[word]!,
    bytes.getInt32(at + 12, true) ^ SECRET[word + 3]!,
    bytes.getInt32(at + 8, true) ^ SECRET[word + 2]!,
  );
  high ^= topHigh;
  low ^= topLow;
}

function sum(bytes: DataView, at: number): void {
  add(
    bytes.getInt32(at + 4, true),
    bytes.getInt32(at, true),
    bytes.getInt32(at + 12, true),
    bytes.getInt32(at + 8, true),
  );
}

function add(aHigh: number, aLow: number, bHigh: number, bLow: number): void {
  const lower = (aLow + bLow) | 0;
  high = (aHigh + bHigh + (lower >>> 0 < aLow >>> 0 ? 1 : 0)) | 0;
  low = lower;
}

/** The upper half of a product of two unsigned 32-bit numbers. */
function upper(a: number, b: number): number {
  const a0 = a & 0xffff;
  const a1 = a >>> 16;
  const b0 = b & 0xffff;
  const b1 = b >>> 16;
  // A product of two 16-bit numbers leaves room for two more of 16 bits: neither sum runs over.
  const mid = (Math.imul(a1, b0) + (Math.imul(a0, b0) >>> 16)) >>> 0;
  const cross = (Math.imul(a0, b1) + (mid & 0xffff)) >>> 0;
  return (Math.imul(a1, b1) + (mid >>> 16) + (cross >>> 16)) | 0;
}

/** Modulo 2^64. */
function multiply64(aHigh: number, aLow: number, bHigh: number, bLow: number): void {
  high = (upper(aLow, bLow) + Math.imul(aHigh, bLow) + Math.imul(aLow, bHigh)) | 0;
  low = Math.imul(aLow, bLow);
}

function multiply128(aHigh: number, aLow: number, bHigh: number, bLow: number): void {
  const llHigh = upper(aLow, bLow) >>> 0;
  const lhLow = Math.imul(aLow, bHigh) >>> 0;
  const hlLow = Math.imul(aHigh, bLow) >>> 0;
  // Sums of up to four 32-bit numbers are exact in a double.
  const second = llHigh + lhLow + hlLow;
  const third =
    (upper(aLow, bHigh) >>> 0) +
    (upper(aHigh, bLow) >>> 0) +
    (Math.imul(aHigh, bHigh) >>> 0) +
    (second >= 0x2_0000_0000 ? 2 : second >= 0x1_0000_0000 ? 1 : 0);
  low = Math.imul(aLow, bLow);
  high = second | 0;
  topLow = third | 0;
  topHigh =
    (upper(aHigh, bHigh) +
      (third >= 0x3_0000_0000 ? 3 : third >= 0x2_0000_0000 ? 2 : third >= 0x1_0000_0000 ? 1 : 0)) |
    0;
}

function avalanche(aHigh: number, aLow: number): void {
  multiply64(aHigh, aLow ^ (aHigh >>> 5), AVALANCHE_HI, AVALANCHE_LO);
  low ^= high;
}

function swap(word: number): number {
  return (word << 24) | ((word & 0xff00) << 8) | ((word >>> 8) & 0xff00) | (word >>> 24);
}

function write(out: Uint8Array, at: number, upperHalf: number, lowerHalf: number): void {
  out[at] = upperHalf >>> 24;
  out[at + 1] = upperHalf >>> 16;
  out[at + 2] = upperHalf >>> 8;
  out[at + 3] = upperHalf;
  out[at + 4] = lowerHalf >>> 24;
  out[at + 5] = lowerHalf >>> 16;
  out[at + 6] = lowerHalf >>> 8;
  out[at + 7] = lowerHalf;
}
