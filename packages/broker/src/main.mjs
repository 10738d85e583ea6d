// The entry. It parses on every Node that is around, so that an old one gets a sentence and not a stack trace.
const major = Number(process.versions.node.split('.')[0]);
if (major < 24) {
  console.error(
    `Queen needs Node 24 or newer, and this is ${process.version}. Use \`npm start\`, which runs the Node 24 that npm ci installed, or call node_modules/.bin/node by its path.`,
  );
  process.exit(1);
}
await import('./main.ts');
