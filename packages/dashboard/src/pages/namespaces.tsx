/** Namespaces of keys and values. */
import { useState } from 'preact/hooks';
import { listNamespaces, type Namespace } from '../api/kv.ts';
import { usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { NameFilter } from '../components/filter.tsx';
import { EntryForm } from '../components/kv_form.tsx';
import { useOffset } from '../components/list.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { type Column, PagedTable } from '../components/table.tsx';
import { toast } from '../components/toasts.tsx';
import { whole } from '../format.ts';
import { navigate, useSearch } from '../router.ts';
import { entryPath, namespacePath } from './entries.tsx';

const LIMIT = 100;
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
  const [search] = useSearch();
  const [adding, setAdding] = useState(false);
  const wanted = search.get('search') ?? '';
  const [offset, onOffset] = useOffset();
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
          {(all) => {
            const found = all.filter(({ namespace }) => namespace.includes(wanted));
            const rows = found.slice(offset, offset + LIMIT);
            return (
              <>
                {(all.length > LIMIT || wanted !== '') && (
                  <div class="filters">
                    <NameFilter label="Part of the name" name="search" />
                  </div>
                )}
                <PagedTable
                  caption="Namespaces"
                  columns={COLUMNS}
                  rows={rows}
                  id={({ namespace }) => namespace}
                  empty={
                    all.length === 0 ? (
                      <Empty title="There are no entries yet">
                        <p>
                          Programs keep small pieces of state here, beside their messages and in one
                          transaction with them.
                        </p>
                      </Empty>
                    ) : (
                      <Empty title="No namespace is like that" />
                    )
                  }
                  noun="namespace"
                  offset={offset}
                  limit={LIMIT}
                  total={found.length}
                  onOffset={onOffset}
                />
              </>
            );
          }}
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
