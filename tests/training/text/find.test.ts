import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import type { TextEnvironmentModel } from '../../../src/environments/text.ts'
import { findTextEnvironment } from '../../../src/training/run/conversation-run.ts'
import { temporaryFolder } from '../../support/temporary.ts'

test('a text environment is found by its id, or by the path of the module that exports it', async () => {
  const { example } = (await findTextEnvironment('text/reverse'))() as unknown as TextEnvironmentModel
  const { prompt, answer } = example(4)
  expect(prompt).toBe(`${[...answer!].reverse().join('')}=`)
  expect((await findTextEnvironment('text/dataset')).id).toBe('text/dataset')

  const path = join(await temporaryFolder(), 'own.mjs')
  const own = "export const own = Object.assign(() => ({ id: 'text/own' }), { id: 'text/own', settings: {} })"
  await writeFile(path, own)
  expect((await findTextEnvironment(path))().id).toBe('text/own')
})

test('one that is not there is an error that names the nearest, or the module', async () => {
  await expect(findTextEnvironment('text/revers')).rejects.toThrow(/"text\/revers".*did you mean "text\/reverse"/)
  await expect(findTextEnvironment('./nowhere.mjs')).rejects.toThrow(/nowhere\.mjs/)
  const path = join(await temporaryFolder(), 'none.mjs')
  await writeFile(path, 'export const nothing = 1')
  await expect(findTextEnvironment(path)).rejects.toThrow(/none\.mjs/)
})
