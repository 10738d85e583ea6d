/** What the store needs of a logger; a pino logger fits. */
export interface StoreLog {
  info(facts: object, message: string): void;
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

export const silentLog: StoreLog = { info() {}, warn() {}, error() {} };
