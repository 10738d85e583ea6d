/** Words for people. Machines get the same things as they are, in JSON. */

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'] as const;

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return unit === 0 ? `${count} B` : `${value.toFixed(value < 10 ? 1 : 0)} ${UNITS[unit]}`;
}

/** A length of time with its two largest units: `340ms`, `12s`, `3m20s`, `5h`, `2d4h`. */
export function duration(seconds: number): string {
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds === 0) return '0s';
  if (seconds < 1) return `${Math.round(seconds * 1000)}ms`;
  if (seconds < 10) return `${Math.round(seconds * 10) / 10}s`;
  const whole = Math.round(seconds);
  const parts: [number, string][] = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor((whole % 86_400) / 3_600), 'h'],
    [Math.floor((whole % 3_600) / 60), 'm'],
    [whole % 60, 's'],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count}${unit}`)
    .join('');
}

/** How long ago an instant was. */
export function age(at: string | null, nowMs: number = Date.now()): string {
  return at === null ? '-' : duration(Math.max(0, (nowMs - Date.parse(at)) / 1000));
}

export function count(many: number, one: string, several: string = `${one}s`): string {
  return `${many} ${many === 1 ? one : several}`;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for.
const STEERING = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/** Text that came from outside, on a terminal: what would steer it is shown and not sent. */
export function harmless(text: string, steering: RegExp = STEERING): string {
  return text.replace(steering, (character) => {
    const code = character.charCodeAt(0);
    if (character === '\n') return '\\n';
    if (character === '\t') return '\\t';
    return `\\u${code.toString(16).padStart(4, '0')}`;
  });
}

/** The nearest of some names to one that is none of them, or null when none is near. */
export function nearest(name: string, names: readonly string[]): string | null {
  let best: string | null = null;
  let bestDistance = Math.max(1, Math.floor(name.length / 3)) + 1;
  for (const candidate of names) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const swap = row[j - 1]! + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(swap, row[j]! + 1, next[j - 1]! + 1));
    }
    row = next;
  }
  return row[other.length]!;
}
