/** What a sink does with messages, settled once for a state of the table: reading them, and how they become statements. */
import type { SinkSettings } from '../document/types.ts';
import type { Writing } from './application.ts';
import { EventReader } from './event_reader.ts';
import type { Message } from './message.ts';
import type { Operation } from './operations.ts';
import { RowReader } from './row_reader.ts';
import { StatementReader } from './statement_reader.ts';
import { StatementTexts } from './statements.ts';
import type { Target } from './target.ts';

export interface Work {
  readonly reader: { read(message: Message): Operation };
  readonly writing: Writing;
  /** Operations may be put into another order where they do not touch the same row. */
  readonly layered: boolean;
  /** Reads events of a source; null in other modes. */
  readonly events: EventReader | null;
  /** The statement is not ours. */
  readonly foreign: boolean;
}

/** @param target null in mode `sql` */
export function workOf(settings: SinkSettings, target: Target | null): Work {
  if (target === null) {
    return {
      reader: new StatementReader(settings.params!),
      writing: { statement: settings.statement! },
      layered: false,
      events: null,
      foreign: true,
    };
  }
  const events = settings.mode === 'cdc' ? new EventReader(target) : null;
  return {
    reader: events ?? new RowReader(target, settings.mode as 'append' | 'upsert'),
    writing: { texts: new StatementTexts(target, events === null ? 'jsonb' : 'json') },
    events,
    layered: target.key.length > 0 && target.keyTextsDecide,
    foreign: false,
  };
}
