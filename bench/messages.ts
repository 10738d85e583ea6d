/**
 * What is pushed: messages of 200 bytes of JSON that a compressor finds neither empty nor random, in bodies that
 * are built once and stamped with fresh transactionIds before each use.
 */

export const PAYLOAD_BYTES = 200;

/** A small deterministic generator, so that two runs push the same bytes. */
function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const WORDS =
  'amber birch cedar delta ember flint grove haven inlet jetty knoll larch maple north ochre pine'.split(' ');

/** JSON of exactly {@link PAYLOAD_BYTES} bytes: numbers, words, and a quarter of it incompressible. */
export function payload(seed: number): string {
  const next = random(seed * 7919 + 13);
  const digits = (count: number) => Array.from({ length: count }, () => Math.floor(next() * 10)).join('');
  const hex = Array.from({ length: 50 }, () => Math.floor(next() * 16).toString(16)).join('');
  const head = `{"order":${1 + Math.floor(next() * 9)}${digits(7)},"amount":"${digits(4)}.${digits(2)}","ref":"${hex}","note":"`;
  let note = '';
  while (head.length + note.length < PAYLOAD_BYTES) note += `${WORDS[Math.floor(next() * WORDS.length)]} `;
  return `${head}${note.slice(0, PAYLOAD_BYTES - 2 - head.length)}"}`;
}

const TXN_DIGITS = 16;
const PARTITION_DIGITS = 6;
let stamped = 0;

/** The name of partition `index` of a bench queue; all have the same length. */
export function partitionName(index: number): string {
  return `p${String(index).padStart(PARTITION_DIGITS, '0')}`;
}

/** The body of one push: `count` messages to one partition. */
export class PushBody {
  readonly count: number;
  readonly #bytes: Buffer;
  readonly #txnAt: number[] = [];
  readonly #partitionAt: number[] = [];

  constructor(queue: string, count: number, seed = 0) {
    this.count = count;
    let text = '{"items":[';
    for (let i = 0; i < count; i++) {
      text += `${i === 0 ? '' : ','}{"queue":"${queue}","partition":"`;
      this.#partitionAt.push(text.length);
      text += `${partitionName(0)}","transactionId":"`;
      this.#txnAt.push(text.length);
      text += `${'0'.repeat(TXN_DIGITS)}","payload":${payload(seed * 1000 + i)}}`;
    }
    this.#bytes = Buffer.from(`${text}]}`);
  }

  /** The bytes, with transactionIds that nobody has used. The previous ones are gone: one request at a time. */
  stamp(partition: number): Buffer {
    const name = partitionName(partition);
    return this.#stamp(() => name);
  }

  /** The same, each message to the partition after that of the one before. */
  stampInTurn(first: number, partitions: number): Buffer {
    return this.#stamp((i) => partitionName((first + i) % partitions));
  }

  #stamp(partition: (index: number) => string): Buffer {
    for (let i = 0; i < this.count; i++) {
      this.#bytes.write(String(++stamped).padStart(TXN_DIGITS, '0'), this.#txnAt[i]!, 'latin1');
      this.#bytes.write(partition(i), this.#partitionAt[i]!, 'latin1');
    }
    return this.#bytes;
  }
}

/** Throws unless the broker stored every message of a push. Parses one answer in fifty, looks at all of them. */
export function assertStored(answer: { status: number; body: Buffer }, nth: number): void {
  const text = () => answer.body.toString().slice(0, 500);
  if (answer.status !== 201) throw new Error(`push answered ${answer.status}: ${text()}`);
  if (nth % 50 === 0) {
    const items = JSON.parse(answer.body.toString()) as { status: string }[];
    if (items.some((item) => item.status !== 'queued')) throw new Error(`a push was not stored: ${text()}`);
  } else if (!answer.body.includes('"queued"')) {
    throw new Error(`a push was not stored: ${text()}`);
  }
}
