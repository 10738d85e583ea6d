import type { AckItem } from '../types.ts';

/** The items of one request that are decided together: one partition, one lease id. */
export interface AckGroup {
  readonly tenant: string;
  readonly partitionId: number;
  readonly group: string;
  /** '': lease-less. */
  readonly lease: string;
  readonly items: AckItem[];
  /** Where in the request each item stands. */
  readonly indexes: number[];
  /**
   * 0 for the first group of a partition, 1 for the next: they share a consumer row, so each is decided (and its dead
   * letter handed off) before the next one looks.
   */
  readonly wave: number;
}

/** A decimal string as the broker writes it: no sign, no leading zero. Null for anything else. */
export function parsePartitionId(text: string): number | null {
  if (!/^[1-9][0-9]{0,15}$/.test(text)) return null;
  const id = Number(text);
  return Number.isSafeInteger(id) ? id : null;
}

/**
 * Text for a text column: PostgreSQL has no NUL, and one in a lease id or an error text must not fail the statement
 * that carries everybody else's acks. No stored id holds a U+FFFD, so what matched nothing still does.
 */
export function storableText(text: string): string {
  return text.includes('\u0000') ? text.replaceAll('\u0000', '\ufffd') : text;
}

/**
 * Sorts the items into groups, ascending by wave, then partition. `malformed`: indexes of items whose partition id is
 * none.
 */
export function groupItems(
  tenant: string,
  group: string,
  items: readonly AckItem[],
): { groups: AckGroup[]; malformed: number[] } {
  const byKey = new Map<string, AckGroup>();
  const waves = new Map<number, number>();
  const malformed: number[] = [];
  const consumer = storableText(group);
  items.forEach((item, index) => {
    const partitionId = parsePartitionId(item.partitionId);
    if (partitionId === null) {
      malformed.push(index);
      return;
    }
    const lease = item.leaseId ?? '';
    const key = `${partitionId}\u001f${lease}`;
    let found = byKey.get(key);
    if (found === undefined) {
      const wave = waves.get(partitionId) ?? 0;
      waves.set(partitionId, wave + 1);
      found = {
        tenant,
        partitionId,
        group: consumer,
        lease: storableText(lease),
        items: [],
        indexes: [],
        wave,
      };
      byKey.set(key, found);
    }
    found.items.push(item);
    found.indexes.push(index);
  });
  const groups = [...byKey.values()].sort((a, b) => a.wave - b.wave || a.partitionId - b.partitionId);
  return { groups, malformed };
}
