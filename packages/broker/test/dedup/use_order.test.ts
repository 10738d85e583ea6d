/** The order of use against an array. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type Linked, UseOrder } from '../../src/engine/dedup/use_order.ts';

class Item implements Linked<Item> {
  older: Item | null = null;
  newer: Item | null = null;
  readonly name: number;
  constructor(name: number) {
    this.name = name;
  }
}

test('entering, leaving and being used, in any order', () => {
  const steps = fc.array(fc.tuple(fc.constantFrom('add', 'remove', 'touch'), fc.nat(7)), { maxLength: 60 });
  fc.assert(
    fc.property(steps, (list) => {
      const items = Array.from({ length: 8 }, (_, name) => new Item(name));
      const order = new UseOrder<Item>();
      let model: number[] = [];
      for (const [step, name] of list) {
        const inside = model.includes(name);
        if (step === 'add' ? inside : !inside) continue;
        order[step as 'add' | 'remove' | 'touch'](items[name]!);
        model = model.filter((other) => other !== name);
        if (step !== 'remove') model.push(name);
        assert.deepEqual(
          [...order].map((item) => item.name),
          model,
        );
      }
    }),
  );
});
