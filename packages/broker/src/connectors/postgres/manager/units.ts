/** The one place that knows what runs a document of each kind. */
import type { ConnectorDocument } from '../document/types.ts';
import { ConnectorFault } from '../fault.ts';
import type { Unit, UnitContext } from '../unit.ts';

export type CreateUnit = (context: UnitContext<ConnectorDocument>) => Unit;

export const createUnit: CreateUnit = () => {
  throw new ConnectorFault('config', 'not built yet');
};
