import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, test, vi } from 'vitest'
import { compileKernels, createKernels, defineKernels } from '../../src/kernels/bind.ts'
import { inProcess } from '../support/command.ts'
import * as fc from '../support/properties.ts'
import { temporaryFolder } from '../support/temporary.ts'

const FALL = `export function fall(height: usize, speed: usize, from: i32, to: i32): void {
  for (let n = from; n < to; n++) {
    const faster = load<f32>(speed + (n << 2)) - <f32>0.25
    store<f32>(speed + (n << 2), faster)
    store<f32>(height + (n << 2), max<f32>(load<f32>(height + (n << 2)) + faster, 0))
  }
}`
const plain = {
  fall(height: Float32Array, speed: Float32Array, from: number, to: number): void {
    for (let n = from; n < to; n++) {
      speed[n] = speed[n]! - 0.25
      height[n] = Math.max(height[n]! + speed[n]!, 0)
    }
  },
}

async function file(text: string): Promise<string> {
  const path = join(await temporaryFolder(), 'fall.simd.ts')
  await writeFile(path, text)
  return path
}

describe('colonnade compile', () => {
  test('makes a module whose step is bound beside the plain one, and does what that does', async () => {
    const source = await file(FALL)
    const out = source.replace('.simd.ts', '.wasm')
    const { code, stdout } = await inProcess(['compile', source])
    expect([code, stdout]).toEqual([0, `${out}: fall\n`])
    const own = defineKernels({
      plain,
      compiled: pathToFileURL(out),
      twins: (body, at) => ({
        fall: (height, speed, from, to) => void body.fall!(at(height), at(speed), from, to),
      }),
    })
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 65536, shared: true })
    const [height, speed] = [new Float32Array(memory.buffer, 64, 9), new Float32Array(memory.buffer, 128, 9)]
    const kernels = own(createKernels(memory, 'simd'))
    expect(kernels.fall).not.toBe(plain.fall)
    const numbers = fc.array(fc.float({ noNaN: true, min: -1e6, max: 1e6 }), { minLength: 9, maxLength: 9 })
    fc.assert(
      fc.property(numbers, numbers, fc.nat(9), fc.nat(9), (heights, speeds, from, to) => {
        const wanted = [Float32Array.from(heights), Float32Array.from(speeds)] as const
        plain.fall(...wanted, from, to)
        height.set(heights)
        speed.set(speeds)
        kernels.fall(height, speed, from, to)
        // 0 and −0 are told apart nowhere in a step.
        expect([height, speed].map((each) => Array.from(each, (x) => x + 0))).toEqual(
          wanted.map((each) => Array.from(each, (x) => x + 0)),
        )
      }),
    )
  })

  test('writes where it is told, and says as JSON what it wrote', async () => {
    const source = await file(FALL)
    const out = join(await temporaryFolder(), 'lander', 'own.wasm')
    const { stdout } = await inProcess(['compile', source, `out=${out}`, '--json'])
    expect(JSON.parse(stdout)).toEqual({ out, kernels: ['fall'] })
    expect(await readdir(join(out, '..'))).toEqual(['own.wasm'])
  })

  test.each([
    [
      'what is no AssemblyScript',
      'export function f(: i32 {',
      /fall\.simd\.ts: got ERROR TS1[\s\S]*a file of AssemblyScript/,
    ],
    ['data', `const text = 'abc'\nexport function f(i: i32): i32 { return text.charCodeAt(i) }`, /without data/],
  ])('refuses %s, and writes nothing', async (_, text, message) => {
    const source = await file(text)
    const { code, stderr } = await inProcess(['compile', source])
    expect(code).toBe(1)
    expect(stderr).toMatch(message)
    expect(await readdir(join(source, '..'))).toEqual(['fall.simd.ts'])
  })

  test('refuses other words', async () => {
    const attempt = async (...words: string[]) => (await inProcess(['compile', ...words])).stderr
    expect(await attempt()).toMatch(/first word: got nothing/)
    expect(await attempt('fall.js')).toMatch(/first word: got fall\.js/)
    expect(await attempt('fall.ts', 'into=fall.wasm')).toMatch(/into/)
    expect(await attempt('none.ts')).toMatch(/none\.ts/)
  })

  test('says what to install where AssemblyScript is not', async () => {
    vi.doMock('../../src/base/files/packages.ts', async (original) => {
      const packages = await original<typeof import('../../src/base/files/packages.ts')>()
      return { ...packages, importPackage: (name: string) => packages.importPackage(name, undefined, ['/']) }
    })
    await expect(compileKernels(await file(FALL), 'fall.wasm')).rejects.toThrow(/npm install --save-dev assemblyscript/)
    vi.doUnmock('../../src/base/files/packages.ts')
  })
})
