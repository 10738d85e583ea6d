/** What pages that show connectors have in common. */
import type { Connector, ConnectorStatus, Phase } from '../api/connectors.ts';
import { duration } from '../format.ts';
import { Badge, type Tone } from './tiles.tsx';

export const connectorPath = (name: string) => `/connectors/${encodeURIComponent(name)}`;
/** No connector is called so. */
export const NEW_CONNECTOR = '/connectors/-/new';

const PHASES: Record<Phase, readonly [string, Tone | 'accent' | undefined]> = {
  streaming: ['Streaming', 'good'],
  running: ['Running', 'good'],
  snapshot: ['Copying', 'accent'],
  connecting: ['Connecting', 'accent'],
  starting: ['Starting', 'accent'],
  standby: ['Standby', undefined],
  waiting_for_slot: ['Waiting for its slot', 'warn'],
  error: ['Error', 'bad'],
  disabled: ['Paused', undefined],
  stopped: ['Stopped', undefined],
  torn_down: ['Taken down', undefined],
  unknown: ['Not seen yet', undefined],
};

export function PhaseBadge({ of }: { of: Connector }) {
  if (of.deleting !== undefined) return <Badge tone="warn">Being deleted</Badge>;
  const [text, tone] = PHASES[of.status.phase] ?? [of.status.phase, undefined];
  return <Badge tone={tone}>{text}</Badge>;
}

/** What the phase means, in a sentence or two. */
export function phaseSentence(connector: Connector): string {
  const { status, deleting, kind, source } = connector;
  if (deleting !== undefined) {
    const taken = source?.managePublication ? 'the slot and the publication' : 'the slot';
    return `Its owner drops ${taken} at the database, and then the connector is gone.`;
  }
  switch (status.phase) {
    case 'streaming':
      return 'Changes come into the queues as they are committed.';
    case 'running':
      return 'Messages go into the table as they come.';
    case 'snapshot':
      return 'The rows that are there already are copied; what is changed meanwhile is streamed beside.';
    case 'connecting':
      return 'It connects to the database.';
    case 'starting':
      return 'It starts.';
    case 'standby':
      return `${ownerOf(status)} runs it, and what that one does is not seen here. The broker that you ask takes over when it stops.`;
    case 'waiting_for_slot':
      return `Somebody else reads from its replication slot${status.activePid === undefined ? '' : ` (process ${status.activePid} of the database)`}. It begins once the slot is free.`;
    case 'error':
      return status.retryInMs === undefined
        ? 'It does not run until its document is changed.'
        : `It does not run, and is tried again in ${duration(Math.ceil(status.retryInMs / 1000))}.`;
    case 'disabled':
      return kind === 'source'
        ? 'It is paused. Its slot keeps the WAL that it will need, which takes room on the disk of the database.'
        : 'It is paused. Messages wait in the queue.';
    case 'unknown':
      return 'The broker that was asked has not read the document yet, or runs no connectors.';
    default:
      return 'It is stopped.';
  }
}

function ownerOf({ owner }: ConnectorStatus): string {
  return owner === undefined ? 'Another broker' : `The broker ${owner}`;
}

/** Tables or queues, and the database that the tables are in. */
export interface End {
  what: string;
  where: string | null;
}

/** From where to where, in a few words. */
export function ways({ kind, connection, source, sink }: Connector): { from: End; to: End } {
  const where =
    connection === undefined ? '?' : `${connection.database} on ${connection.host}:${connection.port}`;
  if (kind === 'sink') {
    return { from: { what: sink?.queue ?? '?', where: null }, to: { what: sink?.table ?? '?', where } };
  }
  const tables = source?.tables ?? [];
  const queues = [...new Set(tables.map(({ queue }) => queue))];
  return {
    from: { what: few(tables.map(({ table }) => table)), where },
    to: { what: few(queues), where: null },
  };
}

function few(names: readonly string[]): string {
  return names.length <= 2 ? names.join(' and ') : `${names[0]} and ${names.length - 1} more`;
}
