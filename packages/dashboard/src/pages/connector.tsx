/** One connector: how it goes, what it was told, and what can be done about it. */
import { useState } from 'preact/hooks';
import {
  type Connector,
  deleteConnector,
  documentOf,
  enableConnector,
  getConnector,
  resyncConnector,
} from '../api/connectors.ts';
import { getGroupOnQueue } from '../api/groups.ts';
import { useRights } from '../api/identity.ts';
import { RawJson } from '../api/json_text.ts';
import { type Polled, usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { connectorPath, PhaseBadge, phaseSentence, ways } from '../components/connectors.tsx';
import { confirm } from '../components/dialog.tsx';
import { onQueuePath } from '../components/groups.tsx';
import { deadLettersPath, Group, queuePath } from '../components/messages.tsx';
import { Observed } from '../components/observed.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { Payload } from '../components/payload.tsx';
import { Facts, Tile, Tiles, toneOfWait } from '../components/tiles.tsx';
import { Ago } from '../components/time.tsx';
import { toast } from '../components/toasts.tsx';
import { bytes, compact, duration, plural, whole } from '../format.ts';
import { navigate } from '../router.ts';
import type { PageParams } from '../routes.ts';

const EVERY_MS = 3_000;
/** All partitions of the queue are counted for it. */
const LAG_EVERY_MS = 10_000;

export default function ConnectorPage({ params }: { params: PageParams }) {
  const name = params.name!;
  const connector = usePoll(`connector ${name}`, (signal) => getConnector(name, signal), {
    everyMs: EVERY_MS,
  });
  const { data, error } = connector;
  const gone = error?.status === 404;
  return (
    <Page
      title={name}
      crumbs={[['Connectors', '/connectors']]}
      lead={data !== undefined && !gone && <PhaseBadge of={data} />}
      actions={data !== undefined && !gone && <Actions connector={data} refresh={connector.refresh} />}
    >
      {gone ? (
        <Card>
          <Empty title="There is no such connector">
            <p>{data === undefined ? 'It was never there, or is deleted.' : 'It is deleted.'}</p>
            <a href="/connectors">Look at the others</a>
          </Empty>
        </Card>
      ) : (
        <Shown of={connector}>
          {(found) => (
            <>
              <How connector={found} />
              {found.kind === 'source' && <Source connector={found} polled={connector} />}
              {found.kind === 'sink' && <Sink connector={found} />}
              <Card
                title="Document"
                note={
                  found.updatedAt === undefined ? undefined : (
                    <>
                      Changed <Ago at={found.updatedAt} />
                      {found.connection?.passwordSet === true && '. The password is stored, and never shown.'}
                    </>
                  )
                }
              >
                <div class="inside">
                  <Payload json={new RawJson(JSON.stringify(documentOf(found)))} what="document" />
                </div>
              </Card>
            </>
          )}
        </Shown>
      )}
    </Page>
  );
}

function Actions({ connector, refresh }: { connector: Connector; refresh: () => void }) {
  const { admin } = useRights();
  const { name, kind, enabled, deleting } = connector;
  const deletion = (
    <Action needs="admin" danger onClick={() => void destroy(connector, refresh)}>
      Delete…
    </Action>
  );
  if (deleting !== undefined) return deletion;
  const turn = async () => {
    const pause = enabled !== false;
    const yes = await confirm({
      title: pause ? `Pause ${name}?` : `Let ${name} go on?`,
      body: <p>{pause ? whatPausing(connector) : 'It goes on where it was.'}</p>,
      action: pause ? 'Pause' : 'Go on',
      run: () => enableConnector(name, !pause),
    });
    if (!yes) return;
    toast(pause ? `${name} pauses.` : `${name} goes on.`);
    refresh();
  };
  const resync = async () => {
    const tables = connector.source?.tables ?? [];
    const yes = await confirm({
      title: `Resync ${name}?`,
      body: (
        <p>
          It forgets how far it was, drops its slot, and copies {plural(tables.length, 'table')} anew: every
          row comes into the queues once more, as an event “r”. Rows that were deleted while the slot was lost
          have no event.
        </p>
      ),
      action: 'Resync',
      danger: true,
      typed: name,
      run: () => resyncConnector(name),
    });
    if (!yes) return;
    toast(`${name} begins anew.`);
    refresh();
  };
  return (
    <>
      {admin && (
        <a class="button" href={`${connectorPath(name)}/document`}>
          Edit
        </a>
      )}
      <Action needs="admin" onClick={() => void turn()}>
        {enabled === false ? 'Go on…' : 'Pause…'}
      </Action>
      {kind === 'source' && (
        <Action needs="admin" danger onClick={() => void resync()}>
          Resync…
        </Action>
      )}
      {deletion}
    </>
  );
}

function whatPausing({ kind }: Connector): string {
  return kind === 'source'
    ? 'No changes come into its queues until it goes on. Its slot keeps the WAL meanwhile, which takes room on the disk of the database.'
    : 'No messages go into its table until it goes on. They wait in the queue, for as long as the queue keeps them.';
}

function How({ connector }: { connector: Connector }) {
  const { status } = connector;
  const { from, to } = ways(connector);
  return (
    <Card>
      <div class="inside spaced">
        <p>
          <strong>{phaseSentence(connector)}</strong>
          {status.since !== undefined && (
            <span class="muted">
              {' '}
              Since <Ago at={status.since} />.
            </span>
          )}
        </p>
        {status.detail !== undefined && <p>{status.detail}</p>}
        {status.error != null && (
          <div class="note-line bad" role="alert">
            <span>
              {status.error.message} <code>{status.error.code}</code>
            </span>
            <Ago at={status.error.at} />
          </div>
        )}
        <Facts
          of={[
            ['From', from.what],
            ['To', to.what],
            ['Database', from.where ?? to.where ?? '–'],
            ['User', connector.connection?.user ?? '–'],
          ]}
        />
      </div>
    </Card>
  );
}

function Source({ connector, polled }: { connector: Connector; polled: Polled<Connector> }) {
  const { status, source } = connector;
  const { slotLagBytes, messages, transactions, lastCommitAt, snapshot, truncatesSkipped } = status;
  return (
    <>
      <Tiles>
        <Tile
          label="WAL that waits for it"
          value={bytes(slotLagBytes)}
          note={status.walStatus == null ? 'known to the broker that runs it' : `slot: ${status.walStatus}`}
          tone={status.walStatus === 'lost' || status.walStatus === 'unreserved' ? 'bad' : undefined}
        />
        <Tile label="Messages" value={compact(messages ?? 0)} note="by this broker, since its start" />
        <Tile label="Transactions" value={compact(transactions ?? 0)} note="that brought them" />
        <Tile label="Last commit" value={<Ago at={lastCommitAt} />} note="into a queue" />
        {truncatesSkipped !== undefined && truncatesSkipped > 0 && (
          <Tile label="Truncates skipped" value={compact(truncatesSkipped)} tone="warn" />
        )}
      </Tiles>
      {snapshot != null && (
        <Card title="Copy of the rows that were there">
          <div class="inside progress">
            <progress max={snapshot.tables} value={snapshot.done} aria-label="Tables copied" />
            <p>
              {whole(snapshot.done)} of {plural(snapshot.tables, 'table')} copied
              {snapshot.table !== null && `; ${plural(snapshot.rows, 'row')} of ${snapshot.table} so far`}.
            </p>
          </div>
        </Card>
      )}
      <Card title="WAL that its slot keeps" note="Seen while this page was open">
        <div class="inside">
          <Observed
            id={`slot ${connector.name}`}
            title="WAL that its slot keeps"
            labels={['WAL']}
            of={polled}
            values={(data) => [data.status.slotLagBytes ?? null]}
            format={bytes}
          />
        </div>
      </Card>
      <Card title="Where it reads">
        <div class="inside">
          <Facts
            of={[
              ['Slot', source?.slot ?? '–'],
              ['Publication', source?.publication ?? '–'],
              ['Confirmed up to', status.pointerLsn ?? '–'],
              [
                'Queues',
                <span key="">
                  {[...new Set(source?.tables.map(({ queue }) => queue))].map((queue) => (
                    <span key={queue}>
                      <a href={queuePath(queue)}>{queue}</a>{' '}
                    </span>
                  ))}
                </span>,
              ],
            ]}
          />
        </div>
      </Card>
    </>
  );
}

function Sink({ connector }: { connector: Connector }) {
  const { status, sink, name } = connector;
  const group = sink?.consumerGroup ?? '';
  const queue = sink?.queue ?? '';
  const lag = usePoll(
    `sink lag ${JSON.stringify([group, queue])}`,
    (signal) => getGroupOnQueue(group, queue, { limit: 1, offset: 0 }, signal),
    { everyMs: LAG_EVERY_MS },
  );
  const left = lag.data?.totals;
  return (
    <>
      <Tiles>
        <Tile
          label="Lag"
          value={left === undefined ? '–' : compact(left.totalLag)}
          note={
            <>
              messages, <a href={onQueuePath(group, queue)}>by partition</a>
            </>
          }
        />
        <Tile
          label="Oldest has waited"
          value={left === undefined || left.totalLag === 0 ? '–' : duration(left.maxTimeLag)}
          tone={toneOfWait(left?.maxTimeLag ?? 0)}
        />
        <Tile label="Applied" value={compact(status.applied ?? 0)} note="by this broker, since its start" />
        <Tile
          label="Dead letters"
          value={compact(status.dlq ?? 0)}
          tone={(status.dlq ?? 0) > 0 ? 'bad' : undefined}
          note={<a href={deadLettersPath(queue, group)}>Look at them</a>}
        />
        <Tile label="Last applied" value={<Ago at={status.lastAppliedAt} />} />
      </Tiles>
      {status.lastError != null && (
        <Card title="Last message that the table refused">
          <div class="inside">
            <p>
              {status.lastError.message} <code>{status.lastError.code}</code> (
              <Ago at={status.lastError.at} />)
            </p>
          </div>
        </Card>
      )}
      <Card title="Lag" note="Seen while this page was open">
        <div class="inside">
          <Observed
            id={`sink ${name}`}
            title="Lag"
            labels={['Messages']}
            of={lag}
            values={({ totals }) => [totals.totalLag]}
            format={compact}
          />
        </div>
      </Card>
      <Card title="Where it writes">
        <div class="inside">
          <Facts
            of={[
              ['Table', sink?.table ?? '–'],
              ['Mode', sink?.mode ?? '–'],
              [
                'Queue',
                <a key="" href={queuePath(queue)}>
                  {queue}
                </a>,
              ],
              ['Consumer group', <Group key="" name={group} />],
            ]}
          />
        </div>
      </Card>
    </>
  );
}

/** Asks, deletes, and tells: at once, or as soon as its owner has taken down what it has at the database. */
async function destroy({ name, kind, source }: Connector, refresh: () => void): Promise<void> {
  let dropSlot = true;
  let answer: Awaited<ReturnType<typeof deleteConnector>> = {};
  const yes = await confirm({
    title: `Delete ${name}?`,
    body:
      kind === 'source' ? (
        <SlotChoice
          source={source}
          onChoice={(drop) => {
            dropSlot = drop;
          }}
        />
      ) : (
        <p>It is gone at once. Its table, its progress rows and its consumer group stay.</p>
      ),
    action: 'Delete',
    danger: true,
    typed: name,
    run: async () => {
      answer = await deleteConnector(name, dropSlot);
    },
  });
  if (!yes) return;
  if (answer.deleting === true) {
    toast(`${name} is being deleted.`);
    return refresh();
  }
  if (answer.warning === undefined) toast(`Deleted ${name}.`);
  else toast(`Deleted ${name}: ${answer.warning}`, 'bad');
  navigate('/connectors');
}

function SlotChoice({
  source,
  onChoice,
}: {
  source: Connector['source'];
  onChoice: (drop: boolean) => void;
}) {
  const [drop, setDrop] = useState(true);
  const choose = (next: boolean) => {
    setDrop(next);
    onChoice(next);
  };
  return (
    <fieldset class="choices">
      <legend>Its replication slot {source?.slot}</legend>
      <label>
        <input type="radio" name="slot" checked={drop} onChange={() => choose(true)} />
        Drop it
      </label>
      <small>
        Its owner connects to the database and takes down{' '}
        {source?.managePublication ? 'slot and publication' : 'the slot'}; then the connector is gone.
      </small>
      <label>
        <input type="radio" name="slot" checked={!drop} onChange={() => choose(false)} />
        Leave it there
      </label>
      <small>
        For a database that cannot be reached any more. The connector is gone at once; a slot that is left
        keeps WAL until somebody drops it, and may fill the disk.
      </small>
    </fieldset>
  );
}
