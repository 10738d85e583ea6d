import { test } from 'node:test';
import { useBrowser } from './browser.ts';
import { lookAtMany } from './scale.ts';

useBrowser();

test('a queue of a hundred thousand partitions', (t) => lookAtMany(t, 100_000));
