/** Folders as zip files. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { zipSync } from 'fflate'
import { describe, expect, test } from 'vitest'
import { listFiles, unzipFolder } from '../../../src/base/files/zip.ts'
import { InputError } from '../../../src/index.ts'
import { temporaryFolder } from '../../support/temporary.ts'

describe('the zip of a run', () => {
  const text = (words: string) => new TextEncoder().encode(words)

  test('is unpacked without the folder that its entries begin with, and without what systems add', async () => {
    const folder = await temporaryFolder()
    const entries = { 'a/': text(''), 'a/one': text('1'), 'a/b/two': text('2'), 'a/.DS_Store': text('3') }
    await unzipFolder(zipSync(entries), join(folder, 'new'))
    expect(['one', 'b/two'].map((name) => readFileSync(join(folder, 'new', name), 'utf8'))).toEqual(['1', '2'])
    await unzipFolder(zipSync({ one: text('1'), 'b/two': text('2') }), join(folder, 'flat'))
    expect(readFileSync(join(folder, 'flat/b/two'), 'utf8')).toBe('2')
  })

  test('is refused where its files lie elsewhere, where it is damaged, and where its folder exists', async () => {
    const folder = await temporaryFolder()
    const to = join(folder, 'new')
    for (const name of ['a/../../b', '/etc/b', 'a\\b']) {
      await expect(unzipFolder(zipSync({ [name]: text('1') }), to)).rejects.toThrow(/expected a path below it/)
    }
    await expect(unzipFolder(text('no zip'), to)).rejects.toThrow(
      /zip for .*new: got a file that cannot be unpacked \(invalid zip data\)/,
    )
    await expect(unzipFolder(zipSync({ one: text('1') }), folder)).rejects.toThrow(/a path that exists/)
    const cut = zipSync({ one: text('1'.repeat(5000)) }).map((byte, i) => (i > 40 && i < 50 ? 255 : byte))
    await expect(unzipFolder(cut, to)).rejects.toThrow(/cannot be unpacked/)
    const none = zipSync({ one: text('1') }).map((byte, i, { length }) => (i === length - 22 + 8 ? 0 : byte))
    await expect(unzipFolder(none, to)).rejects.toThrow(/its directory is damaged/)
    expect(() => readFileSync(to)).toThrow(/ENOENT/)
  })

  test('is the same files, or refused, whatever byte of it is damaged', async () => {
    const folder = await temporaryFolder()
    const files = {
      'r/a': text('ab'.repeat(9)),
      'r/b/1': [text('stored'), { level: 0 }],
    } as const
    const zip = zipSync(files as never)
    let refused = 0
    for (let at = 0; at < zip.length; at++) {
      const to = join(folder, String(at))
      const damaged = zip.map((byte, i) => (i === at ? byte ^ (1 << (at % 8)) : byte))
      try {
        await unzipFolder(damaged, to)
      } catch (error) {
        expect(error).toBeInstanceOf(InputError)
        refused++
        continue
      }
      const found = (await listFiles(to)).map((path) => [path.slice(to.length), readFileSync(path, 'utf8')])
      expect(new Map(found as [string, string][]), `byte ${at}`).toEqual(
        new Map([
          ['/a', 'ab'.repeat(9)],
          ['/b/1', 'stored'],
        ]),
      )
    }
    expect(refused).toBeGreaterThan(zip.length / 3)
  })
})
