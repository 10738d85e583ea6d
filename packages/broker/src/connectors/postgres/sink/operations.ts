/** What one message does to the table, before it is known which statement does it. */

export type OperationKind =
  | 'append'
  /** `INSERT … ON CONFLICT` does it: the row that would be inserted is a legal one. */
  | 'upsert'
  /** The row that would be inserted may not be legal, so one that exists is updated first. */
  | 'partial'
  | 'delete'
  | 'move'
  | 'truncate'
  | 'statement';

/** What the planner must know of an operation. */
export interface Planned {
  readonly kind: OperationKind;
  /** Operations of one kind and shape can share a statement: they name the same columns. */
  readonly shape: string;
  /** Rows that it touches, by the text of their keys. */
  readonly keys: readonly string[];
  /** Size of what it sends. */
  readonly bytes: number;
}

/** Which columns a statement fills, and from what. Indexes into the target's columns. */
export interface Shape {
  readonly id: string;
  /** Converted from the message's record. */
  readonly columns: readonly number[];
  /** Columns of type `json` that take the characters of the message, which a conversion might spell anew. */
  readonly raw: readonly number[];
  /** Filled from facts of the message. */
  readonly metadata: readonly number[];
}

export interface RowOperation extends Planned {
  readonly kind: 'append' | 'upsert' | 'partial' | 'delete' | 'move';
  readonly columnsOf: Shape;
  /** JSON objects, one for each record set of the statement (see statements.ts). */
  readonly records: readonly Buffer[];
}

export interface TruncateOperation extends Planned {
  readonly kind: 'truncate';
  readonly restartIdentity: boolean;
}

export interface StatementOperation extends Planned {
  readonly kind: 'statement';
  readonly values: readonly (string | null)[];
}

export type Operation = RowOperation | TruncateOperation | StatementOperation;
