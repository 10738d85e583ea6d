/** Positions in the write-ahead log: a bigint inside, PostgreSQL's spelling (`16/B374D848`) outside. */
const PATTERN = /^([0-9A-Fa-f]{1,8})\/([0-9A-Fa-f]{1,8})$/;
const HALF_BITS = 32n;
const HALF_MASK = 0xffffffffn;

/** Null: not an LSN. */
export function parseLsn(text: string): bigint | null {
  const match = PATTERN.exec(text);
  return match === null ? null : (BigInt(`0x${match[1]}`) << HALF_BITS) | BigInt(`0x${match[2]}`);
}

/** As PostgreSQL prints it: upper-case hex without padding. */
export function formatLsn(lsn: bigint): string {
  return `${(lsn >> HALF_BITS).toString(16)}/${(lsn & HALF_MASK).toString(16)}`.toUpperCase();
}

/** Sixteen upper-case hex digits: texts that sort as the positions do. */
export function lsnDigits(lsn: bigint): string {
  return lsn.toString(16).toUpperCase().padStart(16, '0');
}
