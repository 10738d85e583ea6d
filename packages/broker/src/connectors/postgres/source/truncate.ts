/** The event of a truncated table. */
import { JsonWriter } from '../../../log/json/writer.ts';
import type { EventPlace } from './events.ts';

interface TruncateEvent {
  /** `schema.name`. */
  readonly table: string;
  readonly cascade: boolean;
  readonly restartIdentity: boolean;
}

export function truncatePayload(place: EventPlace, seq: number, event: TruncateEvent): Buffer {
  const writer = new JsonWriter(256);
  writer.ascii('{"op":"t","table":');
  writer.text(JSON.stringify(event.table));
  writer.ascii(',"key":null,"after":null,"before":null');
  place.write(writer, seq);
  // Its two members come last, behind those that all events have.
  writer.ascii(`,"cascade":${event.cascade},"restartIdentity":${event.restartIdentity}}`);
  return writer.bytes();
}
