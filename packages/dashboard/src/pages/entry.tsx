/** One entry: its value to the last digit, its version, its life. */
import { useState } from 'preact/hooks';
import { ApiError } from '../api/client.ts';
import { deleteEntry, type Entry, getEntry } from '../api/kv.ts';
import { usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { Copyable } from '../components/copy.tsx';
import { confirm } from '../components/dialog.tsx';
import { EntryForm } from '../components/kv_form.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { Payload } from '../components/payload.tsx';
import { Facts } from '../components/tiles.tsx';
import { Exact, ExactAgo } from '../components/time.tsx';
import { toast } from '../components/toasts.tsx';
import { whole } from '../format.ts';
import { navigate, useSearch } from '../router.ts';
import type { PageParams } from '../routes.ts';
import { namespacePath } from './entries.tsx';

export default function EntryPage({ params }: { params: PageParams }) {
  const namespace = params.namespace!;
  const [search] = useSearch();
  const key = search.get('key') ?? '';
  const entry = usePoll(`entry ${JSON.stringify([namespace, key])}`, (signal) =>
    getEntry(namespace, key, signal),
  );
  // The form keeps what was opened, whatever comes meanwhile.
  const [editing, setEditing] = useState<{ entry: Entry | null }>();
  const found = entry.data ?? null;
  return (
    <Page
      title={key}
      crumbs={[
        ['Keys and values', '/kv'],
        [namespace, namespacePath(namespace)],
      ]}
      actions={
        found !== null && (
          <>
            <Action needs="write" primary onClick={() => setEditing({ entry: found })}>
              Edit…
            </Action>
            <Action needs="write" danger onClick={() => void destroy(namespace, found)}>
              Delete…
            </Action>
          </>
        )
      }
    >
      <Shown of={entry}>
        {(data) =>
          data === null ? (
            <Card>
              <Empty title="Nothing is under this key">
                <p>It was never there, has expired, or was deleted.</p>
                <div class="actions">
                  <Action needs="write" onClick={() => setEditing({ entry: null })}>
                    Create it…
                  </Action>
                </div>
              </Empty>
            </Card>
          ) : (
            <Content namespace={namespace} entry={data} />
          )
        }
      </Shown>
      {editing !== undefined && (
        <EntryForm
          place={{ namespace, key }}
          entry={editing.entry}
          onClose={() => {
            setEditing(undefined);
            entry.refresh();
          }}
          onWritten={(_, version) => {
            setEditing(undefined);
            toast(`Saved version ${whole(version)}.`);
            entry.refresh();
          }}
        />
      )}
    </Page>
  );
}

function Content({ namespace, entry }: { namespace: string; entry: Entry }) {
  const { key, version, updatedAt, expiresAt, value } = entry;
  return (
    <>
      <Card>
        <div class="inside">
          <Facts
            of={[
              ['Version', String(version)],
              ['Changed', <Exact key="" at={updatedAt} />],
              ['Expires', expiresAt === null ? 'never' : <ExactAgo key="" at={expiresAt} />],
              ['Namespace', <Copyable key="" text={namespace} what="namespace" />],
              ['Key', <Copyable key="" text={key} what="key" />],
            ]}
          />
        </div>
      </Card>
      <Card title="Value">
        <div class="inside">
          <Payload json={value} what="value" />
        </div>
      </Card>
    </>
  );
}

async function destroy(namespace: string, { key, version }: Entry): Promise<void> {
  const yes = await confirm({
    title: `Delete ${key}?`,
    body: (
      <p>
        Version {whole(version)} of <code>{key}</code> in <strong>{namespace}</strong> is gone for good. If
        somebody changes it before, nothing is deleted.
      </p>
    ),
    action: 'Delete',
    danger: true,
    run: async () => {
      const { applied, version: now } = await deleteEntry({ namespace, key }, version);
      if (applied || now === 0) return;
      throw new ApiError(409, 'version', `Nothing was deleted: it is at version ${now} now.`);
    },
  });
  if (!yes) return;
  toast(`Deleted ${key} of ${namespace}.`);
  navigate(namespacePath(namespace));
}
