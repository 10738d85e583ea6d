/** A broker and a page that looks at it. */
import { after, before } from 'node:test';
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from 'playwright-core';
import { browserPath } from '../../../test/kit/browser.ts';

let browser: Browser | undefined;

/** One browser for a file; each test has a context of its own, with its own storage. */
export function useBrowser(): void {
  before(async () => {
    browser = await chromium.launch({
      executablePath: browserPath(),
      // The sandbox needs rights that containers do not have; nothing but our own page is opened.
      args: ['--no-sandbox', '--disable-dev-shm-usage'],
    });
  });
  after(() => browser?.close());
}

export interface Seen {
  page: Page;
  context: BrowserContext;
  /** What the page logged as an error, and what it threw. */
  faults: string[];
}

interface OpenOptions extends BrowserContextOptions {
  /** The page asks for everything once, as in a tab that nobody sees: for what must not depend on how long it all takes. */
  once?: boolean;
}

/** A new page on `url`. Its context is closed with the test. */
export async function open(
  t: { after(fn: () => unknown): void },
  url: string,
  { once = false, ...options }: OpenOptions = {},
): Promise<Seen> {
  const context = await browser!.newContext({ baseURL: url, locale: 'en-GB', timezoneId: 'UTC', ...options });
  t.after(() => context.close());
  context.setDefaultTimeout(20_000);
  const page = await context.newPage();
  if (once) await page.addInitScript("Object.defineProperty(document, 'hidden', { value: true })");
  const faults: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error') faults.push(message.text());
  });
  page.on('pageerror', (error) => faults.push(String(error)));
  return { page, context, faults };
}
