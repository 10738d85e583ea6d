/**
 * The page that shows the OpenAPI document: made of it on the server, so that it can be read without a script, with its
 * style and script inside, so that a broker without a way out to the internet has all of it. The script filters, fills in
 * where the broker is, asks for a token where one is needed, and sends requests.
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Html, html, prose, words } from './html.ts';
import { factsOf, membersOf, nameOf, type Reader, type Schema, typeOf } from './schema.ts';

interface Media {
  readonly schema: Schema;
  readonly example?: unknown;
}

interface Response {
  readonly $ref?: string;
  readonly description: string;
  readonly headers?: Readonly<Record<string, { readonly description: string }>>;
  readonly content?: Readonly<Record<string, Media>>;
}

interface Parameter {
  readonly $ref?: string;
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description?: string;
  readonly schema: Schema;
}

interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly required: boolean; readonly content: Readonly<Record<string, Media>> };
  readonly responses: Readonly<Record<string, Response>>;
  readonly 'x-queen-access': string;
  readonly 'x-queen-roles': readonly string[];
}

export interface Document {
  readonly info: { readonly version: string; readonly description: string };
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly responses: Readonly<Record<string, Response>>;
    readonly parameters: Readonly<Record<string, Parameter>>;
  };
}

interface Placed {
  readonly method: string;
  readonly path: string;
  readonly operation: Operation;
}

/** Where a broker is, until the script puts in where this one is. */
const ORIGIN = 'http://127.0.0.1:6632';
const INDENT = 2;

/** The page, and the policy that it is to be sent with. */
export function docsPage(document: Document): { html: string; policy: string } {
  const style = readFileSync(new URL('./style.css', import.meta.url), 'utf8');
  const script = readFileSync(new URL('./script.js', import.meta.url), 'utf8');
  const all: Placed[] = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  );
  const page = html`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Queen: the HTTP interface</title><style>${new Html(style)}</style></head>
<body><a class="skip" href="#main">To the routes</a>
<header><div><h1>Queen <small>${document.info.version}</small></h1>
<p>The HTTP interface. <a href="/openapi.json">openapi.json</a>, <a href="/">dashboard</a></p></div>
<form id="access" hidden><label for="token">Access token</label><input id="token" type="password" autocomplete="off" spellcheck="false">
<button>Use it</button><button id="forget" type="button" hidden>Forget it</button><output id="caller" for="token"></output></form></header>
<div class="columns"><nav aria-label="Sections"><label for="filter">Filter routes</label><input id="filter" type="search" autocomplete="off" spellcheck="false">
<p id="found" role="status"></p><ul>${document.tags.map(
    ({ name }) => html`<li><a href="#${anchor(name)}">${name}</a></li>`,
  )}<li><a href="#refusals">Refusals</a></li><li><a href="#schemas">Schemas</a></li></ul></nav>
<main id="main" tabindex="-1">${prose(document.info.description)}
${document.tags.map((tag) => section(tag, all, document))}
<section id="refusals"><h2>Refusals</h2><p>What many routes answer.</p>${Object.entries(
    document.components.responses,
  ).map(
    ([name, { description }]) =>
      html`<details id="refusal-${name}"><summary><h3>${refusalStatus(name, all)}</h3> ${words(firstLine(description))}</summary><div class="inside">${prose(
        description,
      )}</div></details>`,
  )}</section>
<section id="schemas"><h2>Schemas</h2>${Object.entries(document.components.schemas).map(
    ([name, schema]) =>
      html`<details id="schema-${name}"><summary><h3>${name}</h3></summary><div class="inside"><p>${typeOf(schema)}</p>${prose(
        schema.description ?? '',
      )}${membersOf(schema, 'sender')}</div></details>`,
  )}</section></main></div>
<script>${new Html(script)}</script></body></html>
`;
  const policy = [
    "default-src 'none'",
    `script-src ${sha256(script)}`,
    `style-src ${sha256(style)}`,
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
  return { html: page.text, policy };
}

function sha256(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

function anchor(name: string): string {
  return name.toLowerCase().replaceAll(' ', '-');
}

function section(tag: Document['tags'][number], all: readonly Placed[], document: Document): Html {
  const own = all.filter(({ operation }) => operation.tags.includes(tag.name));
  if (own.length === 0) return html``;
  return html`<section id="${anchor(tag.name)}"><h2>${tag.name}</h2><p>${tag.description}</p>${own.map(
    (placed) => route(placed, document),
  )}</section>`;
}

function route(placed: Placed, document: Document): Html {
  const { method, path, operation } = placed;
  const level = operation['x-queen-access'];
  const roles = operation['x-queen-roles'];
  const parameters = (operation.parameters ?? []).map((each) => resolved(each, document));
  const body = operation.requestBody?.content['application/json'];
  return html`<details class="route" id="${operation.operationId}" data-method="${method}" data-path="${path}">
<summary><h3><span class="method ${method.toLowerCase()}">${method}</span> <code>${breakable(path)}</code></h3> <span class="what">${operation.summary}</span> <span class="level">${level}</span></summary>
<div class="inside">${operation.description === undefined ? null : prose(operation.description)}
<p class="roles">${
    roles.length === 0 ? 'Open to everybody.' : html`Where tokens are asked for: ${roles.join(', ')}.`
  }</p>
${parameters.length === 0 ? null : html`<h4>Parameters</h4><dl class="members">${parameters.map(parameter)}</dl>`}
${
  body === undefined
    ? null
    : html`<h4>Body${operation.requestBody!.required ? '' : ', if any'}</h4><p>${typeOf(body.schema)}</p>${members(body.schema, document, 'sender')}`
}
<h4>With curl</h4><pre tabindex="0"><code>${curl(placed, body)}</code></pre>
<h4>Answers</h4>${answersOf(operation, document)}
<div class="try" data-body="${body === undefined ? '' : JSON.stringify(body.example ?? {}, null, INDENT)}"></div></div></details>`;
}

/** A long path may be broken after its slashes. */
function breakable(path: string): Html {
  return html`${path.split('/').map((part, i) => (i === 0 ? part : html`/<wbr>${part}`))}`;
}

function resolved<T extends { $ref?: string }>(thing: T, document: Document): T {
  if (thing.$ref === undefined) return thing;
  const path = thing.$ref.slice(2).split('/');
  return path.reduce((at: unknown, key) => (at as Record<string, unknown>)[key], document) as T;
}

function parameter({ name, in: where, required, description, schema }: Parameter): Html {
  return html`<dt><code>${name}</code>${required ? html` <span class="required">required</span>` : null} <span class="type">${where}, ${typeOf(schema)}</span></dt>
<dd>${description === undefined ? null : words(description)} ${factsOf(schema)}</dd>`;
}

/** A component is shown where it is used, one level deep; what it refers to is a link. */
function members(schema: Schema, document: Document, reader: Reader): Html | null {
  const { $ref, items } = schema;
  if ($ref !== undefined) return membersOf(resolved(schema, document), reader);
  if (items?.$ref !== undefined) return membersOf(resolved(items, document), reader);
  return membersOf(schema, reader);
}

/** What many routes refuse in the same way is shown once, below all of them. */
function answersOf({ responses }: Operation, document: Document): Html {
  const all = Object.entries(responses);
  const own = all.filter(([, response]) => response.$ref === undefined);
  const shared = all.filter(([, response]) => response.$ref !== undefined);
  const links = shared.map(
    ([status, { $ref }], i) => html`${i === 0 ? '' : ', '}<a href="#refusal-${nameOf($ref!)}">${status}</a>`,
  );
  return html`${own.map(([status, response]) => answer(status, response, document))}${
    shared.length === 0 ? null : html`<p>As other routes: ${links}.</p>`
  }`;
}

function answer(status: string, { description, content, headers }: Response, document: Document): Html {
  const media = Object.entries(content ?? {});
  const refused = Number(status) >= 400;
  return html`<details class="answer"${refused ? null : html` open`}><summary><strong>${status}</strong> ${words(firstLine(description))}</summary><div class="inside">
${refused ? prose(description) : null}${Object.entries(headers ?? {}).map(
  ([name, header]) => html`<p><code>${name}</code>: ${header.description}</p>`,
)}${media.map(
  ([type, { schema, example }]) =>
    html`<p><code>${type}</code>: ${typeOf(schema)}</p>${refused ? null : members(schema, document, 'receiver')}${
      example === undefined
        ? null
        : html`<pre tabindex="0"><code>${JSON.stringify(example, null, INDENT)}</code></pre>`
    }`,
)}</div></details>`;
}

/** The status that a shared refusal is answered with. */
function refusalStatus(name: string, all: readonly Placed[]): string | undefined {
  for (const { operation } of all) {
    for (const [status, { $ref }] of Object.entries(operation.responses)) {
      if ($ref !== undefined && nameOf($ref) === name) return status;
    }
  }
  return undefined;
}

function firstLine(text: string): string {
  const line = text.split('\n')[0]!;
  return text.includes('\n') && line.endsWith('.') ? line.slice(0, -1) : line;
}

/** A call that can be copied into a shell. */
function curl({ method, path, operation }: Placed, body: Media | undefined): Html {
  const own = (operation.parameters ?? []).filter((each) => each.$ref === undefined);
  const place = path.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
    String(exampleOf(own, name) ?? name.toUpperCase()),
  );
  const query = own
    .filter(({ in: where, required }) => where === 'query' && required)
    .map(({ name }) => `${name}=${name.toUpperCase()}`)
    .join('&');
  const target = `${place}${query === '' ? '' : `?${query}`}`;
  const verb = method === 'GET' ? '' : `-X ${method} `;
  const sent = body?.example === undefined ? '' : ` \\\n  -d ${quoted(JSON.stringify(body.example))}`;
  return html`curl ${verb}'<span data-origin>${ORIGIN}</span>${target}'${sent}`;
}

function exampleOf(parameters: readonly Parameter[], name: string): unknown {
  const schema = parameters.find((each) => each.name === name)?.schema as
    | { examples?: unknown[] }
    | undefined;
  return schema?.examples?.[0];
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
