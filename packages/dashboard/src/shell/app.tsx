/** Around every page: navigation, the page itself, and what appears over it. */
import type { FunctionComponent } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { learnIdentity } from '../api/identity.ts';
import { tokenVersion } from '../api/token.ts';
import { Questions } from '../components/dialog.tsx';
import { Empty, Loading, Page } from '../components/page.tsx';
import { Toasts } from '../components/toasts.tsx';
import { usePlace } from '../router.ts';
import { type PageComponent, type PageParams, type Route, routeOf } from '../routes.ts';
import { useStore } from '../store.ts';
import { Navigation } from './navigation.tsx';
import { TokenPrompt } from './token_prompt.tsx';

export function App() {
  const { path } = usePlace();
  const version = useStore(tokenVersion);
  // Another token may be somebody else.
  useEffect(() => void learnIdentity(), [version]);
  return (
    <>
      <a class="skip button primary" href="#main">
        Skip to the content
      </a>
      <div class="shell">
        <Navigation path={path} />
        <main id="main" tabIndex={-1}>
          <Outlet path={path} />
        </main>
      </div>
      <TokenPrompt />
      <Questions />
      <Toasts />
    </>
  );
}

const loaded = new Map<Route, PageComponent>();

function Outlet({ path }: { path: string }) {
  const found = routeOf(path);
  const route = found?.route ?? null;
  const [, setLoaded] = useState<Route | null>(null);
  const [failed, setFailed] = useState<Route | null>(null);
  useEffect(() => {
    if (route === null || loaded.has(route)) return;
    route.load().then(
      ({ default: component }) => {
        loaded.set(route, component);
        setLoaded(route);
      },
      () => setFailed(route),
    );
  }, [route]);
  if (found === null) return <Settled key={path} component={NotFound} params={{}} />;
  const component = loaded.get(found.route);
  if (component !== undefined) return <Settled key={path} component={component} params={found.params} />;
  return failed === found.route ? <NotLoaded /> : <Loading />;
}

let first = true;

/** A page that is there. After a change of page its heading gets the focus, as it would with a new document. */
function Settled({ component, params }: { component: PageComponent; params: PageParams }) {
  const Shown = component as FunctionComponent<{ params: PageParams }>;
  const mounted = useRef(false);
  useLayoutEffect(() => {
    if (mounted.current) return;
    mounted.current = true;
    if (!first) {
      scrollTo(0, 0);
      document.querySelector<HTMLElement>('main h1')?.focus({ preventScroll: true });
    }
    first = false;
  }, []);
  return <Shown params={params} />;
}

function NotFound() {
  return (
    <Page title="There is no such page">
      <Empty title="Nothing has this address">
        <a href="/">Go to the overview</a>
      </Empty>
    </Page>
  );
}

/** The broker was replaced by one with another build, or does not answer. */
function NotLoaded() {
  return (
    <Page title="The page could not be loaded">
      <Empty title="The broker did not send this part of the dashboard">
        <p>It may have been updated, or be away for a moment.</p>
        <button type="button" class="button" onClick={() => location.reload()}>
          Load again
        </button>
      </Empty>
    </Page>
  );
}
