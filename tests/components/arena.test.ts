import { execFileSync } from 'node:child_process'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { addressable, arenaBytes, formatBytes, listColumns, takeArena } from '../../src/components/arena.ts'
import {
  type Column,
  type ColumnSpec,
  type ColumnType,
  column,
  elementBytes,
  isColumnSpec,
  type Plan,
  saved,
} from '../../src/components/column.ts'
import { takeArena as takePublicArena } from '../../src/entries/data.ts'
import { cartPole, createTrainer, createWorld, mlp, ppo } from '../../src/index.ts'
import { bestKernelBuild, createKernels } from '../../src/kernels/bind.ts'
import { apart } from '../../src/language/transformer/memory.ts'
import * as fc from '../support/properties.ts'

const PAGE = 65_536
const arrays = { f32: Float32Array, f64: Float64Array, i32: Int32Array, u32: Uint32Array, u8: Uint8Array }

/** The typed arrays of a nest of columns, in order. */
function leaves(columns: object): Column[] {
  return Object.values(columns).flatMap((node) => (ArrayBuffer.isView(node) ? [node as Column] : leaves(node)))
}

/** Plans of all column types, nested up to three deep, with empty columns among them. */
const plans: fc.Arbitrary<Plan> = (() => {
  const type = fc.constantFrom(...(Object.keys(elementBytes) as ColumnType[]))
  const spec = fc
    .tuple(type, fc.integer({ min: 0, max: 300 }), fc.integer({ min: 0, max: 9 }))
    .map(([type, rows, width]) => column(type, rows, width))
  const name = fc.stringMatching(/^[a-z]{1,6}$/)
  const nest = (inner: fc.Arbitrary<ColumnSpec | Plan>) =>
    fc.dictionary(name, inner, { maxKeys: 5 }) as fc.Arbitrary<Plan>
  return nest(fc.oneof(spec, nest(fc.oneof(spec, nest(spec)))))
})()

afterEach(() => {
  vi.restoreAllMocks()
  vi.unstubAllGlobals()
})

describe('a column', () => {
  test.each([
    ['f32', 4],
    ['f64', 8],
    ['i32', 4],
    ['u32', 4],
    ['u8', 1],
  ] as const)('of type %s takes %d bytes an element', (type, bytes) => {
    const { columns, arena } = takeArena({ x: column(type, 7, 3) })
    expect(columns.x).toBeInstanceOf(arrays[type])
    expect(columns.x).toHaveLength(21)
    expect(columns.x.byteLength).toBe(21 * bytes)
    expect(elementBytes[type]).toBe(bytes)
    expect(listColumns({ x: column(type, 7, 3) })[0]!.bytes).toBe(21 * bytes)
    expect(arena.bytes).toBe(PAGE)
  })

  test('is kept by checkpoints only where it says so', () => {
    expect(column('f32', 2)).toEqual({ type: 'f32', rows: 2, width: 1, saved: false })
    expect(saved(column('f32', 2))).toEqual({ type: 'f32', rows: 2, width: 1, saved: true })
  })

  test('is told from a nest of columns, even from one with columns named like its parts', () => {
    expect(isColumnSpec(column('u8', 0))).toBe(true)
    expect(isColumnSpec({})).toBe(false)
    expect(isColumnSpec({ type: column('u8', 1), rows: column('u8', 1) })).toBe(false)
  })

  test.each([
    ['rows', -1, 1],
    ['rows', 1.5, 1],
    ['rows', Number.NaN, 1],
    ['width', 1, -2],
    ['width', 1, Number.POSITIVE_INFINITY],
  ])('of wrong %s is refused', (name, rows, width) => {
    const make = () => column('f32', rows, width)
    expect(make).toThrow(InputError)
    expect(make).toThrow(`column ${name}: got ${name === 'rows' ? rows : width}, expected a whole number ≥ 0`)
  })
})

describe('a plan', () => {
  const plan = {
    agent: { reward: column('f32', 4), rollout: { observation: column('f32', 4, 3) } },
    phase: column('u8', 5),
  }

  test('lists its columns by path, in the order of their declaration, with their bytes', () => {
    const listed = listColumns(plan).map(({ name, bytes }) => [name, bytes])
    expect(listed).toEqual([
      ['agent.reward', 16],
      ['agent.rollout.observation', 48],
      ['phase', 5],
    ])
  })

  test('says before memory is taken how much it will be', () => {
    const taken = vi.spyOn(WebAssembly, 'Memory')
    expect(arenaBytes(plan)).toBe(PAGE)
    expect(taken).not.toHaveBeenCalled()
  })

  test('that ends at the end of a page takes that page, and one byte more takes the next', () => {
    // The first column starts at byte 1024, a large one a cache line later.
    expect(arenaBytes({ x: column('u8', PAGE - 1088) })).toBe(PAGE)
    expect(arenaBytes({ x: column('u8', PAGE - 1087) })).toBe(2 * PAGE)
    expect(takeArena({ x: column('u8', PAGE - 1088) }).arena.bytes).toBe(PAGE)
  })

  test('of many small columns counts the room between them', () => {
    // 1008 columns of one byte, 64 bytes apart, fill the first page; the next one begins the second.
    const many = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`x${i}`, column('u8', 1)]))
    expect(arenaBytes(many(1008))).toBe(PAGE)
    expect(arenaBytes(many(1009))).toBe(2 * PAGE)
    expect(leaves(takeArena(many(1009)).columns).at(-1)!.byteOffset).toBe(PAGE)
  })

  test('of columns of 4 KiB each begins every one at another place of the cache', () => {
    const plan = Object.fromEntries(Array.from({ length: 12 }, (_, i) => [`x${i}`, column('f32', 1024)]))
    const places = leaves(takeArena(plan).columns).map(({ byteOffset }) => byteOffset % 4096)
    expect(new Set(places).size).toBe(12)
  })

  test('keeps its names, with typed arrays for leaves', () => {
    const { columns } = takeArena(plan)
    expect(Object.keys(columns)).toEqual(['agent', 'phase'])
    expect(columns.agent.reward).toBeInstanceOf(Float32Array)
    expect(columns.agent.rollout.observation).toHaveLength(12)
    expect(columns.phase).toBeInstanceOf(Uint8Array)
  })

  test('becomes aligned, separate, zeroed columns of one shared buffer that cannot grow', () => {
    fc.assert(
      fc.property(plans, (plan) => {
        const { arena, columns } = takeArena(plan)
        const listed = listColumns(plan)
        const views = leaves(columns)
        expect(views).toHaveLength(listed.length)
        let end = 1
        for (const [i, view] of views.entries()) {
          const { type, rows, width } = listed[i]!
          expect(view).toBeInstanceOf(arrays[type])
          expect(view.length).toBe(rows * width)
          expect(view.buffer).toBe(arena.buffer)
          expect(view.byteOffset % 64).toBe(0)
          expect(view.byteOffset).toBeGreaterThanOrEqual(end)
          end = view.byteOffset + view.byteLength
          expect(view.every((value) => value === 0)).toBe(true)
        }
        expect(arena.buffer).toBeInstanceOf(SharedArrayBuffer)
        expect(arena.buffer.byteLength).toBe(arena.bytes)
        expect(arena.bytes).toBe(arenaBytes(plan))
        expect(end).toBeLessThanOrEqual(arena.bytes)
        expect(() => (arena.memory as WebAssembly.Memory).grow(1)).toThrow(RangeError)
      }),
      { numRuns: 50 },
    )
  })

  test('has columns that hold what was written to them, whatever is written to the others', () => {
    const { columns } = takeArena({
      a: column('f32', 5, 3),
      b: column('u8', 3),
      c: { d: column('f64', 2), e: column('i32', 1), f: column('u32', 9) },
    })
    const views = leaves(columns)
    for (const [i, view] of views.entries()) view.fill(i + 1)
    for (const [i, view] of views.entries()) expect([...view]).toEqual(Array(view.length).fill(i + 1))
  })
})

describe('a plan beyond what WebAssembly addresses', () => {
  const plan = apart(
    { weights: column('f32', 2 ** 16), few: column('f32', 16), own: { more: column('u8', 2 ** 20) } },
    'plain',
  )
  const limit = addressable.bytes
  afterEach(() => {
    addressable.bytes = limit
  })

  test('has one memory as long as it fits, and else its large columns in a buffer beside it', () => {
    const whole = takeArena(plan)
    expect(whole.arena).toMatchObject({ apart: null, columns: 'lasting', bytes: arenaBytes(plan) })
    expect(whole.columns.own.more.buffer).toBe(whole.arena.buffer)
    addressable.bytes = 2 * PAGE
    const { arena, columns } = takeArena(plan)
    expect(arena.columns).toBe('apart')
    expect(columns.few.buffer).toBe(arena.buffer)
    for (const { buffer } of [columns.weights, columns.own.more]) expect(buffer).toBe(arena.apart)
    expect(arena.buffer.byteLength).toBe(PAGE)
    expect(arena.bytes).toBe(arenaBytes(plan))
    expect(arena.bytes).toBe(PAGE + arena.apart!.byteLength)
  })

  test('is refused where columns may not lie apart, or the others do not fit', () => {
    addressable.bytes = 2 * PAGE
    const needed = 'that WebAssembly addresses'
    expect(() => takeArena({ weights: column('f32', 2 ** 16) })).toThrow(needed)
    expect(() => takeArena(apart({ weights: column('f32', 2 ** 16) }, 'relaxed'))).toThrow(needed)
    expect(() => takeArena({ ...plan, other: column('f32', 2 ** 16) })).toThrow(needed)
    vi.spyOn(process as NodeJS.Process & { availableMemory(): number }, 'availableMemory').mockReturnValue(2 ** 20)
    expect(() => takeArena(plan)).toThrow('the 1.00 MiB that this machine has left')
  })
})

describe('a plan that is too large', () => {
  const plan = {
    small: column('u8', 10),
    agent: { observation: column('f32', 2 ** 20, 1024), action: column('i32', 2 ** 20, 512) },
    extra: column('f64', 2 ** 20, 64),
    reward: column('f32', 2 ** 20),
  }

  test('for an arena is refused with how much it is, for what, and how much there is', () => {
    expect(() => takeArena(plan)).toThrow(InputError)
    expect(() => takeArena(plan)).toThrow(
      'memory: got a plan of 6.50 GiB (most of it for agent.observation 1048576 × 1024 f32 = 4.00 GiB, ' +
        'agent.action 1048576 × 512 i32 = 2.00 GiB, extra 1048576 × 64 f64 = 512.00 MiB), ' +
        'expected at most the 4.00 GiB that WebAssembly addresses',
    )
  })

  test('for the machine is refused with how much the machine has left', () => {
    vi.spyOn(process as NodeJS.Process & { availableMemory(): number }, 'availableMemory').mockReturnValue(3 * 2 ** 20)
    const take = () => takeArena({ reward: column('f32', 2 ** 20) })
    expect(take).toThrow(InputError)
    expect(take).toThrow(
      'memory: got a plan of 4.06 MiB (most of it for reward 1048576 × 1 f32 = 4.00 MiB), ' +
        'expected at most the 3.00 MiB that this machine has left',
    )
  })

  test('for the runtime is refused with the reason of the runtime', () => {
    const cause = new RangeError('could not allocate memory')
    class Memory {
      constructor() {
        throw cause
      }
    }
    vi.stubGlobal('WebAssembly', { Memory })
    let caught: unknown
    try {
      takeArena({ reward: column('f32', 3) })
    } catch (error) {
      caught = error
    }
    expect(caught).toBeInstanceOf(InputError)
    expect((caught as InputError).got).toBe('a plan of 64.00 KiB (most of it for reward 3 × 1 f32 = 12 B)')
    expect((caught as InputError).expected).toBe('what the runtime grants (could not allocate memory)')
    expect((caught as InputError).cause).toBe(cause)
  })
})

describe('what does not lie in the arena but in the heap', () => {
  test('is refused where the heap has no room for it, with how much it is, for what, and how much there is', () => {
    const objects = [
      { name: 'a.lanes', count: 10, bytesEach: 512 },
      { name: 'a.windows', count: 2 ** 50, bytesEach: 2048 },
      { name: 'b.windows', count: 2 ** 40, bytesEach: 2048 },
    ]
    expect(() => takeArena({ x: column('f32', 1) }, objects)).toThrow(
      /^memory: got a plan of 2050\.00 PiB of objects \(most of it for a\.windows 1125899906842624 × 2\.00 KiB = 2048\.00 PiB, b\.windows 1099511627776 × 2\.00 KiB = 2\.00 PiB, a\.lanes 10 × 512 B = 5\.00 KiB\), expected at most the [\d.]+ [MG]iB that the runtime's heap has left \(node --max-old-space-size sets it\)$/,
    )
    expect(takeArena({ x: column('f32', 1) }, objects.slice(0, 1)).columns.x.length).toBe(1)
  })

  test('is asked for before a world takes its memory: windows on many steps, entities of many lanes', async () => {
    vi.spyOn(process as NodeJS.Process & { availableMemory(): number }, 'availableMemory').mockReturnValue(2 ** 40)
    const cohort = { environment: cartPole(), policy: mlp({ hidden: [4] }) }
    const world = await createWorld({ ...cohort, numLanes: 1 })
    const train = () => createTrainer(world, ppo({ numSteps: 6_000_000, numMinibatches: 1 }))
    expect(train).toThrow(
      /^memory: got a plan of 17\.17 GiB of objects \(most of it for mlp\.windows 6000000 × 3\.00 KiB/,
    )
    const crowd = await createWorld({ ...cohort, numLanes: 12_000_000 })
    expect(() => crowd.cohorts).toThrow(
      /^memory: got a plan of 7\.15 GiB of objects \(most of it for mlp\.lanes 12000000/,
    )
  })

  test('is at most what is said of it: the windows of a step', () => {
    const script = new URL('../support/objects.mjs', import.meta.url).pathname
    const { stepBytes } = JSON.parse(execFileSync(process.execPath, ['--expose-gc', script], { encoding: 'utf8' }))
    expect(stepBytes).toBeLessThan(3072)
    expect(stepBytes).toBeGreaterThan(3072 / 4)
  })
})

test('a plan of more than can be counted is still summed, and refused with its names', async () => {
  const policy = mlp({ hidden: [2 ** 40, 2 ** 40] })
  const world = await createWorld({ environment: cartPole(), policy, numLanes: 1 })
  expect(() => world.cohorts).toThrow(/^memory: got a plan of .* PiB \(most of it for mlp\.weights/)
})

test('kernels over memory of one’s own need public names alone', () => {
  const plan = { x: column('f32', 40), moments: column('f64', 2) }
  const { arena, columns } = takePublicArena(plan)
  columns.x.set(Float32Array.from({ length: 40 }, (_, i) => i * i))
  createKernels(arena.memory, bestKernelBuild()).meanAndDeviation(columns.moments, columns.x, 40)
  expect(columns.moments[0]).toBeCloseTo((39 * 79) / 6, 3)
})

test.each([
  [0, '0 B'],
  [1023, '1023 B'],
  [1024, '1.00 KiB'],
  [1.5 * 2 ** 30, '1.50 GiB'],
  [2 ** 50, '1.00 PiB'],
  [2 ** 60, '1024.00 PiB'],
])('%d bytes are for people %s', (bytes, words) => {
  expect(formatBytes(bytes)).toBe(words)
})
