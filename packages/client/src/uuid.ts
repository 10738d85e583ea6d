let lastMs = 0;
let sequence = 0;

/**
 * A UUID of version 7: time in front, random behind, rising within a process. By `getRandomValues` and not
 * `randomUUID`, which browsers have only on secure pages.
 */
export function mintId(nowMs: number = Date.now()): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  if (nowMs > lastMs) {
    lastMs = nowMs;
    sequence = ((bytes[6]! & 0x07) << 8) | bytes[7]!;
  } else if (++sequence > 0xfff) {
    // The 12 bits are used up within this millisecond, or the clock stands still: borrow from the next one.
    lastMs++;
    sequence = 0;
  }
  let rest = lastMs;
  for (let at = 5; at >= 0; at--) {
    bytes[at] = rest % 256;
    rest = Math.floor(rest / 256);
  }
  bytes[6] = 0x70 | (sequence >> 8);
  bytes[7] = sequence & 0xff;
  bytes[8] = 0x80 | (bytes[8]! & 0x3f);
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
