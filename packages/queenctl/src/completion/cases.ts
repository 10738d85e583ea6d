import type { CompletedOption, Names, Tree } from './tree.ts';

/** What bash and zsh write alike: branches of a `case`. */

/** From a place to the next one, by `$at/$word`. */
export function stepCases({ places }: Tree): string {
  return places
    .slice(1)
    .map(({ path, spellings }) => `      ${spellings.join('|')}) at="${path}" ;;\n`)
    .join('');
}

/** How a shell completes words, names that are asked for, or files. */
type Reply = (words: readonly string[], names: Names | null, isPath: boolean) => string;

/** After an option that takes a value, by the place and the word before: completes that value, and returns. */
export function valueCases({ places, globals }: Tree, reply: Reply): string {
  const valuesOf = (at: string, { short, long, takesValue, choices, names, isPath }: CompletedOption) => {
    if (!takesValue) return '';
    const flags = [short, long].filter((flag) => flag !== null).map((flag) => `${at}${flag}"`);
    return `    ${flags.join('|')}) ${reply(choices, names, isPath)}; return ;;\n`;
  };
  const own = places.flatMap(({ path, options }) => options.map((option) => valuesOf(`"${path} `, option)));
  return [...own, ...globals.map((option) => valuesOf('*" ', option))].join('');
}
