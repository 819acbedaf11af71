import { mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { InputError } from '../src/base/errors.ts'
import { cannotWrite, makeFolder, writeWhole } from '../src/base/files/files.ts'
import { temporaryFolder } from './support/temporary.ts'

let folder: string
beforeEach(async () => {
  folder = await temporaryFolder()
})

function* breaking(): Generator<string> {
  yield 'half of the new '
  throw new Error('the source broke')
}

async function* breakingLater(): AsyncGenerator<Uint8Array> {
  yield Buffer.from('half of the new ')
  throw new Error('the source broke')
}

describe('writeWhole', () => {
  test('writes texts and bytes one after the other, and leaves no temporary file', async () => {
    const path = join(folder, 'a')
    await writeWhole(path, ['one, ', Buffer.from('two, '), new Uint8Array(), 'drei: ü'])
    expect(await readFile(path, 'utf8')).toBe('one, two, drei: ü')
    expect(await readdir(folder)).toEqual(['a'])
  })

  test('writes what an asynchronous source gives', async () => {
    async function* chunks() {
      for (const letter of ['a', 'b', 'c']) yield Buffer.from(letter)
    }
    await writeWhole(join(folder, 'a'), chunks())
    expect(await readFile(join(folder, 'a'), 'utf8')).toBe('abc')
  })

  test('makes the folders that are missing', async () => {
    await writeWhole(join(folder, 'x/y/z/a'), ['deep'])
    expect(await readFile(join(folder, 'x/y/z/a'), 'utf8')).toBe('deep')
  })

  test('replaces a longer file by a shorter one', async () => {
    const path = join(folder, 'a')
    await writeWhole(path, ['x'.repeat(100_000)])
    await writeWhole(path, ['short'])
    expect(await readFile(path, 'utf8')).toBe('short')
  })

  test.each([
    ['source', breaking],
    ['asynchronous source', breakingLater],
  ])('leaves the old file as it was when the %s breaks, and removes the temporary file', async (_, chunks) => {
    const path = join(folder, 'a')
    await writeFile(path, 'the old file')
    const writing = writeWhole(path, chunks())
    await expect(writing).rejects.toThrow(InputError)
    await expect(writing).rejects.toThrow(`${path}: got an error (the source broke), expected a writable path`)
    expect(await readFile(path, 'utf8')).toBe('the old file')
    expect(await readdir(folder)).toEqual(['a'])
  })

  test('leaves nothing behind where no file was and the source breaks', async () => {
    await expect(writeWhole(join(folder, 'a'), breaking())).rejects.toThrow('the source broke')
    expect(await readdir(folder)).toEqual([])
  })

  test('refuses the path of a folder, and leaves the folder alone', async () => {
    await mkdir(join(folder, 'a'))
    await writeFile(join(folder, 'a/b'), 'kept')
    await expect(writeWhole(join(folder, 'a'), ['x'])).rejects.toThrow(InputError)
    expect(await readdir(folder)).toEqual(['a'])
    expect(await readFile(join(folder, 'a/b'), 'utf8')).toBe('kept')
  })

  test('names a path through a file, and leaves that file alone', async () => {
    await writeFile(join(folder, 'file'), 'kept')
    const writing = writeWhole(join(folder, 'file/a'), ['x'])
    await expect(writing).rejects.toThrow(InputError)
    await expect(writing).rejects.toThrow(/file\/a: got a path (through|that is taken).+, expected a writable path/)
    expect(await readFile(join(folder, 'file'), 'utf8')).toBe('kept')
  })
})

describe('makeFolder', () => {
  test('makes a folder, those above it, and is content with one that is there', async () => {
    const path = join(folder, 'a/b/c')
    await makeFolder(path)
    await makeFolder(path)
    await makeFolder(join(folder, 'a'))
    expect((await stat(path)).isDirectory()).toBe(true)
  })

  test('refuses a path through a file, and one that is a file', async () => {
    await writeFile(join(folder, 'file'), 'kept')
    await expect(makeFolder(join(folder, 'file/a'))).rejects.toThrow('ENOTDIR')
    await expect(makeFolder(join(folder, 'file/a/b'))).rejects.toThrow('ENOTDIR')
    await expect(makeFolder(join(folder, 'file'))).rejects.toThrow('EEXIST')
    expect(await readFile(join(folder, 'file'), 'utf8')).toBe('kept')
  })

  test('refuses a link that leads nowhere', async () => {
    await symlink(join(folder, 'nowhere'), join(folder, 'link'))
    await expect(makeFolder(join(folder, 'link'))).rejects.toThrow(/EEXIST|ENOENT/)
    await expect(makeFolder(join(folder, 'link/a'))).rejects.toThrow(/EEXIST|ENOENT/)
  })

  test.runIf(process.platform === 'linux')('refuses a folder that the system will not make, and returns', async () => {
    await expect(makeFolder('/proc/colonnade/a/b')).rejects.toThrow('ENOENT')
  })

  test('may be called for neighbors at the same time', async () => {
    const paths = Array.from({ length: 20 }, (_, i) => join(folder, `a/b/c/${i}`))
    await Promise.all(paths.map(makeFolder))
    expect(await readdir(join(folder, 'a/b/c'))).toHaveLength(20)
  })
})

describe('cannotWrite', () => {
  test.each([
    ['ENOSPC', 'a disk that is full'],
    ['EDQUOT', 'a disk quota that is used up'],
    ['EACCES', 'a folder without permission to write'],
    ['EPERM', 'a folder without permission to write'],
    ['EROFS', 'a file system that is read-only'],
    ['ENOTDIR', 'a path through something that is not a folder'],
    ['EIO', 'an error'],
  ])('says of %s that it is %s, and keeps the cause', (code, reason) => {
    const cause = Object.assign(new Error(`${code}: what the system said`), { code })
    const error = cannotWrite('some/file', cause)
    expect(error).toBeInstanceOf(InputError)
    expect(error.message).toBe(`some/file: got ${reason} (${code}: what the system said), expected a writable path`)
    expect(error.cause).toBe(cause)
  })

  test('passes on an error that says what is wrong already', () => {
    const error = new InputError('x', 'y', 'z')
    expect(cannotWrite('some/file', error)).toBe(error)
  })
})
