import { defineConfig } from 'vite';

/** `npm run dev -w packages/dashboard`: the page with what changes at once, over the broker of QUEEN_URL. */
const BROKER = process.env.QUEEN_URL ?? 'http://127.0.0.1:6632';

export default defineConfig({
  root: import.meta.dirname,
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    // light-dark() and nesting as they are written.
    cssTarget: ['chrome123', 'firefox121', 'safari17.5'],
    modulePreload: { polyfill: false },
    // The page's policy allows nothing inline.
    assetsInlineLimit: 0,
    reportCompressedSize: false,
  },
  server: {
    proxy: Object.fromEntries(
      ['/api', '/auth', '/health', '/metrics', '/status'].map((path) => [path, BROKER]),
    ),
  },
});
