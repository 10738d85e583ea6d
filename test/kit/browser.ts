/** The browser of the tests: Debian's headless Chromium, which comes without a desktop. */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';

const PACKAGE = 'chromium-headless-shell';
const KNOWN_PATHS = [`/usr/bin/${PACKAGE}`, `/usr/lib/chromium/${PACKAGE}`];

/** QUEEN_TEST_BROWSER names another one. Throws a sentence that says what to do when there is none. */
export function browserPath(): string {
  const path = process.env.QUEEN_TEST_BROWSER ?? KNOWN_PATHS.find((each) => existsSync(each));
  if (path !== undefined) return path;
  throw new Error(
    `The tests in the browser need ${PACKAGE}: as root, apt-get install ${PACKAGE}; or name a Chromium in QUEEN_TEST_BROWSER.`,
  );
}

/** Installs it when it is missing and this is Debian's root. */
export async function haveBrowser(): Promise<void> {
  try {
    browserPath();
    return;
  } catch (error) {
    if (process.getuid?.() !== 0 || !existsSync('/usr/bin/apt-get')) throw error;
  }
  const apt = (...args: string[]) =>
    execFileSync('apt-get', ['-q', '-o', 'DPkg::Lock::Timeout=300', ...args], {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    });
  console.log(`installing ${PACKAGE}`);
  try {
    apt('install', '-y', '--no-install-recommends', PACKAGE);
  } catch {
    // The list of packages may be missing or old.
    apt('update');
    apt('install', '-y', '--no-install-recommends', PACKAGE);
  }
}
