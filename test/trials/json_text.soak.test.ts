import { test } from 'node:test';
import { oddJson } from './json_text.ts';

test('NULs and halves of characters in json: kept in queues and copies, refused by jsonb, one by one', (t) =>
  oddJson(t, { rows: 2_000, oddEvery: 20, withinMs: 240_000 }));
