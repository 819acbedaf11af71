import { existsSync, readFileSync } from 'node:fs'
import ts from 'typescript'
import { describe, expect, test } from 'vitest'

const root = new URL('..', import.meta.url)
const document = readFileSync(new URL('docs/text-checks.md', root), 'utf8')
const rows = document
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.endsWith('| tests |'))
  .map((line) => line.split(' | ') as [string, string])

/** Names of the tests of a file, as the calls have them: `test('name', …)`, `test.each(…)('name', …)`, `thorough('name', …)`. */
function namesOf(file: string): Set<string> {
  const url = new URL(file, root)
  if (!existsSync(url)) return new Set()
  const source = ts.createSourceFile(file, readFileSync(url, 'utf8'), ts.ScriptTarget.Latest, true)
  const names = new Set<string>()
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node) && /^(test|thorough)\b/.test(node.expression.getText(source))) {
      const [name] = node.arguments
      if (name !== undefined && ts.isStringLiteralLike(name)) names.add(name.text)
    }
    ts.forEachChild(node, visit)
  }
  visit(source)
  return names
}

describe('the tables of what is checked of text', () => {
  test('have no test that is not there: each file and name is found', () => {
    const found = new Map<string, Set<string>>()
    const cited = rows.flatMap(([, tests]) => [...tests.matchAll(/`([^`]+)` “([^”]+)”/g)])
    expect(cited.length).toBeGreaterThan(100)
    const missing = cited.filter(([, file, name]) => {
      if (!found.has(file!)) found.set(file!, namesOf(file!))
      return !found.get(file!)!.has(name!)
    })
    expect(missing.map(([text]) => text)).toEqual([])
  })

  test('have no row without a test, or a sentence that says why there is none', () => {
    const other = rows.filter(([, tests]) => {
      const rest = tests.replace(/ \|$/, '').split('<br>')
      return !rest.every((each) => /^`[^`]+` “[^”]+”$/.test(each)) && !tests.startsWith('not applicable, because ')
    })
    expect(other).toEqual([])
  })
})
