/** Hostile texts give the ids, and ids the texts, that the Rust library gives, for tokenizers of the published kinds. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { beforeAll, expect, test } from 'vitest'
import { loadTokenizer } from '../../src/language/tokenizers/load-tokenizer.ts'
import { hostileTexts } from '../support/hostile-texts.ts'
import { attempt, findPython, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const NUM_TEXTS = 200_000
const root = new URL('../..', import.meta.url).pathname

let python = ''
beforeAll(async () => {
  const found = await findPython(['tokenizers==0.23.3'], 'tokenizers')
  if ('why' in found) throw new Error(found.why)
  python = found.python
}, PYTHON_MS)

test('no text differs', { timeout: 7_200_000 }, async () => {
  const folder = await temporaryFolder()
  const texts = hostileTexts(NUM_TEXTS, 33)
  const pages = readdirSync(`${root}/docs`).filter((name) => name.endsWith('.md'))
  const corpus = [
    ...pages.flatMap((name) => readFileSync(`${root}/docs/${name}`, 'utf8').split('\n')),
    ...texts.slice(0, 3000),
  ]
  writeFileSync(`${folder}/corpus.json`, JSON.stringify(corpus))
  writeFileSync(`${folder}/texts.json`, JSON.stringify(texts))
  const { code, stderr } = await attempt(python, [`${root}/tests/support/hostile_tokenizers.py`, folder], 3_600_000)
  expect(code, stderr).toBe(0)
  const kinds = readdirSync(folder).filter((name) => name.endsWith('.jsonl'))
  expect(kinds).toHaveLength(12)
  for (const kind of kinds) {
    const tokenizer = await loadTokenizer(`${folder}/${kind.slice(0, -'.jsonl'.length)}`)
    const rows = readFileSync(`${folder}/${kind}`, 'utf8').trimEnd().split('\n')
    expect(rows).toHaveLength(texts.length)
    const wrong: string[] = []
    texts.forEach((text, i) => {
      const [ids, plain, decoded] = JSON.parse(rows[i]!)
      const differs = (name: string, own: unknown, given: unknown) => {
        if (String(own) !== String(given)) wrong.push(`${kind} ${name} ${JSON.stringify(text)}: ${own}, not ${given}`)
      }
      differs('ids', tokenizer.encode(text, { special: true }), ids)
      differs('plain', tokenizer.encode(text), plain)
      differs('text', tokenizer.decode(ids), decoded)
    })
    expect(wrong.length, wrong.slice(0, 3).join('\n')).toBe(0)
  }
})
