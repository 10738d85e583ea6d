/** The one place that knows what runs a document of each kind. */
import type { ConnectorDocument, SinkDocument, SourceDocument } from '../document/types.ts';
import { SinkUnit } from '../sink/unit.ts';
import { SourceUnit } from '../source/unit.ts';
import type { Unit, UnitContext } from '../unit.ts';

export type CreateUnit = (context: UnitContext<ConnectorDocument>) => Unit;

export const createUnit: CreateUnit = (context) => {
  switch (context.document.kind) {
    case 'source':
      return new SourceUnit(context as UnitContext<SourceDocument>);
    case 'sink':
      return new SinkUnit(context as UnitContext<SinkDocument>);
  }
};
