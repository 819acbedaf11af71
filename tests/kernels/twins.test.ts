import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import ts from 'typescript'
import { describe, expect, test } from 'vitest'
import { bestKernelBuild, createKernels } from '../../src/kernels/bind.ts'
import type { Kernels } from '../../src/kernels/kernels.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

interface Twin {
  readonly name: string
  readonly module: string
  readonly text: string
}

const script = new URL('../../scripts/kernel-twins.mjs', import.meta.url).href
const { readTwins, bindingOf } = (await import(script)) as {
  readTwins(registry?: string): Twin[]
  bindingOf(twins: readonly Twin[]): string
}

const folder = await temporaryFolder()

/** The twins of a registry with one kernel: what there is in C. */
function read(kernel: string, twin: string): Twin[] {
  const room = join(folder, 'room')
  mkdirSync(room, { recursive: true })
  writeFileSync(join(room, 'kernel.ts'), kernel)
  writeFileSync(join(room, 'kernel.native.c'), twin)
  const registry = join(folder, 'plain.ts')
  writeFileSync(registry, "export { kernel } from './room/kernel.ts'\n")
  return readTwins(registry)
}

/** What the bound kernel of a registry hands to its compiled body, whose columns lie at their first element. */
function handed(kernel: string, twin: string, given: readonly unknown[]): unknown[] {
  const { outputText } = ts.transpileModule(bindingOf(read(kernel, twin)), {
    compilerOptions: { module: ts.ModuleKind.CommonJS, target: ts.ScriptTarget.ES2022 },
  })
  const module = { exports: {} as Record<string, (...parts: unknown[]) => typeof members> }
  const members: { kernel?: (...given: readonly unknown[]) => unknown } = {}
  new Function('exports', outputText)(module.exports)
  let taken: unknown[] = []
  const body = { kernel: (...numbers: unknown[]) => taken.push('body', ...numbers) }
  const native = { kernel: (...numbers: unknown[]) => taken.push('native', ...numbers) }
  const plain = { kernel: (...values: unknown[]) => taken.push('plain', ...values) }
  const at = (column: Float32Array) => column[0]
  const result = module.exports.bindTwins!(body, at, plain, native).kernel!(...given)
  if (result !== undefined) taken = [...taken, 'returned', result]
  return taken
}

describe('what a twin is handed', () => {
  const x = Float32Array.of(100, 0, 0)
  const y = Float32Array.of(200, 0)

  test('columns as offsets, numbers and booleans as they are, in the order of the twin', () => {
    const plain = 'export function kernel(y: Float32Array, x: Float32Array, scale: number, adds: boolean): void {}'
    const twin = 'void KERNEL(kernel)(float *x, float *y, bool adds, double scale) {\n}'
    expect(handed(plain, twin, [y, x, 0.5, true])).toEqual(['body', 100, 200, true, 0.5])
  })

  test('the length of a column and the size of its elements where it asks for them, and not what it leaves out', () => {
    const plain =
      'export function kernel(x: Float32Array | Uint8Array, words: Uint32Array, _y: Float32Array): number { return 1 }'
    const twin = 'int32_t KERNEL(kernel)(float *x, int32_t xLength, int32_t xElementBytes, float *y) {\n}'
    const words = Uint32Array.of(300)
    expect(handed(plain, twin, [x, words, y])).toEqual(['body', 100, 3, 4, 200, 'returned', 5])
    expect(handed(plain, twin, [Uint8Array.of(7), words, y]).slice(0, 4)).toEqual(['body', 7, 1, 1])
  })

  test('as it is, or the native body where a call has work enough for one', () => {
    const plain = `interface Group { readonly rows: number; readonly width: number }
      export function kernel(x: Float32Array, group: Group): void {}`
    const source = (work: string) =>
      `WORTH(kernel, ${work}, 64)\nvoid KERNEL(kernel)(float *restrict x,\n  int32_t rows, int32_t width) {\n}`
    const call = (rows: number) => handed(plain, source('rows * width'), [x, { rows, width: 8 }])
    expect(call(7)).toEqual(['body', 100, 7, 8])
    expect(call(8)).toEqual(['native', 100, 8, 8])
    expect(() => read(plain, source('rows * x'))).toThrow('has a native body by x, which is no number of its twin')
  })

  test('the members of a group by their names', () => {
    const plain = `interface Group { readonly x: Float32Array; readonly scale: number }
      export function kernel(y: Float32Array, group: Group, numRows: number): void {}`
    const twin = 'void KERNEL(kernel)(float *y, float *x, int32_t xLength, double scale, int32_t numRows) {\n}'
    expect(handed(plain, twin, [y, { x, scale: 2 }, 9])).toEqual(['body', 200, 100, 3, 2, 9])
  })

  test('members by the name of their group, too, where names are shared', () => {
    const plain = `interface Group { readonly x: Float32Array; readonly y: Float32Array; readonly return: Float32Array }
      export function kernel(now: Group, old: Group, x: Float32Array): void {}`
    const twin = 'void KERNEL(kernel)(float *oldX, float *x, float *nowX, int32_t oldYLength, float *nowReturn) {\n}'
    const group = (first: number) => ({ x: Float32Array.of(first), y: new Float32Array(first), return: x })
    expect(handed(plain, twin, [group(1), group(2), y])).toEqual(['body', 2, 200, 1, 2, 100])
  })

  test('nothing where a column that may be of f64 is: the plain body is called', () => {
    const plain = `export function kernel(x: Float32Array | Float64Array, y: Float32Array | Float64Array): void {}`
    const twin = 'void KERNEL(kernel)(float *x, float *y) {\n}'
    expect(handed(plain, twin, [x, y])).toEqual(['body', 100, 200])
    const double = Float64Array.of(1)
    expect(handed(plain, twin, [x, double])).toEqual(['plain', x, double, 'returned', 3])
  })

  test('a kernel without a twin has no member', () => {
    expect(read('export function kernel(x: Float32Array): void {}', 'void KERNEL(other)(float *x) {\n}')).toEqual([])
    expect(read('export function kernel(x: Float32Array): void {}', 'static void kernel(float *x) {\n}')).toEqual([])
  })
})

describe('a twin that does not fit is refused by name', () => {
  const plain = 'export function kernel(x: Float32Array, scale: number, adds: boolean): void {}'
  const groups = 'export function kernel(a: { x: Float32Array }, b: { x: Float32Array }): void {}'
  const same = 'export function kernel(aX: Float32Array, a: { x: Float32Array }): void {}'
  const nameless = 'export function kernel({ x }: { x: Float32Array }): void {}'
  const text = 'export function kernel(x: string): void {}'
  const inside = 'export function kernel(group: { x: Float32Array; name: string }): void {}'
  const answer = 'export function kernel(x: Float32Array): string { return "" }'
  const misfits: [string, string, string][] = [
    [
      plain,
      'void KERNEL(kernel)(float *y)',
      'kernel takes y: float *, which its plain twin has not; it has x, scale, adds',
    ],
    [plain, 'void KERNEL(kernel)(float *scale)', 'kernel takes scale: float *, which is no number'],
    [plain, 'void KERNEL(kernel)(float x)', 'kernel takes x: float, which is no column'],
    [plain, 'void KERNEL(kernel)(int32_t adds)', 'kernel takes adds: int32_t, which is no boolean'],
    [
      plain,
      'void KERNEL(kernel)(int32_t scaleLength)',
      'kernel takes scaleLength: int32_t, which its plain twin has not',
    ],
    [plain, 'int32_t KERNEL(kernel)(float *x)', 'kernel returns int32_t, its plain twin void'],
    [groups, 'void KERNEL(kernel)(float *x)', 'kernel takes x: float *, which its plain twin has not; it has aX, bX'],
    [same, 'void KERNEL(kernel)(float *aX)', 'kernel has two parameters or members named aX'],
    [nameless, 'void KERNEL(kernel)(float *x)', 'kernel has a group without a name'],
    [text, 'void KERNEL(kernel)(float *x)', 'kernel has x: string, which is no column'],
    [inside, 'void KERNEL(kernel)(float *x)', 'kernel has group.name, which is no column, number or boolean'],
    [answer, 'int32_t KERNEL(kernel)(float *x)', 'kernel returns string, not a number'],
  ]

  test.each(rowsOf(misfits, 4))('%s, twin %s', (kernel, twin, message) => {
    expect(() => read(kernel, `${twin} {\n}`)).toThrow(message)
  })
})

test.each([
  ['void KERNEL(kernel)(uint8_t *x) {', 'kernel takes x: uint8_t *, which is float * in its plain twin'],
  ['void KERNEL(kernel)(float *x, double y) {', 'kernel takes y: double, which its plain twin has not; it has x'],
  ['int32_t KERNEL(kernel)(float *x) {', 'kernel returns int32_t, its plain twin void'],
])('a twin in C that does not fit is refused by name: %s', (head, message) => {
  expect(() => read('export function kernel(x: Float32Array): void {}', `${head}\n}`)).toThrow(message)
})

test('no kernel takes more than twelve parameters: what belongs together is a group', () => {
  const kernels = Object.entries(createKernels(new WebAssembly.Memory({ initial: 1 }), 'plain'))
  expect(kernels.filter(([, kernel]) => kernel.length > 12).map(([name]) => name)).toEqual([])
})

test('every kernel that has a SIMD body refuses a column outside its memory', () => {
  const memory = new WebAssembly.Memory({ initial: 1 })
  const [bodies, compiled] = [createKernels(memory, 'plain'), createKernels(memory, bestKernelBuild())]
  const names = (Object.keys(bodies) as (keyof Kernels)[]).filter((name) => compiled[name] !== bodies[name])
  expect(names).toEqual(expect.arrayContaining(readTwins().map(({ name }) => name)))
  // A column outside, which as a group has such columns as members, and as a number is 0.
  const get = (column: Float32Array, key: string | symbol): unknown => {
    return key === Symbol.toPrimitive ? () => 0 : (Reflect.get(column, key, column) ?? column)
  }
  const outside = new Proxy(new Float32Array(4), { get })
  for (const name of names) {
    const kernel = compiled[name] as (...given: unknown[]) => unknown
    expect(() => kernel(...Array(kernel.length).fill(outside)), name).toThrow('outside the memory')
  }
})
