/** The frame of a page: where one is, its title, what one can do, and what is said when there is nothing to show. */
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import type { ApiError } from '../api/client.ts';
import type { Polled } from '../api/poll.ts';

interface PageProps {
  title: string;
  /** Where it lies: a name and an address each, the outermost first. */
  crumbs?: readonly (readonly [string, string])[];
  /** Nothing, or false: there is none. */
  lead?: ComponentChildren;
  /** Nothing, or false: there are none. */
  actions?: ComponentChildren;
  children: ComponentChildren;
}

/** Sets the document's title. The shell moves the focus to the heading after a change of page. */
export function Page({ title, crumbs = [], lead, actions, children }: PageProps) {
  useEffect(() => {
    document.title = `${title} – Queen`;
  }, [title]);
  return (
    <div class="page">
      <div class="page-head">
        <div>
          {crumbs.length > 0 && (
            <nav class="crumbs" aria-label="Breadcrumb">
              <ol>
                {crumbs.map(([name, to]) => (
                  <li key={to}>
                    <a href={to}>{name}</a>
                  </li>
                ))}
              </ol>
            </nav>
          )}
          <h1 tabIndex={-1}>{title}</h1>
          {lead && <div class="muted">{lead}</div>}
        </div>
        {actions && <div class="actions">{actions}</div>}
      </div>
      {children}
    </div>
  );
}

interface CardProps {
  title?: string;
  note?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
}

/** A titled surface. Tables lie in it edge to edge; put other content into `<div class="inside">`. */
export function Card({ title, note, actions, children }: CardProps) {
  const headed = title !== undefined || actions !== undefined;
  return (
    <section class="card" {...(title === undefined ? {} : { 'aria-label': title })}>
      {headed && (
        <header>
          <div>
            {title !== undefined && <h2>{title}</h2>}
            {note !== undefined && <p>{note}</p>}
          </div>
          {actions !== undefined && <div class="actions">{actions}</div>}
        </header>
      )}
      {children}
    </section>
  );
}

interface EmptyProps {
  title: string;
  /** Why it is empty, and what would change that. */
  children?: ComponentChildren;
}

export function Empty({ title, children }: EmptyProps) {
  return (
    <div class="state">
      <p class="title">{title}</p>
      {children}
    </div>
  );
}

export function Loading({ rows = 4 }: { rows?: number }) {
  return (
    <div class="inside" role="status">
      <span class="hidden-visually">Loading</span>
      {Array.from({ length: rows }, (_, index) => (
        // They are all alike.
        <div key={index} class="skeleton" style={{ margin: '10px 0', width: `${90 - index * 12}%` }} />
      ))}
    </div>
  );
}

/** What went wrong, in the broker's words, and a way to try again. */
export function ErrorNote({ error, retry }: { error: ApiError; retry?: () => void }) {
  return (
    <div class="note-line bad" role="alert">
      <span>
        {error.message}
        {error.code !== '' && error.code !== 'unreachable' && (
          <>
            {' '}
            <code>{error.code}</code>
          </>
        )}
      </span>
      {retry !== undefined && (
        <button type="button" class="button small" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

interface ShownProps<T> {
  of: Polled<T>;
  /** Lines of the placeholder. */
  rows?: number;
  children: (data: T) => ComponentChildren;
}

/** The three faces of polled data: not there yet, failed, there (with a line above it while newer data fails). */
export function Shown<T>({ of, rows, children }: ShownProps<T>) {
  if (of.data === undefined) {
    return of.error === undefined ? (
      <Loading {...(rows === undefined ? {} : { rows })} />
    ) : (
      <ErrorNote error={of.error} retry={of.refresh} />
    );
  }
  return (
    <>
      {of.error !== undefined && <ErrorNote error={of.error} retry={of.refresh} />}
      {children(of.data)}
    </>
  );
}
