import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, expect, test } from 'vitest'
import { defineCommand } from '../../src/base/invocation.ts'
import { inProcess } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

const SETTINGS = new URL('../../dist/src/entries/settings.js', import.meta.url).href
let folder: string
beforeEach(async () => {
  folder = await temporaryFolder()
})

const written = async (text: string, name = 'own.mjs') =>
  writeFile(join(folder, name), `import { defineCommand, integer, readKeys, splitWords } from '${SETTINGS}'\n${text}`)

test('a command of one’s own is given its words, and whether to print', async () => {
  await written(`export const own = defineCommand('own', async ({ words, json, quiet }) => {
    const { subject, texts } = splitWords(words, 'a thing')
    if (!json && !quiet) console.log('for people')
    return { subject, ...readKeys({ from: integer(2, 'where to begin') }, texts) }
  })`)
  expect((await inProcess(['./own.mjs', 'a'], folder)).stdout).toBe('for people\n')
  expect((await inProcess(['./own.mjs', 'a', '--quiet'], folder)).stdout).toBe('')
  expect((await inProcess(['./own.mjs', 'a', 'from=5', '--json'], folder)).stdout).toBe('{"subject":"a","from":5}\n')
  const wrong = await inProcess(['./own.mjs', 'a', 'form=5'], folder)
  expect([wrong.code, wrong.stderr]).toEqual([1, expect.stringMatching(/key: got "form".*did you mean "from"/)])
})

test('one that is none, or answers with none, is an error that says so', async () => {
  expect((await inProcess(['./nowhere.mjs'], folder)).stderr).toMatch(
    /command module: got .*nowhere\.mjs, expected an existing file/,
  )
  expect((await inProcess(['trian'], folder)).stderr).toMatch(/did you mean "train".*or the path of a module/)
  await written('export const nothing = 1')
  expect((await inProcess(['./own.mjs'], folder)).stderr).toMatch(/command module .*exactly one export with an id/)
  await written("export const own = defineCommand('own', async () => 3)", 'wrong.mjs')
  const { stderr, code } = await inProcess(['./wrong.mjs', '--json'], folder)
  expect([stderr, code]).toEqual([expect.stringMatching(/answer of \.\/wrong\.mjs: got 3, expected an object/), 1])
  expect(() => defineCommand('', async () => ({}))).toThrow(/command id/)
  expect(() => defineCommand('own', 3 as never)).toThrow(/command own: got 3/)
})
