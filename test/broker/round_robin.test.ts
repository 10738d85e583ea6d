/** What clients see of one broker they see of two behind a round-robin: some of the files, `npm run test:two` for all. */
process.env.QUEEN_TEST_BROKERS = '2';
await import('./payloads.test.ts');
await import('./transaction.test.ts');
