// Runs with every `npm ci`, so that a broker started after it has its page. An install never fails for want of it: the
// broker works without, and says at / how to build it.
try {
  const { build } = await import('./build.mjs');
  await build({ quiet: true });
} catch (error) {
  const missing = error?.code === 'ERR_MODULE_NOT_FOUND';
  const why = missing ? 'the packages for development are not installed' : String(error?.message ?? error);
  console.warn(
    `The dashboard is not built: ${why}. The broker runs without it; "npm run build -w packages/dashboard" builds it.`,
  );
}
