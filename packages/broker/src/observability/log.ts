/**
 * The broker's log: pino, one event a line, to standard output. Readable lines by default, JSON for collectors.
 * Nothing here may ever be given a password, a token or a connection string.
 */
import { type Logger, pino } from 'pino';

export type Log = Logger;

export interface LogOptions {
  /** A pino level: trace, debug, info, warn, error, fatal or silent. */
  level: string;
  json: boolean;
  /** Identity of this process; on every JSON line. */
  serverId: string;
  /** Where lines go; standard output when absent. */
  write?: (line: string) => void;
}

export function createLog(options: LogOptions): Log {
  const write = options.write ?? ((line: string) => void process.stdout.write(line));
  const settings = {
    level: options.level,
    base: { server: options.serverId },
    serializers: { err: describeError },
  };
  if (options.json) {
    const iso = { ...settings, timestamp: pino.stdTimeFunctions.isoTime, formatters: { level: levelName } };
    return pino(iso, { write });
  }
  return pino(settings, { write: (line) => write(readable(line)) });
}

/** A log that drops everything, for tests and tools. */
export const silentLog: Log = pino({ level: 'silent' });

const CAUSES_MAX = 10;

/** pino's description, in which nothing is said twice: most of our errors quote their cause already. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  let message = error.message;
  let { cause } = error;
  for (let depth = 0; depth < CAUSES_MAX && cause instanceof Error; depth++, cause = cause.cause) {
    if (!message.includes(cause.message)) message += `: ${cause.message}`;
  }
  return { ...pino.stdSerializers.err(error), message };
}

function levelName(label: string): { level: string } {
  return { level: label };
}

/** Codes of a StoreError that says that the database is away: where in the program that was noticed tells nothing. */
const DATABASE_AWAY: ReadonlySet<unknown> = new Set(['connection', 'pool']);

/** Turns one of pino's JSON lines into `08:21:07.412 warn  text key=value`, stack traces on lines of their own. */
export function readable(line: string): string {
  let event: Record<string, unknown>;
  try {
    event = JSON.parse(line);
  } catch {
    return line;
  }
  const { time, level, msg, server: _server, err, ...facts } = event;
  const clock = new Date(typeof time === 'number' ? time : 0).toISOString().slice(11, 23);
  const label = (pino.levels.labels[level as number] ?? 'log').padEnd(5);
  let text = `${clock} ${label} ${msg ?? ''}`;
  for (const [key, value] of Object.entries(facts)) text += ` ${key}=${fact(value)}`;
  if (typeof err === 'object' && err !== null) {
    const { message, stack, code } = err as { message?: string; stack?: string; code?: unknown };
    text += ` error=${fact(message ?? 'unknown')}`;
    if (stack !== undefined && !DATABASE_AWAY.has(code)) text += `\n${stack.replace(/^/gm, '    ')}`;
  }
  return `${text}\n`;
}

function fact(value: unknown): string {
  if (typeof value === 'string') return /^[\w.:/@+-]+$/.test(value) ? value : JSON.stringify(value);
  return JSON.stringify(value) ?? String(value);
}
