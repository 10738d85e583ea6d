/** How the API of connectors says no, by the codes of its routes. */
import { EngineError, refused } from '../../../engine/errors.ts';

export function notFound(name: string): EngineError {
  return refused('connector_not_found', `there is no connector ${name}`);
}

export function badName(): EngineError {
  return refused(
    'bad_connector_name',
    'a connector name is 1 to 48 lower-case letters, digits, hyphens and underscores and begins with a letter or a digit',
    'name',
  );
}

export function invalid(sentence: string, field: string): EngineError {
  return refused('invalid_connector', sentence, field);
}

export function egressRefused(sentence: string): EngineError {
  return refused('egress_refused', `connection.host: ${sentence}`, 'connection.host');
}

export function kindChange(name: string, stored: string): EngineError {
  return refused(
    'kind_change',
    `connector ${name} is a ${stored}: delete it first, or use another name`,
    'kind',
  );
}

export function encryptionRequired(): EngineError {
  return refused(
    'encryption_required',
    'connection.password: this broker has no QUEEN_ENCRYPTION_KEY to seal it with (64 hex digits, the same on every node)',
    'connection.password',
  );
}

export function sealFailed(cause: unknown): EngineError {
  return new EngineError('refused', 'seal_failed', 'the password could not be sealed', { cause });
}

export function documentTooLarge(bytes: number, max: number): EngineError {
  return refused('document_too_large', `the stored document has ${bytes} bytes, at most ${max} are kept`);
}

export function conflict(name: string): EngineError {
  return refused(
    'conflict',
    `connector ${name} was changed by somebody else meanwhile: read it and try again`,
  );
}

export function notASource(name: string): EngineError {
  return refused('not_a_source', `connector ${name} is a sink: only a source can be resynchronized`);
}

export function beingDeleted(name: string): EngineError {
  return refused('deleting', `connector ${name} is being deleted: a PUT brings it back`);
}

export function unreadable(name: string, why: string): EngineError {
  return refused(
    'unreadable_document',
    `the stored document of connector ${name} cannot be read (${why}): PUT it anew`,
  );
}
