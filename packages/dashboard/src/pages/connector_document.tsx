/** Writes the document of a connector: a new one, or another one in place of what is stored. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { ApiError } from '../api/client.ts';
import { documentOf, getConnector, putConnector } from '../api/connectors.ts';
import { usePoll } from '../api/poll.ts';
import { Action } from '../components/action.tsx';
import { connectorPath } from '../components/connectors.tsx';
import { TextField } from '../components/field.tsx';
import { JsonField, jsonFault } from '../components/json_field.tsx';
import { Card, ErrorNote, Page, Shown } from '../components/page.tsx';
import { toast } from '../components/toasts.tsx';
import { navigate } from '../router.ts';
import type { PageParams } from '../routes.ts';

const CONNECTION = { host: 'localhost', port: 5432, database: 'shop', user: 'queen', password: '' };
const BEGINNINGS = {
  source: {
    kind: 'source',
    connection: CONNECTION,
    source: { tables: [{ table: 'public.orders', queue: 'orders' }] },
  },
  sink: {
    kind: 'sink',
    connection: CONNECTION,
    sink: { queue: 'orders', table: 'public.orders_copy', mode: 'cdc' },
  },
} as const;

export default function ConnectorDocumentPage({ params }: { params: PageParams }) {
  return params.name === undefined ? <NewConnector /> : <EditConnector name={params.name} />;
}

function NewConnector() {
  const [name, setName] = useState('');
  const [kind, setKind] = useState<keyof typeof BEGINNINGS>('source');
  const [texts, setTexts] = useState({ source: printed(BEGINNINGS.source), sink: printed(BEGINNINGS.sink) });
  return (
    <Page title="New connector" crumbs={[['Connectors', '/connectors']]}>
      <Card>
        <div class="inside">
          <DocumentForm
            name={name}
            text={texts[kind]}
            onText={(text) => setTexts({ ...texts, [kind]: text })}
            action="Create"
            done="Created"
          >
            <TextField
              label="Name"
              value={name}
              onValue={setName}
              required
              pattern="[a-z0-9][a-z0-9_\-]{0,47}"
              note="Lower-case letters, digits, - and _, at most 48"
            />
            <fieldset class="choices">
              <legend>Kind</legend>
              <label>
                <input
                  type="radio"
                  name="kind"
                  checked={kind === 'source'}
                  onChange={() => setKind('source')}
                />
                Source: changes of tables into queues
              </label>
              <label>
                <input type="radio" name="kind" checked={kind === 'sink'} onChange={() => setKind('sink')} />
                Sink: messages of a queue into a table
              </label>
            </fieldset>
          </DocumentForm>
        </div>
      </Card>
    </Page>
  );
}

function EditConnector({ name }: { name: string }) {
  const stored = usePoll(`document ${name}`, (signal) => getConnector(name, signal), { everyMs: 0 });
  const [text, setText] = useState<string>();
  return (
    <Page
      title={`Document of ${name}`}
      crumbs={[
        ['Connectors', '/connectors'],
        [name, connectorPath(name)],
      ]}
      lead="What is applied replaces all of it. Without a password the stored one stays."
    >
      <Card>
        <div class="inside">
          <Shown of={stored}>
            {(connector) => (
              <DocumentForm
                name={name}
                text={text ?? printed(documentOf(connector))}
                onText={setText}
                action="Apply"
                done="Applied"
              />
            )}
          </Shown>
        </div>
      </Card>
    </Page>
  );
}

interface DocumentFormProps {
  name: string;
  text: string;
  onText: (text: string) => void;
  action: string;
  done: string;
  children?: ComponentChildren;
}

function DocumentForm({ name, text, onText, action, done, children }: DocumentFormProps) {
  const [fault, setFault] = useState<string | null>(null);
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const apply = async () => {
    const wrong = jsonFault(text);
    setFault(wrong);
    setError(undefined);
    if (wrong !== null || busy) return;
    setBusy(true);
    try {
      await putConnector(name, text);
      toast(`${done} ${name}.`);
      return navigate(connectorPath(name));
    } catch (failure) {
      const { code, message } = failure as ApiError;
      // It begins with the path of what is wrong.
      if (code === 'invalid_connector') setFault(message);
      else setError(failure as ApiError);
    }
    setBusy(false);
  };
  return (
    <form
      class="spaced"
      onSubmit={(event) => {
        event.preventDefault();
        void apply();
      }}
    >
      {children}
      <JsonField label="Document (JSON)" text={text} onText={onText} fault={fault} rows={24} />
      {error !== undefined && <ErrorNote error={error} />}
      <div class="actions">
        <Action needs="admin" primary submit onClick={() => {}}>
          {busy ? 'Working…' : action}
        </Action>
        <a class="button" href={name === '' ? '/connectors' : connectorPath(name)}>
          Cancel
        </a>
      </div>
    </form>
  );
}

const printed = (document: object) => JSON.stringify(document, null, 2);
