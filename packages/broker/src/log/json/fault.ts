/** A request body that cannot be taken. `message` is the sentence for the caller, without a prefix. */
export class BodyFault extends Error {
  /** Path of the field that is wrong, like `items[3].queue`; empty when the body as a whole is. */
  readonly field: string;

  constructor(field: string, message: string) {
    super(message);
    this.name = 'BodyFault';
    this.field = field;
  }
}
