/** Which symbols a shared library exports, read from its bytes. */
import { existsSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { describe, expect, test } from 'vitest'

const { readExports } = (await import(new URL('../scripts/native-exports.mjs', import.meta.url).href)) as {
  readExports(bytes: Buffer): { os: string; cpu: string | undefined; names: string[]; signed: boolean }
}
const registered = ['napi_register_module_v1', 'node_api_module_get_api_version_v1']

describe('exports of a shared library', () => {
  /** The trie that `zig cc` 0.15 wrote into the addon for macOS on ARM. */
  const TRIE =
    '00015f000500026e000d5f004a00026170695f72656769737465725f6d6f64756c655f7631006a6f64655f6170695f6d6f64756c655f6765745f' +
    '6170695f76657273696f6e5f7631007000026d685f64796c69625f68656164657200765f64736f5f68616e646c65007c04009096020004008896' +
    '02000400e08507000400e0850700000000000000'

  /** A library for macOS on ARM with these commands, then the trie. */
  function machO(commands: readonly (readonly number[])[]): Buffer {
    const header = [0xfeedfacf, 0x0100000c, 0, 6, commands.length, commands.flat().length * 4, 0, 0]
    return Buffer.concat([
      Buffer.from(Uint32Array.from([...header, ...commands.flat()]).buffer),
      Buffer.from(TRIE, 'hex'),
    ])
  }
  const size = TRIE.length / 2

  test('of macOS stand in a trie, which either of two commands names', () => {
    const expected = { os: 'darwin', cpu: 'arm64', names: [...registered, '_mh_dylib_header', '__dso_handle'] }
    const inDyldInfo = machO([[0x80000022, 48, 0, 0, 0, 0, 0, 0, 0, 0, 80, size]])
    expect(readExports(inDyldInfo)).toEqual({ ...expected, signed: false })
    const apart = machO([
      [0x80000033, 16, 64, size],
      [0x1d, 16, 0, 0],
    ])
    expect(readExports(apart)).toEqual({ ...expected, signed: true })
  })

  const addon = fileURLToPath(new URL('../dist/native/native.node', import.meta.url))
  test.runIf(process.platform === 'linux' && existsSync(addon))('of Linux are those that are defined', () => {
    const { os, cpu, names } = readExports(readFileSync(addon))
    expect([os, cpu]).toEqual(['linux', process.arch])
    expect(names.toSorted()).toEqual(registered)
  })

  test('of anything else are refused', () => {
    expect(() => readExports(Buffer.alloc(64))).toThrow(
      'shared library: got bytes that begin with 00000000, expected ELF, Mach-O or PE',
    )
  })
})
