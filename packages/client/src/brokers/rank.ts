/**
 * Rendezvous hashing: for a key every broker gets a score, and the order of the scores is the order in which brokers are
 * asked. Each client computes the same one, keys spread evenly, and the loss of a broker moves only its own keys.
 */
export function rank(brokers: readonly string[], key: string): string[] {
  return brokers
    .map((broker) => ({ broker, score: score(broker, key) }))
    .sort((one, other) => other.score - one.score || (one.broker < other.broker ? -1 : 1))
    .map(({ broker }) => broker);
}

/** 32 bits of FNV-1a over both, stirred with the finalizer of MurmurHash3: FNV alone favours some brokers. */
function score(broker: string, key: string): number {
  let hash = 0x811c9dc5;
  const text = `${broker}\u001f${key}`;
  for (let at = 0; at < text.length; at++) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
