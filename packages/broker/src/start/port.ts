import { createServer } from 'node:net';

/** Rejects, as the listener would, when nobody may listen there now. Somebody else may still come first. */
export async function assertFree(port: number, host: string): Promise<void> {
  if (port === 0) return;
  const probe = createServer();
  await new Promise<void>((resolve, reject) => {
    probe.once('error', reject);
    probe.listen({ port, host, exclusive: true }, resolve);
  });
  await new Promise<void>((resolve) => {
    probe.close(() => resolve());
  });
}
