import { readFile } from 'node:fs/promises'
import { beforeEach, describe, expect, test } from 'vitest'
import { FUEL, withFuel } from '../../../src/language/rewards/code/fuel.ts'

const HEAD = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]
const section = (id: number, ...items: number[][]): number[] => {
  const body = [items.length, ...items.flat()]
  return [id, body.length, ...body]
}
const name = (text: string): number[] => [text.length, ...new TextEncoder().encode(text)]
const body = (...code: number[]): number[] => [code.length, ...code]

/** A memory, two globals (one of them imported), and functions of one number. */
const module = Uint8Array.from([
  ...HEAD,
  ...section(1, [0x60, 1, 0x7f, 1, 0x7f], [0x60, 0, 1, 0x7f]),
  ...section(2, [...name('host'), ...name('base'), 3, 0x7f, 0], [...name('host'), ...name('tick'), 0, 1]),
  ...section(3, [0], [0], [0], [1]),
  ...section(5, [0, 1]),
  ...section(6, [0x7f, 1, 0x41, 7, 0x0b]),
  ...section(
    7,
    [...name('count'), 0, 1],
    [...name('fill'), 0, 2],
    [...name('nest'), 0, 3],
    [...name('get'), 0, 4],
    [...name('memory'), 2, 0],
  ),
  ...section(
    10,
    // Turns of a loop: for (i = 0; i !== n; i++); return i + the imported global.
    body(
      1,
      1,
      0x7f,
      0x03,
      0x40,
      0x20,
      1,
      0x20,
      0,
      0x47,
      0x04,
      0x40,
      0x20,
      1,
      0x41,
      1,
      0x6a,
      0x21,
      1,
      0x0c,
      1,
      0x0b,
      0x0b,
      0x20,
      1,
      0x23,
      0,
      0x6a,
      0x0b,
    ),
    // memory.fill(8, 5, n), then the byte at 8 + n − 1.
    body(0, 0x41, 8, 0x41, 5, 0x20, 0, 0xfc, 0x0b, 0, 0x20, 0, 0x2d, 0, 7, 0x0b),
    // Calls itself with n − 1 while there is one: what it gives is n.
    body(0, 0x20, 0, 0x45, 0x04, 0x7f, 0x41, 0, 0x05, 0x20, 0, 0x41, 1, 0x6b, 0x10, 3, 0x41, 1, 0x6a, 0x0b, 0x0b),
    // The module's own global and what the host says.
    body(0, 0x23, 1, 0x10, 0, 0x6a, 0x0b),
  ),
])

interface Exports {
  readonly count: (n: number) => number
  readonly fill: (n: number) => number
  readonly nest: (n: number) => number
  readonly get: () => number
  readonly fuel: { value: bigint }
}
const host = { base: new WebAssembly.Global({ value: 'i32' }, 100), tick: () => 30 }
let exported: Exports

/** What a call gives and takes. */
function cost(work: () => number): [number, number] {
  exported.fuel.value = 1_000_000n
  const result = work()
  return [result, 1_000_000 - Number(exported.fuel.value)]
}

beforeEach(async () => {
  const { instance } = await WebAssembly.instantiate(withFuel(module), { host })
  exported = instance.exports as unknown as Exports
})

describe('a module with fuel', () => {
  test('gives what it gave without', async () => {
    const { instance } = await WebAssembly.instantiate(module, { host })
    const plain = instance.exports as unknown as Exports
    for (const n of [0, 1, 5, 1000]) {
      expect([exported.count(n), exported.nest(n)]).toEqual([plain.count(n), plain.nest(n)])
    }
    expect([exported.get(), exported.fill(100)]).toEqual([plain.get(), plain.fill(100)])
    expect(exported.get()).toBe(37)
  })

  test('takes one for a call, one for each turn of a loop, and one for 16 bytes of a copy', () => {
    expect(cost(() => exported.get())).toEqual([37, 1])
    expect(cost(() => exported.count(0))).toEqual([100, 2])
    expect(cost(() => exported.count(41))).toEqual([141, 43])
    expect(cost(() => exported.nest(6))).toEqual([6, 7])
    expect(cost(() => exported.fill(15))).toEqual([5, 1])
    expect(cost(() => exported.fill(165))).toEqual([5, 11])
  })

  test('is full until somebody says how much there is, and traps where there is none left', async () => {
    const { instance } = await WebAssembly.instantiate(withFuel(module), { host })
    const fresh = instance.exports as unknown as Exports
    expect(fresh.fuel.value).toBe(2n ** 63n - 1n)
    fresh.fuel.value = 43n
    expect(fresh.count(41)).toBe(141)
    fresh.fuel.value = 42n
    expect(() => fresh.count(41)).toThrow(WebAssembly.RuntimeError)
    expect(fresh.fuel.value).toBe(-1n)
    fresh.fuel.value = 2n
    expect(() => fresh.fill(1000)).toThrow(/unreachable/)
    expect(() => fresh.nest(10)).toThrow(/unreachable/)
  })

  test('is one that can be counted: other code is an error', async () => {
    expect(() => withFuel(Uint8Array.from([1, 2, 3]))).toThrow(/no WebAssembly module/)
    expect(() => withFuel(Uint8Array.from(HEAD))).toThrow(/without section/)
    const strange = module.slice()
    strange[strange.length - 2] = 0xfd // A vector operator.
    expect(() => withFuel(strange)).toThrow(/unknown operator: 0xfd in function 3/)
    strange[strange.length - 2] = 0xfc
    strange[strange.length - 1] = 17 // table.fill
    expect(() => withFuel(strange)).not.toThrow()
    strange[strange.length - 1] = 18
    expect(() => withFuel(strange)).toThrow(/unknown operator: 0xfc 18 in function 3/)
    strange[strange.length - 1] = 30
    expect(() => withFuel(strange)).toThrow(/unknown operator: 0xfc 30 in function 3/)
  })

  test('can be the interpreter: it is valid, and exports what it did and the fuel', async () => {
    const bytes = await readFile(new URL(import.meta.resolve('@jitl/quickjs-wasmfile-release-sync/wasm')))
    const [before, after] = await Promise.all([bytes, withFuel(bytes)].map((code) => WebAssembly.compile(code)))
    const names = (code: WebAssembly.Module): string[] => WebAssembly.Module.exports(code).map(({ name }) => name)
    expect(names(after!)).toEqual([...names(before!), FUEL])
    expect(WebAssembly.Module.imports(after!)).toEqual(WebAssembly.Module.imports(before!))
  })
})
