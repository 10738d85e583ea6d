/**
 * Pictures of pages against references that somebody has looked at (test/screenshots). Fonts, times and numbers differ from
 * run to run and from machine to machine, so squares are compared by their mean and by whether there is anything in them:
 * what is found is a part of the page that is missing, or stands elsewhere.
 *
 *   QUEEN_TEST_SCREENSHOTS=keep npm run test:browser -- screenshots    makes new ones; look at them before you commit them
 */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';

const PLACE = join(import.meta.dirname, 'screenshots');
/** Pixels. */
const SQUARE = 40;
/** Of 255, how far the mean of a square may be off. */
const TOLERANCE = 16;
/** Part of a square that is marked: so much where there was nothing is a difference. */
const INK = 0.02;
/** Part of the squares that may differ. */
const DIFFERENT_MAX = 0.12;

/** Compares what the window shows with the reference of that name. */
export async function resembles(page: Page, name: string): Promise<void> {
  const path = join(PLACE, `${name}.png`);
  const now = await page.screenshot({ animations: 'disabled', caret: 'hide' });
  if (process.env.QUEEN_TEST_SCREENSHOTS === 'keep') {
    mkdirSync(PLACE, { recursive: true });
    writeFileSync(path, now);
    return;
  }
  assert.ok(existsSync(path), `there is no reference ${name}: see screenshots.ts`);
  const different = await difference(page, readFileSync(path), now);
  assert.ok(different <= DIFFERENT_MAX, `${name}: ${Math.round(different * 100)} % of it looks different`);
}

/** The part of the squares that differ: 0 to 1; 1 when the sizes do. */
export function difference(page: Page, one: Buffer, other: Buffer): Promise<number> {
  const bytes = [one, other].map((png) => png.toString('base64'));
  return page.evaluate(
    async ({ bytes: [first, second], square, tolerance, ink }) => {
      /** Of each square the mean colour, and which part of it is not ground: text, lines, drawings. */
      async function squares(base64: string) {
        const raw = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
        const image = await createImageBitmap(new Blob([raw], { type: 'image/png' }));
        const { width, height } = image;
        const context = new OffscreenCanvas(width, height).getContext('2d')!;
        context.drawImage(image, 0, 0);
        const found: { mean: number; ink: number }[] = [];
        for (let y = 0; y + square <= height; y += square) {
          for (let x = 0; x + square <= width; x += square) {
            const { data } = context.getImageData(x, y, square, square);
            const light: number[] = [];
            for (let at = 0; at < data.length; at += 4)
              light.push((data[at]! + data[at + 1]! + data[at + 2]!) / 3);
            const ground = light.toSorted((a, b) => a - b)[light.length >> 1]!;
            const marked = light.filter((value) => Math.abs(value - ground) > 24).length;
            found.push({
              mean: light.reduce((sum, value) => sum + value) / light.length,
              ink: marked / light.length,
            });
          }
        }
        return { width, height, found };
      }
      const [a, b] = await Promise.all([squares(first!), squares(second!)]);
      if (a.width !== b.width || a.height !== b.height) return 1;
      const differ = a.found.filter((one, n) => {
        const two = b.found[n]!;
        const appeared = Math.max(one.ink, two.ink) > ink && Math.min(one.ink, two.ink) === 0;
        return appeared || Math.abs(one.mean - two.mean) > tolerance;
      });
      return differ.length / a.found.length;
    },
    { bytes, square: SQUARE, tolerance: TOLERANCE, ink: INK },
  );
}
