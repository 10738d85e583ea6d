/**
 * Loaded into a broker before its own modules: its wall clock is wrong by QUEEN_TEST_SKEW_MS milliseconds, every other
 * second by as much in the other direction if QUEEN_TEST_STROBE is set. The monotonic clock stays what it is.
 */
const skewMs = Number(process.env.QUEEN_TEST_SKEW_MS ?? 0);
const strobe = process.env.QUEEN_TEST_STROBE !== undefined;
// The broker warns of QUEEN_ variables that it does not know.
delete process.env.QUEEN_TEST_SKEW_MS;
delete process.env.QUEEN_TEST_STROBE;

const real = Date.now;
const skewed = (): number => {
  const now = real();
  return now + (strobe && Math.floor(now / 1000) % 2 === 1 ? -skewMs : skewMs);
};
Date.now = skewed;
const RealDate = Date;
globalThis.Date = new Proxy(RealDate, {
  construct: (target, args) => (args.length === 0 ? new target(skewed()) : Reflect.construct(target, args)),
});
