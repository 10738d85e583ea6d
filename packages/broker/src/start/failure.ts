import { EngineError } from '../engine/errors.ts';
import { EmbeddedError } from '../store/embedded/failure.ts';
import { ServerRequirementError, StoreError } from '../store/errors.ts';
import { SchemaError } from '../store/schema.ts';
import { ConfigFaults } from './database.ts';

/** Why the start failed, for the person who started it. A stack only for what nobody foresaw. */
export function sentenceOf(error: unknown): string {
  if (error instanceof ConfigFaults) return error.faults.join('\nFATAL: ');
  if (
    error instanceof EmbeddedError ||
    (error instanceof EngineError && error.kind === 'refused') ||
    error instanceof SchemaError ||
    error instanceof ServerRequirementError
  ) {
    return error.message;
  }
  if (error instanceof StoreError) return `the database does not answer as needed: ${error.message}`;
  if (!(error instanceof Error)) return String(error);
  if ('code' in error && 'syscall' in error && error.syscall === 'listen') {
    const { code, address, port } = error as NodeJS.ErrnoException & { address?: string; port?: number };
    const where = `port ${port} of ${address}`;
    if (code === 'EADDRINUSE') return `${where} is taken by another process; choose another one with PORT`;
    if (code === 'EACCES') return `this user may not listen on ${where}; choose a port above 1023 with PORT`;
    if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
      return `this machine has no address ${address}; choose another one with QUEEN_BIND_ADDR`;
  }
  return error.stack ?? error.message;
}
