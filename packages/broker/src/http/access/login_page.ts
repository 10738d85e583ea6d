import { createHash } from 'node:crypto';

/**
 * The page that asks for a token. It checks it against /auth/me and keeps it for the tab, where the dashboard finds it as
 * `queen.token`. Nothing is loaded from anywhere, and the policy lets nothing else run.
 */
const SCRIPT = `
const form = document.querySelector('form'), note = document.querySelector('output');
async function look(token) {
  const answer = await fetch('/auth/me', token ? { headers: { authorization: 'Bearer ' + token } } : {});
  return { ok: answer.ok, body: await answer.json() };
}
function done() { location.replace('/'); }
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const token = new FormData(form).get('token').trim();
  const { ok, body } = await look(token);
  if (!ok) { note.textContent = body.error; return; }
  sessionStorage.setItem('queen.token', token);
  done();
});
look(null).then(({ ok }) => { if (ok) done(); });
`;
const STYLE = `
body { font: 16px/1.5 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto; padding: 0 1rem; }
textarea { width: 100%; height: 8rem; box-sizing: border-box; font: 13px/1.4 monospace; }
button { margin: .5rem 0; padding: .3rem 1rem; font: inherit; }
output { display: block; color: #b00020; }
`;

export const LOGIN_PAGE = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Queen: sign in</title><style>${STYLE}</style></head>
<body><h1>Queen</h1><form><label for="token">Access token (JWT)</label>
<textarea id="token" name="token" required autofocus spellcheck="false"></textarea>
<button>Sign in</button><output></output></form><script>${SCRIPT}</script></body></html>
`;

const sha256 = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

export const LOGIN_PAGE_POLICY = [
  "default-src 'none'",
  `script-src ${sha256(SCRIPT)}`,
  `style-src ${sha256(STYLE)}`,
  "connect-src 'self'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ');
