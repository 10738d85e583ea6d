import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { test } from 'node:test';
import { parse } from 'yaml';
import { FAMILIES, type Family } from '../../../packages/broker/src/observability/families.ts';
import { until } from '../../kit/until.ts';
import { documents, ROOT, textOf } from '../markdown.ts';
import { broker } from './broker.ts';

/** Names of the same form that mean something else: roles, a publication, a code of an error. */
const NO_METRICS = new Set(['queen_app', 'queen_cdc', 'queen_orders', 'queen_refused']);
const FAMILY = new Map<string, Family>(Object.entries(FAMILIES));

interface Mention {
  readonly file: string;
  /** Ends in `*` when it stands for all that begin so. */
  readonly name: string;
}

function mentions(): Mention[] {
  const files = [...documents(), ...globSync('deploy/*', { cwd: ROOT })];
  return files.flatMap((file) =>
    Array.from(textOf(file).matchAll(/\bqueen_[a-z0-9_]+\*?/g), ([name]) => ({ file, name })).filter(
      ({ name }) => !NO_METRICS.has(name),
    ),
  );
}

/** The expressions of the alerts and of the dashboard. */
function expressions(): { file: string; expr: string }[] {
  const [rules, dashboard] = ['deploy/prometheus-rules.yaml', 'deploy/grafana-dashboard.json'];
  const panels: { targets?: { expr: string }[] }[] = JSON.parse(textOf(dashboard)).panels;
  const groups: { rules: { expr: string }[] }[] = parse(textOf(rules)).groups;
  return [
    ...groups.flatMap(({ rules: alerts }) => alerts.map(({ expr }) => ({ file: rules, expr }))),
    ...panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => ({ file: dashboard, expr }))),
  ];
}

test('every metric that documents, alerts and dashboard name is one that a broker has', async () => {
  const { url } = await broker();
  const connection = { host: '127.0.0.1', port: 1, database: 'none', user: 'none' };
  const source = { tables: [{ table: 'a', queue: 'q' }] };
  const sink = { queue: 'q', table: 'a', mode: 'append' };
  for (const [name, document] of Object.entries({
    'the-source': { kind: 'source', connection, source },
    'the-sink': { kind: 'sink', connection, sink },
  })) {
    const body = JSON.stringify(document);
    const { status } = await fetch(`${url}/api/v1/connectors/${name}`, { method: 'PUT', body });
    assert.equal(status, 200);
  }

  const wanted = mentions();
  assert.ok(wanted.length > 100, `${wanted.length} names`);
  const missing = ({ name }: Mention, there: ReadonlySet<string>) =>
    name.endsWith('*') ? ![...there].some((one) => one.startsWith(name.slice(0, -1))) : !there.has(name);
  let left: Mention[] = wanted;
  // What the database counts comes with the first refresh, what connectors count when they have been read.
  await until('all of them', async () => {
    const text = await (await fetch(`${url}/metrics/prometheus`)).text();
    const there = new Set(Array.from(text.matchAll(/^# TYPE (\S+)/gm), ([, name]) => name!));
    left = wanted.filter((mention) => missing(mention, there));
    return left.length === 0;
  }).catch(() => {});
  assert.deepEqual(left, []);
});

test('alerts and dashboard ask for labels that their metrics have', () => {
  const all = expressions();
  assert.ok(all.length > 50, `${all.length} expressions`);
  for (const { file, expr } of all) {
    const families = [...expr.matchAll(/queen_\w+/g)].map(([name]) => FAMILY.get(name)!);
    for (const [, name, selectors] of expr.matchAll(/(queen_\w+)\{([^}]*)\}/g)) {
      for (const [, label] of selectors!.matchAll(/(\w+)\s*[=!]/g)) {
        assert.ok(
          ['instance', ...FAMILY.get(name!)!.labels].includes(label!),
          `${file}: ${label} in ${expr}`,
        );
      }
    }
    for (const [, labels] of expr.matchAll(/\bby \(([^)]*)\)/g)) {
      for (const label of labels!.split(',').map((one) => one.trim())) {
        const has = (family: Family) => label === 'instance' || family.labels.includes(label);
        assert.ok(families.every(has), `${file}: by ${label} in ${expr}`);
      }
    }
  }
});

test('counters are looked at by their growth, gauges are not', () => {
  for (const { file, expr } of expressions()) {
    for (const [, growth, name] of expr.matchAll(/(\b(?:rate|increase)\()?(queen_\w+)/g)) {
      const counter = FAMILY.get(name!)!.type === 'counter';
      assert.equal(growth !== undefined, counter, `${file}: ${name} in ${expr}`);
    }
  }
});
