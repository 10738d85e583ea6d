import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import fc from 'fast-check';
import { readSchemaFiles } from '../../src/store/schema.ts';
import { splitStatements } from '../../src/store/statements.ts';

const texts = (script: string): string[] => splitStatements(script).map((statement) => statement.text);

suite('cutting a script into statements', () => {
  const CASES: readonly (readonly [name: string, script: string, statements: readonly string[]])[] = [
    ['nothing', '', []],
    ['only comments', '-- a;\n/* b; */ ;; ', []],
    ['two', 'SELECT 1; SELECT 2', ['SELECT 1', 'SELECT 2']],
    ['a quote', "SELECT 'a;''b'; SELECT 2", ["SELECT 'a;''b'", 'SELECT 2']],
    ['a backslash in a plain string', "SELECT '\\'; SELECT 2", ["SELECT '\\'", 'SELECT 2']],
    ['a backslash in an escape string', "SELECT E'\\';'; SELECT 2", ["SELECT E'\\';'", 'SELECT 2']],
    ['an escape string in small letters', "SELECT e'\\\\'; SELECT 2", ["SELECT e'\\\\'", 'SELECT 2']],
    ['a word that ends in e before a string', "SELECT date'\\'; SELECT 2", ["SELECT date'\\'", 'SELECT 2']],
    ['a unicode string', "SELECT U&'\\0061;'; SELECT 2", ["SELECT U&'\\0061;'", 'SELECT 2']],
    ['a quoted name', 'SELECT 1 AS "a;""b"; SELECT 2', ['SELECT 1 AS "a;""b"', 'SELECT 2']],
    ['a dollar quote', 'SELECT $$a;$b$;$$; SELECT 2', ['SELECT $$a;$b$;$$', 'SELECT 2']],
    [
      'a tagged dollar quote',
      'SELECT $x$ $$;$$ $X$; $x$; SELECT 2',
      ['SELECT $x$ $$;$$ $X$; $x$', 'SELECT 2'],
    ],
    ['a parameter', 'SELECT $1; SELECT $2', ['SELECT $1', 'SELECT $2']],
    ['dollars inside a word', 'SELECT a$$b; SELECT c$$', ['SELECT a$$b', 'SELECT c$$']],
    ['a number before a word', 'SELECT 1e5; SELECT 2', ['SELECT 1e5', 'SELECT 2']],
    ['a line comment', 'SELECT 1 -- no; end\n; SELECT 2', ['SELECT 1 -- no; end', 'SELECT 2']],
    ['a quote in a comment', "SELECT 1 -- don't\n; SELECT 2", ["SELECT 1 -- don't", 'SELECT 2']],
    [
      'nested comments',
      'SELECT /* a /* b; */ c; */ 1; SELECT 2',
      ['SELECT /* a /* b; */ c; */ 1', 'SELECT 2'],
    ],
    ['operators', 'SELECT 1 - -1, 4 / 2 * 2; SELECT 2', ['SELECT 1 - -1, 4 / 2 * 2', 'SELECT 2']],
    [
      'a function body in standard form',
      `CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END; SELECT 3`,
      [
        'CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT CASE WHEN true THEN 1 END; SELECT 2; END',
        'SELECT 3',
      ],
    ],
    [
      'comments belong to what follows',
      '-- why\nSELECT 1; -- then\nSELECT 2;',
      ['-- why\nSELECT 1', '-- then\nSELECT 2'],
    ],
  ];
  for (const [name, script, expected] of CASES) {
    test(name, () => assert.deepEqual(texts(script), expected));
  }

  test('the line is that of the first word', () => {
    assert.deepEqual(
      splitStatements('-- head\n\nSELECT 1;\n/* x\n y */ SELECT\n 2;').map((statement) => statement.line),
      [3, 5],
    );
  });

  for (const script of ["SELECT 'a", 'SELECT "a', '\n\nSELECT $x$ a $$', '/* /* */', "SELECT E'\\'"]) {
    test(`not closed: ${JSON.stringify(script)}`, () => {
      assert.throws(() => texts(script), SyntaxError);
    });
  }

  test('any sequence of pieces is cut exactly at the semicolons between them', () => {
    // The separators of a piece are inside something; a piece never ends in what the next one could continue.
    const inner = fc.string({
      unit: fc.constantFrom('a', ';', "'", '"', '$', '\\', '-', '*', '/', '\n', 'é'),
    });
    const piece = fc.oneof(
      inner.map((value) => `'${value.replaceAll("'", "''")}'`),
      inner.map((value) => `E'${value.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`),
      inner.map((value) => `"${value.replaceAll('"', '""')}"`),
      inner.map((value) => `$q$${value.replaceAll('$', '%')}$q$`),
      inner.map((value) => `$$${value.replaceAll('$', '%')}$$`),
      inner.map((value) => `--${value.replaceAll('\n', ' ')}\n`),
      inner.map((value) => `/*${value.replaceAll('*', '+').replaceAll('/', '|')}/* ; */*/`),
      fc.constantFrom('select', 'x$1', '$1', '(', ')', '1', '+', '::', 'e', 'é'),
    );
    const body = fc.array(piece, { maxLength: 6 }).map((pieces) => `SELECT ${pieces.join(' ')}`);
    fc.assert(
      fc.property(fc.array(body), fc.boolean(), (bodies, trailing) => {
        const script = bodies.join(';') + (trailing ? ';' : '');
        assert.deepEqual(
          texts(script),
          bodies.map((statement) => statement.trim()),
        );
      }),
      { numRuns: 2_000 },
    );
  });

  test("the broker's own files: the pieces put together are the file", async () => {
    const files = await readSchemaFiles();
    assert.ok(files.length > 0);
    for (const { name, text } of files) {
      const statements = splitStatements(text);
      assert.ok(statements.length > 0, name);
      assert.equal(
        statements
          .map((statement) => statement.text)
          .join(';')
          .replaceAll(/\s/g, ''),
        text.replaceAll(/\s/g, '').replace(/;$/, ''),
        name,
      );
    }
  });
});
