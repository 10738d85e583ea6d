/** The schema that is shown of a connector document is made of its readers: they agree about what lies around a document. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Ajv2020 from 'ajv/dist/2020.js';
import { parseWritten, WRITTEN_SCHEMA } from '../../../src/connectors/postgres/document/parse.ts';
import { DocumentFault } from '../../../src/connectors/postgres/document/reading.ts';
import { neighbours } from '../../http/schema_values.ts';

const connection = {
  host: 'db.example',
  port: 5433,
  database: 'shop',
  user: 'queen',
  connectTimeoutMs: 5000,
};
const DOCUMENTS = [
  {
    kind: 'source',
    enabled: true,
    connection,
    source: {
      tables: [{ table: 'public.orders', queue: 'orders', partitionBy: 'single' }],
      snapshot: 'never',
      snapshotChunkRows: 100,
      maxBundleMessages: 50_000,
      lingerMs: 0,
      onTruncate: 'skip',
      managePublication: false,
    },
  },
  {
    kind: 'sink',
    connection,
    sink: {
      queue: 'orders',
      table: 'orders',
      mode: 'upsert',
      subscriptionMode: 'new',
      key: ['id'],
      metadata: { offset: 'at' },
      batch: 10_000,
      workers: 1,
      createProgressTable: false,
    },
  },
];
/** A URL may have what is missing, and what a text may contain is beyond a schema. */
const BEYOND = /^connection\.(host|database|user): is missing$|must not contain|must be a host name/;

test('a document is refused by its readers when the schema refuses it, and otherwise for what no schema can say', () => {
  const ajv = new Ajv2020.default({ strict: true, strictRequired: false });
  const check = ajv.compile(structuredClone(WRITTEN_SCHEMA));
  let refused = 0;
  let taken = 0;
  for (const document of DOCUMENTS) {
    assert.ok(check(document), JSON.stringify(check.errors));
    parseWritten(document, 'name');
    for (const other of neighbours(document)) {
      const text = JSON.stringify(other).slice(0, 400);
      const allowed = check(other);
      let fault: DocumentFault | null = null;
      try {
        parseWritten(other, 'name');
      } catch (error) {
        assert.ok(error instanceof DocumentFault, `${text}: ${error}`);
        fault = error;
      }
      if (!allowed)
        assert.ok(fault !== null, `${text} is taken, and the schema says ${ajv.errorsText(check.errors)}`);
      else if (fault !== null) assert.match(fault.message, BEYOND, `${text}: the schema allows it`);
      if (fault === null) taken++;
      else refused++;
    }
  }
  assert.ok(refused > 300 && taken > 20, `${refused} refused, ${taken} taken`);
});
