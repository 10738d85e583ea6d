/** A stored document that this broker's rules do not take, as far as it may be shown: without anything called a password. */
import { isObject } from '../document/reading.ts';

const SECRET = /password/i;

export function renderUnreadable(name: string, json: unknown): Record<string, unknown> {
  const shown = isObject(json) ? (withoutSecrets(json) as Record<string, unknown>) : {};
  return { ...shown, name };
}

function withoutSecrets(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutSecrets);
  if (!isObject(value)) return value;
  const entries = Object.entries(value)
    .filter(([key]) => !SECRET.test(key) && key !== 'url')
    .map(([key, member]) => [key, withoutSecrets(member)] as const);
  return {
    ...Object.fromEntries(entries),
    ...(Object.hasOwn(value, 'passwordSealed') ? { passwordSet: true } : {}),
  };
}
