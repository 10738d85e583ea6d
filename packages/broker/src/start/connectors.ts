import type { Config } from '../config.ts';
import { ConnectorsApi } from '../connectors/postgres/manager/api.ts';
import { ConnectorManager } from '../connectors/postgres/manager/manager.ts';
import { connectorSources } from '../connectors/postgres/manager/metrics.ts';
import { createUnit } from '../connectors/postgres/manager/units.ts';
import type { Broker, EngineSettings } from '../engine/broker.ts';
import { systemClock } from '../engine/clock.ts';
import type { ConnectorsFace } from '../http/routes/connectors.ts';
import type { Log } from '../observability/log.ts';
import type { Metrics } from '../observability/metrics.ts';
import type { Queryable } from '../store/database.ts';
import { databaseId } from '../store/system.ts';

export interface OpenedConnectors {
  api: ConnectorsFace;
  start(): void;
  stop(): Promise<void>;
}

/** The connectors of this broker: their API, and what runs them. Nothing runs before the start. */
export async function openConnectors(deps: {
  config: Config;
  settings: EngineSettings;
  broker: Broker;
  metrics: Metrics;
  log: Log;
  version: string;
}): Promise<OpenedConnectors> {
  const { config, settings, broker, metrics, log, version } = deps;
  const { sealingKey } = settings;
  const run = <T>(work: (on: Queryable) => Promise<T>) =>
    broker.admission.run('maintenance', () => work(broker.db));
  const manager = new ConnectorManager({
    broker,
    run,
    sealingKey,
    settings: config.connectors,
    createUnit,
    clock: systemClock,
    log,
    node: config.server.serverId,
    storeId: await run(databaseId),
    version,
  });
  metrics.sources(connectorSources(() => manager.statuses()));
  const api = new ConnectorsApi({
    run,
    sealingKey,
    allowPrivate: config.connectors.allowPrivate,
    statusOf: (tenant, name) => manager.statusOf(tenant, name),
    overview: () => manager.overview(),
    changed: () => manager.poke(),
  });
  return { api, start: () => manager.start(), stop: () => manager.stop() };
}
