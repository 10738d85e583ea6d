import { after } from 'node:test';
import type { Cleanup } from './cleanup.ts';

const hooks: (() => Promise<void>)[] = [];

/**
 * The whole file, as something that has an end. A hook that is registered within a test would be that test's; and this has
 * to be imported before the kit, whose own hook ends the server of the databases.
 */
export const file: Cleanup = { after: (hook) => void hooks.push(hook) };

after(async () => {
  for (const hook of hooks) await hook();
});
