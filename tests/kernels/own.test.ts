import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import asc from 'assemblyscript/asc'
import { describe, expect, test } from 'vitest'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { createKernels, defineKernels, type OwnKernelsOptions } from '../../src/kernels/bind.ts'
import { temporaryFolder } from '../support/temporary.ts'

const SHARED = ['--enable', 'threads', '--sharedMemory', '--initialMemory', '1', '--maximumMemory', '65536']

/** A module that AssemblyScript makes of a text. */
async function compiled(text: string, memory = ['--importMemory', '--noExportMemory', ...SHARED]): Promise<URL> {
  const path = join(await temporaryFolder(), 'own.wasm')
  const words = ['own.ts', '--outFile', 'own.wasm', '--runtime', 'stub', '--enable', 'simd', ...memory]
  let made: Uint8Array | undefined
  const { error, stderr } = await asc.main(words, {
    readFile: (name: string) => (name === 'own.ts' ? text : null),
    writeFile: (name: string, data: Uint8Array | string) => {
      if (name === 'own.wasm') made = data as Uint8Array
    },
  })
  if (error) throw new Error(stderr.toString())
  await writeFile(path, made!)
  return pathToFileURL(path)
}

const TWICE = `export function twice(x: usize, length: i32): i32 {
  for (let i = 0; i < length; i++) store<f32>(x + (i << 2), load<f32>(x + (i << 2)) * 2)
  return length
}`
const plain = {
  twice(x: Float32Array): number {
    for (let i = 0; i < x.length; i++) x[i]! *= 2
    return -x.length // So that it can be told which of them was called.
  },
  half(x: Float32Array): void {
    for (let i = 0; i < x.length; i++) x[i]! /= 2
  },
}
const twice = compiled(TWICE)
const twins: NonNullable<OwnKernelsOptions<typeof plain>['twins']> = (body, at) => ({
  twice: (x) => body.twice!(at(x), x.length),
})
const plan = { before: column('f32', 5), x: column('f32', 3) }

describe('kernels of one’s own', () => {
  test('are compiled where they have a twin and the thread’s kernels are, and plain elsewhere', async () => {
    const own = defineKernels({ plain, compiled: await twice, twins })
    const { arena, columns } = takeArena(plan)
    columns.x.set([1, 2, 3])
    const [slow, fast] = (['plain', 'simd'] as const).map((build) => createKernels(arena.memory, build))
    expect(own(slow!).twice(columns.x)).toBe(-3)
    expect(own(fast!).twice(columns.x)).toBe(3)
    expect([...columns.x, ...columns.before]).toEqual([4, 8, 12, 0, 0, 0, 0, 0])
    own(fast!).half(columns.x)
    expect([...columns.x]).toEqual([2, 4, 6])
    expect(own(fast!)).toBe(own(fast!))
    const elsewhere = createKernels({ buffer: new ArrayBuffer(64) }, 'plain')
    expect(own(elsewhere).twice(Float32Array.of(1))).toBe(-1)
  })

  test('serve a memory that is not shared, as a page may have it, and come as bytes where there are no files', async () => {
    const bytes = new Uint8Array(await readFile(await twice))
    for (const compiled of [await twice, () => bytes]) {
      const own = defineKernels({ plain, compiled, twins })
      const memory = new WebAssembly.Memory({ initial: 1 })
      const x = new Float32Array(memory.buffer, 64, 2).fill(3)
      expect(own(createKernels(memory, 'simd')).twice(x)).toBe(2)
      expect([...x]).toEqual([6, 6])
      expect(own(createKernels(takeArena(plan).arena.memory, 'plain')).twice(x)).toBe(-2)
    }
    const broken = defineKernels({ plain, compiled: () => Uint8Array.of(1), twins })
    expect(() => broken(createKernels(takeArena(plan).arena.memory, 'simd'))).toThrow(/^compiled kernels: got /)
  })

  test('without a compiled module are plain in every build', () => {
    const { arena, columns } = takeArena(plan)
    expect(defineKernels({ plain })(createKernels(arena.memory, 'simd')).twice(columns.x)).toBe(-3)
  })

  test('refuse columns of another memory, as the others do', async () => {
    const own = defineKernels({ plain, compiled: await twice, twins })
    const { arena } = takeArena(plan)
    expect(() => own(createKernels(arena.memory, 'simd')).twice(new Float32Array(1))).toThrow(/outside the memory/)
  })

  test('refuse kernels that no thread has, and definitions that do not go together', async () => {
    const url = await twice
    const kernels = createKernels(takeArena(plan).arena.memory, 'simd')
    expect(() => defineKernels({ plain })({ ...kernels })).toThrow(/kernels: got .*as createKernels/)
    expect(() => defineKernels({ plain, compiled: url })).toThrow(
      /compiled alone, expected twins and compiled together/,
    )
    expect(() => defineKernels({ plain, twins })).toThrow(/twins alone/)
    expect(() => defineKernels({ plain: null as never })).toThrow(/plain: got null/)
    const other = defineKernels({ plain, compiled: url, twins: () => ({ thrice: () => 1 }) as never })
    expect(() => other(kernels)).toThrow(/twins: got thrice, expected names of plain: twice, half/)
    const none = defineKernels({ plain, compiled: url, twins: (body) => ({ twice: body.thrice as never }) })
    expect(() => none(kernels)).toThrow(/twins\.twice: got undefined, expected a function/)
  })

  test('refuse a module that would write over columns, imports more, or has a memory of its own', async () => {
    const kernels = createKernels(takeArena(plan).arena.memory, 'simd')
    const bound = (url: URL) => () => defineKernels({ plain, compiled: url, twins })(kernels)
    const data = `const table = memory.data<f32>([1, 2, 3])\n${TWICE}\nexport function at(i: i32): f32 { return load<f32>(table + (i << 2)) }`
    expect(bound(await compiled(data))).toThrow(/data at byte \d+, expected a module without data/)
    const imports = `declare function log(x: f32): void\n${TWICE}\nexport function tell(x: f32): void { log(x) }`
    expect(bound(await compiled(imports))).toThrow(/imports .*own\.log.*, expected one import, env\.memory/)
    expect(bound(await compiled(TWICE, []))).toThrow(/imports nothing, expected one import/)
    const unshared = ['--importMemory', '--noExportMemory']
    expect(bound(await compiled(TWICE, unshared))).toThrow(/expected a module for a shared memory/)
    expect(bound(new URL('./nowhere.wasm', import.meta.url))).toThrow(/nowhere\.wasm: got ENOENT/)
  })
})
