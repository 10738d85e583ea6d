/** The outcome of a run as a table for people and as JSON for machines: goals first, then every figure. */
import type { Machine } from './rig.ts';
import type { Goal, Result, Row, Workload } from './workload.ts';

export interface Report {
  date: string;
  mode: 'full' | 'quick';
  machine: Machine;
  workloads: { name: string; about: string; result: Result }[];
}

export function met(goal: Goal): boolean {
  return goal.better === 'above' ? goal.value >= goal.target : goal.value <= goal.target;
}

/** Three significant digits, no more than a measurement on a shared machine is worth. */
function figure(value: number): string {
  if (!Number.isFinite(value)) return '–';
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString('en-US');
  return value === 0 ? '0' : String(Number(value.toPrecision(3)));
}

function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}

function goals(report: Report): string {
  const all = report.workloads.flatMap((workload) => workload.result.goals);
  const rows = all.map((goal) => {
    const unit = goal.unit === '' ? '' : ` ${goal.unit}`;
    const bound = goal.better === 'above' ? 'at least' : 'at most';
    return [
      goal.what,
      `${figure(goal.value)}${unit}`,
      `${bound} ${goal.target}${unit}`,
      met(goal) ? 'yes' : '**no**',
    ];
  });
  return table(['goal', 'measured', 'target', 'met'], rows);
}

function figures(rows: Row[]): string {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row.figures)))];
  return table(
    ['', ...names],
    rows.map((row) => [row.what, ...names.map((name) => figure(row.figures[name] ?? Number.NaN))]),
  );
}

export function markdown(report: Report): string {
  const { machine } = report;
  const parts = [
    `${report.date.slice(0, 10)}, ${report.mode} run: ${machine.cores} cores (${machine.cpu}), ${machine.memoryGb} GB, Node ${machine.node}, PostgreSQL ${machine.postgres} with fsync and synchronous_commit; broker, database and load generator side by side.`,
    goals(report),
    ...report.workloads.map(
      ({ name, about, result }) => `### ${name}\n\n${capital(about)}.\n\n${figures(result.rows)}`,
    ),
  ];
  return parts.join('\n\n');
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

export function describe(workload: Workload, result: Result): Report['workloads'][number] {
  return { name: workload.name, about: workload.about, result };
}
