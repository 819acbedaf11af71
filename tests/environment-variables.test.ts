import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { environmentVariables } from '../src/base/environment-variables.ts'
import { helpOf } from '../src/cli/words/help.ts'

const root = new URL('..', import.meta.url).pathname

test('environment variables are read in one file alone, by names that it declares', () => {
  const files = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.ts'),
  )
  const text = (name: string) => readFileSync(join(root, 'src', name), 'utf8')
  // Whichever way it is written: process.env, process['env'], { env } = process, an import of node:process.
  const reads =
    /process\s*(\?\.|\.|\[\s*['"])\s*env\b|\benv\b[^=\n]*\}\s*=\s*process\b|from 'node:process'|Deno\.env|Bun\.env/
  expect(files.filter((name) => reads.test(text(name)))).toEqual(['base/environment-variables.ts'])
  const used = files.flatMap((name) =>
    [...text(name).matchAll(/environmentVariable\('([A-Z\d_]+)'\)/g)].map(([, found]) => found),
  )
  const constants = ['COLONNADE_GATEWAY_KEY', 'TRACKIO_WRITE_TOKEN']
  expect([...new Set([...used, ...constants])].sort()).toEqual(Object.keys(environmentVariables).sort())
})

test('the table of the documentation and that of the help are of all of them', async () => {
  const rows = Object.entries(environmentVariables)
  const documented = [...readFileSync(join(root, 'docs/cli.md'), 'utf8').matchAll(/^\| `([A-Z\d_]+)` \| (.+) \|$/gm)]
  expect(documented.map(([, name, sentence]) => [name, sentence])).toEqual(rows)
  const help = (await helpOf('environment', []))!
  for (const [name, sentence] of rows) expect(help).toContain(`\n  ${name.padEnd(36)} ${sentence}`)
})
