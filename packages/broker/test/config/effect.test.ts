import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import type { Setting } from '../../src/config/kinds.ts';
import { planPool } from '../../src/config/pool.ts';
import { SETTINGS } from '../../src/config/settings.ts';
import { type Config, loadConfig } from '../../src/config.ts';
import { engineSettings } from '../../src/start/engine.ts';

/** Notes `group.key` for whatever is read through it. */
function watched(config: Config, read: Set<string>): Config {
  const noting = (value: object, path: string): object =>
    new Proxy(value, {
      get(target, key) {
        const found = Reflect.get(target, key);
        const at = path === '' ? String(key) : `${path}.${String(key)}`;
        read.add(at);
        return path === '' && typeof found === 'object' && found !== null ? noting(found, at) : found;
      },
    });
  return noting(config, '') as Config;
}

test('a setting is used by somebody, or says that it has no effect', () => {
  const loaded = loadConfig({}, { cores: 2, memoryBytes: 2 ** 33 });
  assert.ok(loaded.ok);
  const read = new Set<string>();
  const config = watched(loaded.config, read);
  const plan = planPool(config, 2, null);
  assert.ok(!('faults' in plan));
  engineSettings(config, plan);

  // What the start and the manager of the connectors use, by their text: these groups are not about the engine.
  const files = [
    'main.ts',
    'config.ts',
    'config/access.ts',
    'config/database.ts',
    'start/access.ts',
    'start/connectors.ts',
    'connectors/postgres/manager/manager.ts',
    'start/database.ts',
  ];
  const text = files
    .map((file) => readFileSync(new URL(`../../src/${file}`, import.meta.url), 'utf8'))
    .join('');
  const idle: string[] = [];
  for (const [group, settings] of Object.entries(SETTINGS)) {
    for (const [key, setting] of Object.entries(settings) as [string, Setting<unknown>][]) {
      const own = ['server', 'postgres', 'security', 'auth', 'connectors'].includes(group);
      const byStart = new RegExp(own ? `\\b${key}\\b` : `config\\.${group}\\.${key}\\b`).test(text);
      const used = byStart || read.has(`${group}.${key}`);
      if (used === setting.later) idle.push(`${setting.name}: ${used}`);
    }
  }
  assert.deepEqual(idle, [], 'true: used, but said to have no effect; false: the other way round');
});
