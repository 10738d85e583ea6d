/** What the tests of pages do to a broker beside the page, and what they ask of every page. */
import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import { violations } from './axe.ts';

export class Wire {
  readonly url: string;
  readonly #headers: Record<string, string>;

  /** `token`: where the broker asks for one. */
  constructor(url: string, token?: string) {
    this.url = url;
    this.#headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  }

  /** Answers the JSON as text. Throws with what a refusal says. */
  async text(method: string, path: string, body?: unknown): Promise<string> {
    const sent = typeof body === 'string' || body === undefined ? body : JSON.stringify(body);
    const answer = await fetch(this.url + path, {
      method,
      headers: this.#headers,
      ...(sent === undefined ? {} : { body: sent }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return text;
  }

  async ask<T>(method: string, path: string, body?: unknown): Promise<T> {
    const text = await this.text(method, path, body);
    return (text === '' ? undefined : JSON.parse(text)) as T;
  }

  push(
    queue: string,
    partition: string,
    transactionIds: readonly string[],
    payload = '{"n":1}',
  ): Promise<string> {
    const items = transactionIds.map(
      (id) => `{"queue":"${queue}","partition":"${partition}","transactionId":"${id}","payload":${payload}}`,
    );
    return this.text('POST', '/api/v1/push', `{"items":[${items.join(',')}]}`);
  }

  /** Takes the next message of a group and gives it up. */
  async bury(queue: string, consumerGroup: string, error: string): Promise<void> {
    const query = `consumerGroup=${consumerGroup}&subscriptionMode=all&batch=1`;
    const { messages } = await this.ask<{
      messages: { transactionId: string; partitionId: string; leaseId: string }[];
    }>('GET', `/api/v1/pop/queue/${queue}?${query}`);
    const { transactionId, partitionId, leaseId } = messages[0]!;
    const ack = { consumerGroup, transactionId, partitionId, leaseId, status: 'dlq', error };
    await this.ask('POST', '/api/v1/ack', ack);
  }
}

/** Everything that was asked for is there, and drawn. */
export async function settled(page: Page): Promise<void> {
  await page.waitForFunction(
    () =>
      document.querySelector('.skeleton') === null &&
      [...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('canvas') !== null),
  );
}

/** The narrowest phone that is still about. */
const NARROW = { width: 390, height: 800 };

/** Nothing that keeps people out, light and wide, and dark on a phone, where nothing scrolls sideways. */
export async function fitForAll(page: Page): Promise<void> {
  const before = page.viewportSize()!;
  await page.emulateMedia({ colorScheme: 'light' });
  assert.deepEqual(await violations(page), [], `${page.url()} light`);
  await page.setViewportSize(NARROW);
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.deepEqual(await tooWide(page), [], `${page.url()} scrolls sideways on a narrow screen`);
  assert.deepEqual(await violations(page), [], `${page.url()} dark, on a narrow screen`);
  await page.setViewportSize(before);
}

/** By how much the page is wider than the window, and the elements that reach beyond it. Nothing: it is not. */
function tooWide(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const over = document.documentElement.scrollWidth - width;
    if (over <= 0) return [];
    const elements = [...document.querySelectorAll('body *')]
      .filter((element) => element.getBoundingClientRect().right > width + 1)
      .map((element) => element.outerHTML.slice(0, 120));
    return [`by ${over} pixels`, ...elements];
  });
}
