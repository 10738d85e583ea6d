/**
 * The embedded server could not be started or kept. The message is a whole sentence for the person in front
 * of the terminal: what is wrong, where, and what to do. `code` is for programs and tests.
 */
export type EmbeddedFailureCode =
  | 'directory_in_use'
  | 'directory_unusable'
  | 'not_a_cluster'
  | 'other_major'
  | 'disk_full'
  | 'no_binaries'
  | 'account'
  | 'initdb'
  | 'start';

export class EmbeddedError extends Error {
  readonly code: EmbeddedFailureCode;

  constructor(code: EmbeddedFailureCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'EmbeddedError';
    this.code = code;
  }
}

/** What other modules tell about the embedded server; pino fits, and so does a recorder in a test. */
export interface EmbeddedLog {
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

/**
 * Turns what the server's programs said into one sentence. The full text is kept at the end, since a known
 * phrase in it may be a consequence and not the cause.
 */
export function explain(code: 'initdb' | 'start', directory: string, output: string): EmbeddedError {
  const tail = output.trimEnd().split('\n').slice(-12).join('\n');
  const said = tail === '' ? '' : ` The server said:\n${tail}`;
  if (/No space left on device|Disk quota exceeded/i.test(output)) return diskFull(directory, said);
  if (/Permission denied|Operation not permitted|has wrong ownership|invalid permissions/i.test(output)) {
    return new EmbeddedError(
      'directory_unusable',
      `The embedded PostgreSQL may not use ${directory}: its owner or its permissions do not fit the account that the server runs under.${said}`,
    );
  }
  const what = code === 'initdb' ? 'could not create a database in' : 'did not start on the database in';
  return new EmbeddedError(code, `The embedded PostgreSQL ${what} ${directory}.${said}`);
}

/** The same for a system call of ours that failed; anything else passes through. */
export function explainErrno(error: unknown, directory: string): unknown {
  const { code, message } = error as NodeJS.ErrnoException;
  if (error instanceof EmbeddedError) return error;
  if (code === 'ENOSPC' || code === 'EDQUOT') return diskFull(directory, ` (${message})`);
  if (code !== 'EACCES' && code !== 'EPERM' && code !== 'EROFS') return error;
  return new EmbeddedError(
    'directory_unusable',
    `The data directory ${directory} cannot be used: ${message}. Point QUEEN_DATA_DIR at a directory that this user may write.`,
    error,
  );
}

function diskFull(directory: string, detail: string): EmbeddedError {
  return new EmbeddedError(
    'disk_full',
    `The disk that holds ${directory} is full. Free some space, or point QUEEN_DATA_DIR at a larger disk, and start again; what is stored is intact.${detail}`,
  );
}
