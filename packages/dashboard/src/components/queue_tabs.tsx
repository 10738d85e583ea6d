import { usePlace } from '../router.ts';
import { queuePath } from './messages.tsx';

/** The parts of a queue's pages. */
export function QueueTabs({ queue }: { queue: string }) {
  const { path } = usePlace();
  const tabs = [
    ['Partitions', queuePath(queue)],
    ['Settings', `${queuePath(queue)}/settings`],
  ] as const;
  return (
    <nav class="tabs" aria-label="Parts of the queue">
      {tabs.map(([text, to]) => (
        <a key={to} href={to} {...(path === to ? { 'aria-current': 'page' as const } : {})}>
          {text}
        </a>
      ))}
    </nav>
  );
}
