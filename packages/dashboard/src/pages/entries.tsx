/** Entries of a namespace, by key. */
import { useState } from 'preact/hooks';
import { type Entry, listEntries } from '../api/kv.ts';
import { usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { NameFilter } from '../components/filter.tsx';
import { EntryForm } from '../components/kv_form.tsx';
import { Card, Empty, Page, Shown } from '../components/page.tsx';
import { type Column, CursorPager, Table } from '../components/table.tsx';
import { Ago } from '../components/time.tsx';
import { toast } from '../components/toasts.tsx';
import { useTrail } from '../components/trail.ts';
import { whole } from '../format.ts';
import { navigate, useSearch } from '../router.ts';
import type { PageParams } from '../routes.ts';

const LIMIT = 50;
/** Characters of a value that a row shows. */
const GLIMPSE = 120;

export const namespacePath = (namespace: string) => `/kv/${encodeURIComponent(namespace)}`;
/** The key is no part of the path: it may be `..`. */
export const entryPath = (namespace: string, key: string) =>
  `${namespacePath(namespace)}/entry?key=${encodeURIComponent(key)}`;

export default function EntriesPage({ params }: { params: PageParams }) {
  const namespace = params.namespace!;
  const [search] = useSearch();
  const prefix = search.get('prefix') ?? '';
  const { after, trail, onTrail } = useTrail();
  const [adding, setAdding] = useState(false);
  const page = usePoll(
    `entries ${JSON.stringify([namespace, prefix, after])}`,
    (signal) => listEntries(namespace, { prefix, after, limit: LIMIT }, signal),
    { everyMs: 10_000, keep: true },
  );
  return (
    <Page
      title={namespace}
      crumbs={[['Keys and values', '/kv']]}
      actions={
        <Action needs="write" primary onClick={() => setAdding(true)}>
          New entry…
        </Action>
      }
    >
      <Card>
        <div class="filters">
          <NameFilter label="Key begins with" name="prefix" placeholder="Any" />
        </div>
        <Shown of={page}>
          {({ rows, nextAfter }) => (
            <>
              <Table
                caption={`Entries of ${namespace}`}
                columns={columnsOf(namespace)}
                rows={rows}
                id={({ key }) => key}
                empty={
                  prefix === '' && after === '' ? (
                    <Empty title="Nothing is in this namespace" />
                  ) : (
                    <Empty title="No key begins like that">
                      <a href={namespacePath(namespace)}>Show all of them</a>
                    </Empty>
                  )
                }
              />
              <CursorPager nouns="entries" trail={trail} next={nextAfter} onTrail={onTrail} />
            </>
          )}
        </Shown>
      </Card>
      {adding && (
        <EntryForm
          place={{ namespace }}
          entry={null}
          onClose={() => setAdding(false)}
          onWritten={({ key }) => {
            setAdding(false);
            toast(`Created ${key}.`);
            navigate(entryPath(namespace, key));
          }}
        />
      )}
    </Page>
  );
}

function columnsOf(namespace: string): Column<Entry>[] {
  return [
    { title: 'Key', key: true, cell: ({ key }) => <a href={entryPath(namespace, key)}>{key}</a> },
    {
      title: 'Value',
      cell: ({ value: { text } }) => (
        <code class="clipped">{text.length > GLIMPSE ? `${text.slice(0, GLIMPSE)}…` : text}</code>
      ),
    },
    { title: 'Version', right: true, cell: ({ version }) => whole(version) },
    { title: 'Changed', tight: true, cell: ({ updatedAt }) => <Ago at={updatedAt} /> },
    {
      title: 'Expires',
      tight: true,
      cell: ({ expiresAt }) =>
        expiresAt === null ? <span class="muted">stays</span> : <Ago at={expiresAt} />,
    },
  ];
}
