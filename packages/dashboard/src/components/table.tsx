/** Tables of rows that come in pages from the broker. On a narrow screen each row becomes a block of names and values. */
import { type ComponentChildren, Fragment, type VNode } from 'preact';
import { plural, whole } from '../format.ts';

export interface Column<Row> {
  /** In the head; also before the value on a narrow screen. */
  title: string;
  cell: (row: Row) => ComponentChildren;
  /** Numbers stand at the right. */
  right?: boolean;
  /** What the row is about: the head of its block on a narrow screen, and the row's header for a screen reader. */
  key?: boolean;
  /** The key is long: identifiers. */
  wide?: boolean;
  /** A name that is not the key. */
  name?: boolean;
  /** Never broken over lines. */
  tight?: boolean;
  /** Prose: it gets most of the room. */
  prose?: boolean;
  /** Buttons and the like: no title on a narrow screen. */
  bare?: boolean;
  /** In the head instead of the title. */
  head?: VNode;
  /** Its word for the broker, when it can sort by it. */
  sort?: string;
}

export interface Sorting {
  by: string;
  descending: boolean;
  change: (by: string, descending: boolean) => void;
}

interface TableProps<Row> {
  /** What the table is, for those who cannot see where it stands. */
  caption: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  id: (row: Row) => string;
  sorting?: Sorting;
  /** What a row opens into, over the whole width; null: it is closed. */
  opened?: (row: Row) => VNode | null;
  /** Instead of a table without rows. */
  empty: VNode;
}

export function Table<Row>({ caption, columns, rows, id, sorting, opened, empty }: TableProps<Row>) {
  if (rows.length === 0) return empty;
  // Roles are given by name: laid out as blocks, a table would lose its own.
  return (
    <div class="table-wrap">
      <table class="data" role="table">
        <caption class="hidden-visually">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((column) => (
              <Head key={column.title} column={column} sorting={sorting} />
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <Fragment key={id(row)}>
              <tr role="row">
                {columns.map((column) => (
                  <td
                    key={column.title}
                    role={column.key ? 'rowheader' : 'cell'}
                    class={classOf(column)}
                    data-label={column.title}
                  >
                    {/* One child, whatever the cell holds: on a narrow screen it stands beside the title. */}
                    <div>{column.cell(row)}</div>
                  </td>
                ))}
              </tr>
              <Opened columns={columns.length} content={opened?.(row) ?? null} />
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Opened({ columns, content }: { columns: number; content: VNode | null }) {
  if (content === null) return null;
  return (
    <tr role="row" class="opened">
      <td role="cell" colSpan={columns} class="bare">
        {content}
      </td>
    </tr>
  );
}

function classOf<Row>({ right, key, wide, name, tight, bare }: Column<Row>): string {
  return [right && 'right', key && 'key', wide && 'wide', name && 'name', tight && 'tight', bare && 'bare']
    .filter(Boolean)
    .join(' ');
}

function Head<Row>({ column, sorting }: { column: Column<Row>; sorting: Sorting | undefined }) {
  const { title, sort, right, bare, prose, head } = column;
  const side = right ? 'right' : prose ? 'prose' : '';
  if (bare) {
    return (
      <th role="columnheader" scope="col" class={side}>
        {head ?? <span class="hidden-visually">{title}</span>}
      </th>
    );
  }
  if (sort === undefined || sorting === undefined) {
    return (
      <th role="columnheader" scope="col" class={side}>
        {title}
      </th>
    );
  }
  const active = sorting.by === sort;
  // The first click puts the largest number, or the first name, on top.
  const next = active ? !sorting.descending : right === true;
  return (
    <th
      role="columnheader"
      scope="col"
      class={side}
      {...(active ? { 'aria-sort': sorting.descending ? 'descending' : 'ascending' } : {})}
    >
      <button type="button" onClick={() => sorting.change(sort, next)}>
        {title}
        {active && <span aria-hidden="true">{sorting.descending ? '↓' : '↑'}</span>}
      </button>
    </th>
  );
}

interface PagedTableProps<Row> extends TableProps<Row>, Omit<PagerProps, 'shown'> {}

/** A table that shows one page of its rows, with the way to the others beneath it. */
export function PagedTable<Row>(props: PagedTableProps<Row>) {
  const { noun, nouns, offset, limit, total, onOffset, ...table } = props;
  const shown = table.rows.length;
  return (
    <>
      <Table {...table} />
      {(shown > 0 || offset > 0) && (
        <Pager
          noun={noun}
          nouns={nouns}
          offset={offset}
          limit={limit}
          shown={shown}
          // Behind the last page the broker may not know it.
          total={shown === 0 ? null : total}
          onOffset={onOffset}
        />
      )}
    </>
  );
}

interface PagerProps {
  /** Of what the table shows: `partition`. */
  noun: string;
  nouns?: string | undefined;
  offset: number;
  limit: number;
  /** Rows on this page. */
  shown: number;
  /** Null: the broker does not count them; there is a next page when this one is full. */
  total: number | null;
  onOffset: (offset: number) => void;
}

/** Pages by number of rows to skip; only their number when all of them are on this page. */
function Pager({ noun, nouns, offset, limit, shown, total, onOffset }: PagerProps) {
  const more = total === null ? shown === limit : offset + shown < total;
  if (offset === 0 && !more) {
    return (
      <div class="pager">
        <span>{plural(total ?? shown, noun, nouns)}</span>
      </div>
    );
  }
  const last = total === null ? null : Math.max(0, Math.floor((total - 1) / limit) * limit);
  return (
    <nav class="pager" aria-label={`Pages of ${nouns ?? `${noun}s`}`}>
      <span role="status">
        {shown === 0 ? 'Behind the last page' : `${whole(offset + 1)} to ${whole(offset + shown)}`}
        {total !== null && ` of ${plural(total, noun, nouns)}`}
      </span>
      <div class="actions">
        <Step text="First" off={offset === 0} go={() => onOffset(0)} />
        <Step text="Previous" off={offset === 0} go={() => onOffset(Math.max(0, offset - limit))} />
        <Step text="Next" off={!more} go={() => onOffset(offset + limit)} />
        {last !== null && <Step text="Last" off={!more} go={() => onOffset(last)} />}
      </div>
    </nav>
  );
}

interface CursorPagerProps {
  nouns: string;
  /** Where the pages before began, the first one with ''; the last entry is this page's. */
  trail: readonly string[];
  /** Where the next page begins; null: this is the last one. */
  next: string | null;
  onTrail: (trail: readonly string[]) => void;
}

/** Pages by a cursor that the broker gives: forward, and back along the way that one came. */
export function CursorPager({ nouns, trail, next, onTrail }: CursorPagerProps) {
  if (trail.length <= 1 && next === null) return null;
  return (
    <nav class="pager" aria-label={`Pages of ${nouns}`}>
      <span role="status">Page {whole(trail.length)}</span>
      <div class="actions">
        <Step text="First" off={trail.length <= 1} go={() => onTrail([''])} />
        <Step text="Previous" off={trail.length <= 1} go={() => onTrail(trail.slice(0, -1))} />
        <Step text="Next" off={next === null} go={() => onTrail([...trail, next!])} />
      </div>
    </nav>
  );
}

/** A button of a pager. */
export function Step({ text, off, go }: { text: string; off: boolean; go: () => void }) {
  return (
    <button type="button" class="button small" aria-disabled={off} onClick={() => !off && go()}>
      {text}
    </button>
  );
}
