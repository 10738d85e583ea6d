/** Namespaces of keys and values. */
import { useState } from 'preact/hooks';
import { listNamespaces, type Namespace } from '../api/kv.ts';
import { usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { EntryForm } from '../components/kv_form.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import type { Column } from '../components/table.tsx';
import { toast } from '../components/toasts.tsx';
import { WholeList } from '../components/whole_list.tsx';
import { whole } from '../format.ts';
import { navigate } from '../router.ts';
import { entryPath, namespacePath } from './entries.tsx';

const COLUMNS: readonly Column<Namespace>[] = [
  {
    title: 'Namespace',
    key: true,
    cell: ({ namespace }) => <a href={namespacePath(namespace)}>{namespace}</a>,
  },
  { title: 'Keys', right: true, cell: ({ keys }) => whole(keys) },
];

export default function NamespacesPage() {
  const namespaces = usePoll('namespaces', listNamespaces, { everyMs: 10_000 });
  const [adding, setAdding] = useState(false);
  return (
    <Page
      title="Keys and values"
      lead="JSON values under a namespace and a key, with a version and a life"
      actions={
        <Action needs="write" primary onClick={() => setAdding(true)}>
          New entry…
        </Action>
      }
    >
      <Card title="Namespaces">
        <Shown of={namespaces}>
          {(all) => (
            <WholeList
              caption="Namespaces"
              columns={COLUMNS}
              all={all}
              nameOf={({ namespace }) => namespace}
              noun="namespace"
              none={
                <Empty title="There are no entries yet">
                  <p>
                    Programs keep small pieces of state here, beside their messages and in one transaction
                    with them.
                  </p>
                </Empty>
              }
            />
          )}
        </Shown>
      </Card>
      {adding && (
        <EntryForm
          place={{}}
          entry={null}
          onClose={() => setAdding(false)}
          onWritten={({ namespace, key }) => {
            setAdding(false);
            toast(`Created ${key} in ${namespace}.`);
            navigate(entryPath(namespace, key));
          }}
        />
      )}
    </Page>
  );
}
