/** axe-core in the page: what it finds against WCAG 2.2 A and AA and its best practices. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';

const SOURCE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** One line for each element that breaks a rule. */
export async function violations(page: Page): Promise<string[]> {
  // Not by a script element: the page's policy would refuse it.
  await page.evaluate(SOURCE);
  return page.evaluate(async () => {
    const { axe } = window as unknown as { axe: typeof import('axe-core') };
    const { violations: found } = await axe.run(document, { resultTypes: ['violations'] });
    return found.flatMap(({ id, help, nodes }) =>
      nodes.map(({ html, failureSummary }) => `${id}: ${help}: ${html} (${failureSummary})`),
    );
  });
}
