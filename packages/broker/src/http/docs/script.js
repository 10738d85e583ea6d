// Runs in the browser. The token is kept for the tab, under the name that the dashboard knows.
const KEY = 'queen.token';
const SHOWN_CHARACTERS = 200_000;
const $ = (id) => document.getElementById(id);
const routes = [...document.querySelectorAll('details.route')];

for (const place of document.querySelectorAll('[data-origin]')) place.textContent = location.origin;

// ---- the token ---------------------------------------------------------------------------------------

function authorization() {
  const token = sessionStorage.getItem(KEY);
  return token === null ? {} : { authorization: `Bearer ${token}` };
}

/** Asks for a token where the broker does, and says who is calling. */
async function lookAround() {
  const answer = await fetch('/auth/me', { headers: authorization() });
  const caller = await answer.json();
  const note = $('caller');
  $('access').hidden = answer.ok && caller.standalone;
  $('forget').hidden = sessionStorage.getItem(KEY) === null;
  note.className = answer.ok ? '' : 'bad';
  note.textContent = answer.ok
    ? `${caller.user.name ?? 'Somebody'}, ${caller.roles.join(', ') || 'without a role'}`
    : sessionStorage.getItem(KEY) === null
      ? 'This broker asks for a token.'
      : caller.error;
}

$('access').addEventListener('submit', (event) => {
  event.preventDefault();
  const token = $('token').value.trim();
  if (token !== '') sessionStorage.setItem(KEY, token);
  $('token').value = '';
  lookAround().catch(() => {});
});
$('forget').addEventListener('click', () => {
  sessionStorage.removeItem(KEY);
  lookAround().catch(() => {});
  $('token').focus();
});
lookAround().catch(() => {});

// ---- finding ------------------------------------------------------------------------------------------

$('filter').addEventListener('input', () => {
  const words = $('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const route of routes) {
    const text = route.querySelector('summary').textContent.toLowerCase();
    route.hidden = !words.every((word) => text.includes(word));
    if (!route.hidden) found++;
  }
  for (const section of document.querySelectorAll('main > section:has(details.route)'))
    section.hidden = section.querySelector('details.route:not([hidden])') === null;
  $('found').textContent = words.length === 0 ? '' : `${found} of ${routes.length} routes`;
});

/** What is linked to is open. */
function openTarget() {
  const target = $(decodeURIComponent(location.hash.slice(1)));
  if (target?.tagName !== 'DETAILS') return;
  target.open = true;
  target.scrollIntoView();
}
addEventListener('hashchange', openTarget);
openTarget();

// ---- trying -------------------------------------------------------------------------------------------

let described;

/** The document, asked for once. */
function openApi() {
  described ??= fetch('/openapi.json').then((answer) => answer.json());
  return described;
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** A labelled field; `kind` is where its value goes: path, query or header. */
function field(id, kind, { name, required }) {
  const input = element('input', {
    id,
    name,
    required: required === true,
    autocomplete: 'off',
    spellcheck: false,
  });
  input.dataset.kind = kind;
  return [element('label', { htmlFor: id }, `${name}${required ? ' (required)' : ''}`), input];
}

async function build(route) {
  const place = route.querySelector('.try');
  if (place.childElementCount > 0) return;
  const { path, method } = route.dataset;
  const document = await openApi();
  const operation = document.paths[path][method.toLowerCase()];
  const parameters = (operation.parameters ?? []).map((each) =>
    each.$ref === undefined ? each : document.components.parameters[each.$ref.split('/').at(-1)],
  );
  if (place.childElementCount > 0) return;
  const form = element('form', {});
  parameters.forEach((parameter, i) => {
    form.append(...field(`${route.id}-${i}`, parameter.in, parameter));
  });
  if (operation.requestBody !== undefined) {
    const id = `${route.id}-body`;
    const text = element('textarea', { id, name: 'body', spellcheck: false, value: place.dataset.body });
    form.append(element('label', { htmlFor: id }, 'Body'), text);
  }
  const answer = element('output', { hidden: true });
  answer.setAttribute('aria-live', 'polite');
  form.append(element('button', {}, 'Send'));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    answer.hidden = false;
    send(form, method, path, answer).catch((error) => {
      answer.className = 'bad';
      answer.textContent = `No answer: ${error.message}`;
    });
  });
  place.append(element('h4', {}, 'Try it'), form, answer);
}

/** A key may have slashes, which stay. */
function segments(value) {
  return value.split('/').map(encodeURIComponent).join('/');
}

async function send(form, method, path, answer) {
  const query = new URLSearchParams();
  const headers = { ...authorization() };
  let target = path;
  for (const input of form.querySelectorAll('input')) {
    const { name, value } = input;
    const { kind } = input.dataset;
    if (kind === 'path') {
      const last = target.endsWith(`/{${name}}`) && /^(key|timerKey)$/.test(name);
      target = target.replace(`{${name}}`, () => (last ? segments(value) : encodeURIComponent(value)));
    } else if (value === '') continue;
    else if (kind === 'query') query.append(name, value);
    else headers[name] = value;
  }
  const text = form.elements.namedItem('body')?.value ?? '';
  const url = query.size === 0 ? target : `${target}?${query}`;
  const init = { method, headers, cache: 'no-store', ...(text === '' ? {} : { body: text }) };
  answer.className = '';
  answer.textContent = 'Sent…';
  const start = performance.now();
  const response = await fetch(url, init);
  const body = await response.text();
  const took = Math.round(performance.now() - start);
  answer.textContent = '';
  const pre = element('pre', { tabIndex: 0 }, pretty(body));
  answer.append(element('p', {}, `${response.status} ${response.statusText}, ${took} ms`), pre);
  if (response.status === 401) lookAround().catch(() => {});
}

/** Indented only when nothing is lost by reading it: a long number keeps its digits. */
function pretty(text) {
  let shown = text;
  try {
    const value = JSON.parse(text);
    if (JSON.stringify(value) === text) shown = JSON.stringify(value, null, 2);
  } catch {
    // Shown as it came.
  }
  return shown.length > SHOWN_CHARACTERS ? `${shown.slice(0, SHOWN_CHARACTERS)}…` : shown;
}

for (const route of routes) {
  route.addEventListener('toggle', () => {
    if (route.open) build(route).catch(() => {});
  });
}
