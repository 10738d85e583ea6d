/** What a server must be for Queen to run on it, checked once at boot. */
import type { Connection } from './connection.ts';
import { ServerRequirementError } from './errors.ts';

const VERSION_MIN = 150_000;

const VERSION = {
  name: '',
  text: `SELECT current_setting('server_version_num')::int AS version,
                current_setting('server_version') AS version_text,
                current_setting('server_encoding') AS encoding`,
};

interface VersionRow {
  version: number;
  version_text: string;
  encoding: string;
}

/**
 * Throws a ServerRequirementError when the server cannot carry Queen. That a pooler in the way hands one
 * server connection to several clients is found earlier, when the first connection is made (pooler.ts).
 */
export async function checkServer(connection: Connection): Promise<void> {
  const rows = await connection.run(VERSION, [], { timeoutMs: 10_000, position: 'inside' });
  judgeServer(rows[0] as VersionRow);
}

export function judgeServer(row: VersionRow): void {
  if (row.version < VERSION_MIN) {
    throw new ServerRequirementError(
      'server_too_old',
      `PostgreSQL ${row.version_text} is too old for Queen: version 15 or newer is needed`,
    );
  }
  if (row.encoding !== 'UTF8') {
    throw new ServerRequirementError(
      'server_encoding',
      `the encoding of the database is ${row.encoding}: Queen needs a database in UTF8`,
    );
  }
}
