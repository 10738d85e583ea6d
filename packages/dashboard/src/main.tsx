import { render } from 'preact';
import './styles/tokens.css';
import './styles/base.css';
import './styles/shell.css';
import './styles/parts.css';
import './styles/forms.css';
import { startRouter } from './router.ts';
import { routeOf } from './routes.ts';
import { App } from './shell/app.tsx';
import { startTheme } from './theme.ts';

startTheme();
startRouter((path) => routeOf(path) !== null);
render(<App />, document.getElementById('app')!);
