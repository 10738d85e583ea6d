/** The settings of a queue, and its end. */
import { useState } from 'preact/hooks';
import { ApiError } from '../api/client.ts';
import { useRights } from '../api/identity.ts';
import { usePoll } from '../api/poll.ts';
import { configureQueue, deleteQueue, getQueue, type QueueOptions } from '../api/queues.ts';
import { confirm } from '../components/dialog.tsx';
import { Card, ErrorNote, Page, Shown } from '../components/page.tsx';
import { QueueTabs } from '../components/queue_tabs.tsx';
import { toast } from '../components/toasts.tsx';
import { plural } from '../format.ts';
import { navigate } from '../router.ts';
import type { PageParams } from '../routes.ts';

/** What an option means, with its unit. Those that the broker stores without effect are not offered. */
const OPTIONS: readonly { title: string; options: readonly (readonly [string, string, string])[] }[] = [
  {
    title: 'Delivery',
    options: [
      ['leaseTime', 'Lease, s', 'How long a consumer has for a batch before it comes again'],
      ['retryLimit', 'Retries', 'Failures of a message that are forgiven'],
      ['deadLetterQueue', 'Keep what failed for good', 'As a dead letter; otherwise it is dropped'],
      ['dlqAfterMaxRetries', 'Keep it after the last retry', 'Only both switched off drop a message'],
      ['delayedProcessing', 'Delay, s', 'Age at which a message becomes visible'],
      ['windowBuffer', 'Quiet time, s', 'How long a partition must be quiet before it is served'],
      ['minPopWaitTime', 'Gather, ms', 'How long a waiting pop waits for a fuller batch'],
    ],
  },
  {
    title: 'Deduplication',
    options: [['dedupWindowSeconds', 'Window, s', 'How long a transactionId is remembered; 0: not at all']],
  },
  {
    title: 'Retention',
    options: [
      ['retentionEnabled', 'Delete old messages', 'Switches on the next two'],
      ['retentionSeconds', 'At an age of, s', 'Consumed or not; 0: never'],
      ['completedRetentionSeconds', 'When consumed, at an age of, s', 'Passed by every group; 0: never'],
      [
        'maxWaitTimeSeconds',
        'In any case at an age of, s',
        'Even when leased, and without the switch above; 0: never',
      ],
    ],
  },
  {
    title: 'Place and protection',
    options: [
      ['namespace', 'Namespace', 'For pops over several queues'],
      ['task', 'Task', 'For pops over several queues'],
      ['encryptionEnabled', 'Encrypt payloads', 'Needs a key in the broker’s environment'],
    ],
  },
];

const NOTHING = { limit: 1, offset: 0 };

export default function QueueSettingsPage({ params }: { params: PageParams }) {
  const queue = params.queue!;
  const live = usePoll(`queue-settings ${queue}`, (signal) => getQueue(queue, NOTHING, signal), {
    everyMs: 0,
  });
  const { admin } = useRights();
  return (
    <Page title={queue} crumbs={[['Queues', '/queues']]}>
      <QueueTabs queue={queue} />
      <Shown of={live} rows={8}>
        {({ queue: { options }, totals }) => (
          <>
            <Settings key={JSON.stringify(options)} queue={queue} options={options} saved={live.refresh} />
            {admin && <End queue={queue} messages={totals.messages.total} partitions={totals.partitions} />}
          </>
        )}
      </Shown>
    </Page>
  );
}

interface SettingsProps {
  queue: string;
  options: QueueOptions;
  saved: () => void;
}

function Settings({ queue, options, saved }: SettingsProps) {
  const { write } = useRights();
  const [changes, setChanges] = useState<QueueOptions>({});
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const changed = Object.keys(changes).length > 0;

  const set = (name: string, value: QueueOptions[string]) => {
    const { [name]: _, ...rest } = changes;
    setChanges(value === options[name] ? rest : { ...rest, [name]: value });
  };

  const save = async (event: Event) => {
    event.preventDefault();
    if (busy || !changed) return;
    setBusy(true);
    setError(undefined);
    try {
      await configureQueue(queue, changes);
      toast(`The settings of ${queue} are saved.`);
      setChanges({});
      saved();
    } catch (failure) {
      setError(failure instanceof ApiError ? failure : new ApiError(0, '', String(failure)));
    } finally {
      setBusy(false);
    }
  };

  return (
    <form onSubmit={save} class="page">
      {OPTIONS.map(({ title, options: group }) => (
        <Card key={title} title={title}>
          <div class="inside settings">
            {group.map(([name, label, meaning]) => (
              <Setting
                key={name}
                name={name}
                label={label}
                meaning={meaning}
                value={changes[name] ?? options[name]!}
                fault={error?.field?.endsWith(name) ? error.message : undefined}
                locked={!write}
                set={(value) => set(name, value)}
              />
            ))}
          </div>
        </Card>
      ))}
      {error !== undefined && <ErrorNote error={error} />}
      {write ? (
        <div class="actions">
          <button type="submit" class="button primary" disabled={!changed || busy}>
            Save {changed ? plural(Object.keys(changes).length, 'change') : 'changes'}
          </button>
          <button type="button" class="button" disabled={!changed || busy} onClick={() => setChanges({})}>
            Undo
          </button>
        </div>
      ) : (
        <p class="muted">Your role may read settings, not change them.</p>
      )}
    </form>
  );
}

interface SettingProps {
  name: string;
  label: string;
  meaning: string;
  value: QueueOptions[string];
  fault: string | undefined;
  locked: boolean;
  set: (value: QueueOptions[string]) => void;
}

function Setting({ name, label, meaning, value, fault, locked, set }: SettingProps) {
  const note = (
    <small id={`about-${name}`} class={fault === undefined ? '' : 'fault'}>
      {fault ?? meaning}
    </small>
  );
  if (typeof value === 'boolean') {
    return (
      <div class="field">
        <label class="check">
          <input
            type="checkbox"
            checked={value}
            disabled={locked}
            aria-describedby={`about-${name}`}
            onChange={(event) => set(event.currentTarget.checked)}
          />
          {label}
        </label>
        {note}
      </div>
    );
  }
  const numeric = typeof value === 'number';
  return (
    <div class="field">
      <label for={`option-${name}`}>{label}</label>
      <input
        id={`option-${name}`}
        type={(numeric ? 'number' : 'text') as 'number'}
        value={String(value)}
        disabled={locked}
        required={numeric}
        aria-describedby={`about-${name}`}
        {...(fault === undefined ? {} : { 'aria-invalid': true })}
        onInput={({ currentTarget: input }) => {
          if (!numeric) set(input.value);
          else if (input.value !== '') set(Number(input.value));
        }}
      />
      {note}
    </div>
  );
}

interface EndProps {
  queue: string;
  messages: number;
  partitions: number;
}

function End({ queue, messages, partitions }: EndProps) {
  const ask = async () => {
    const done = await confirm({
      title: `Delete ${queue}?`,
      body: (
        <p>
          {plural(messages, 'message')} in {plural(partitions, 'partition')} go, with cursors, dead letters
          and registrations of groups. Keys, timers and traces stay. Nothing brings it back.
        </p>
      ),
      action: 'Delete the queue',
      danger: true,
      typed: queue,
      run: () => deleteQueue(queue),
    });
    if (!done) return;
    toast(`The queue ${queue} is deleted.`);
    navigate('/queues');
  };
  return (
    <Card title="Delete" note="With everything that is in it">
      <div class="inside">
        <button type="button" class="button danger" onClick={ask}>
          Delete this queue…
        </button>
      </div>
    </Card>
  );
}
