/** What a server must be for Queen to run on it, checked once at boot. */
import type { Connection } from './connection.ts';
import type { Database } from './database.ts';
import { statement } from './database.ts';

const VERSION_MIN = 150_000;

/** A fact about the server that no retry changes; the message is a sentence for the operator. */
export class ServerRequirementError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.name = 'ServerRequirementError';
    this.code = code;
  }
}

const VERSION_TEXT = `SELECT current_setting('server_version_num')::int AS version,
  current_setting('server_version') AS version_text, current_setting('server_encoding') AS encoding`;
const VERSION = statement('server_version', VERSION_TEXT);

interface VersionRow {
  version: number;
  version_text: string;
  encoding: string;
}

/** Throws a ServerRequirementError when the server cannot carry Queen. */
export async function checkServer(database: Database): Promise<void> {
  const [row] = await database.query<VersionRow>(VERSION);
  judge(row!);
}

export async function checkVersion(connection: Connection): Promise<void> {
  const rows = await connection.run({ name: '', text: VERSION_TEXT }, [], {
    timeoutMs: 10_000,
    position: 'inside',
  });
  judge(rows[0] as VersionRow);
}

function judge(row: VersionRow): void {
  if (row.version < VERSION_MIN) {
    throw new ServerRequirementError(
      'server_too_old',
      `PostgreSQL ${row.version_text} is too old for Queen: version 15 or newer is needed`,
    );
  }
  if (row.encoding !== 'UTF8') {
    throw new ServerRequirementError(
      'server_encoding',
      `the database's encoding is ${row.encoding}: Queen needs a database in UTF8`,
    );
  }
}
