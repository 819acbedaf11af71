/** Laws that compiled bodies keep: they compute what their plain twins do, and a row's result is its own. */

import { expect, test } from 'vitest'
import { kernelBuilds } from '../../src/kernels/bind.ts'
import type { KernelBuild, Kernels } from '../../src/kernels/kernels.ts'
import { nativeBodies } from '../../src/kernels/native.ts'
import { type BenchBuild, levels } from '../support/builds.ts'
import * as fc from '../support/properties.ts'
import { type Argument, Bench, type Column, Numbers, type Outcome } from './calls.ts'

/** What part of its cases a property tries: faults are looked for with few (scripts/mutate/vitest.config.mjs), as each needs a run. */
const SHARE = Number(process.env.LAW_SHARE ?? 1)
const casesOf = (runs: number): number => Math.floor(runs * SHARE)

const CASES = 150
/** Cases a property. */
export const RUNS = casesOf(CASES)

/** The WebAssembly builds that this runtime can run. */
export const builds: KernelBuild[] = kernelBuilds().filter((name) => name === 'simd' || name === 'relaxed')

export { levels }

export const nativeNames = levels.length > 0 ? Object.keys(nativeBodies(new SharedArrayBuffer(8))) : []
/** The builds that have a compiled body of a kernel. */
const buildsOf = (name: keyof Kernels): BenchBuild[] => (nativeNames.includes(name) ? [...builds, ...levels] : builds)
/** The oracle. */
export const plain = new Bench('plain')

/** How far a number may be from its plain twin's: relative to the larger of its size and `scale`. */
interface Tolerance {
  readonly relative: number
  readonly scale?: number
  /** Arguments that are workspace: what a body leaves there is its own. */
  readonly workspace?: readonly number[]
  /** Arguments that are angles: 2π apart is the same. */
  readonly wraps?: readonly number[]
}

/** Throws unless what a call left is close to what its plain twin left. */
export function expectClose(
  name: string,
  got: Outcome,
  wanted: Outcome,
  { relative, scale = 1, workspace = [], wraps = [] }: Tolerance,
): void {
  wanted.columns.forEach((column, index) => {
    if (column === undefined || workspace.includes(index)) return
    const other = got.columns[index]!
    for (let i = 0; i < column.length; i++) {
      const a = other[i]!
      const b = column[i]!
      const apart = wraps.includes(index) ? Math.abs(Math.sin((a - b) / 2)) : Math.abs(a - b)
      if (Object.is(a, b) || apart <= relative * Math.max(scale, Math.abs(b))) continue
      throw new Error(`${name}: element ${i} of argument ${index} is ${a}, its plain twin's ${b}`)
    }
  })
  if (typeof wanted.result === 'number') {
    const difference = Math.abs((got.result as number) - wanted.result)
    if (!(Object.is(got.result, wanted.result) || difference <= relative * Math.max(scale, Math.abs(wanted.result)))) {
      throw new Error(`${name} returned ${got.result}, its plain twin ${wanted.result}`)
    }
  }
}

/** Compares what a kernel leaves by two builds, on fresh arguments. */
function compare(
  name: keyof Kernels,
  [left, right]: readonly [Bench, Bench],
  make: (numbers: Numbers) => Argument[],
  runs: number,
  check: (got: Outcome, wanted: Outcome) => void,
): void {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 31 }), fc.integer({ min: 0, max: 7 }), (seed, shift) => {
      const given = make(new Numbers(seed))
      check(left.call(name, given, shift), right.call(name, given, shift))
    }),
    { numRuns: casesOf(runs) },
  )
}

/** Every WebAssembly build of the kernel against its plain body, and its native bodies against the relaxed one. */
export function matches(
  name: keyof Kernels,
  make: (numbers: Numbers) => Argument[],
  tolerance: Tolerance,
  runs = CASES,
): void {
  test.skipIf(casesOf(runs) === 0).each(builds)(`${name} equals its plain body (%s)`, (build) => {
    const check = (got: Outcome, wanted: Outcome) => expectClose(name, got, wanted, tolerance)
    compare(name, [new Bench(build), plain], make, runs, check)
  })
  matchesRelaxed(name, make, tolerance.workspace, runs)
}

/** The same bits by each native body of the kernel as by the relaxed one; `workspace` is as in `Tolerance`. */
export function matchesRelaxed(
  name: keyof Kernels,
  make: (numbers: Numbers) => Argument[],
  workspace: readonly number[] = [],
  runs = CASES,
): void {
  const compared = nativeNames.includes(name) ? levels : []
  test.skipIf(casesOf(runs) === 0).each(compared)(`${name} leaves the bits of its relaxed body (%s)`, (level) => {
    compare(name, [new Bench(level), new Bench('relaxed')], make, runs, ({ columns, result }, wanted) => {
      expect(result).toEqual(wanted.result)
      for (const [i, column] of wanted.columns.entries()) {
        if (column !== undefined && !workspace.includes(i)) expectSameBits(columns[i]!, column)
      }
    })
  })
}

/** What a row's result may not depend on. */
interface RowLaw {
  /** Arguments for `numRows` rows. */
  make(numbers: Numbers, numRows: number): Argument[]
  /** The same call for rows `first` to `first + count` alone. */
  part(given: readonly Argument[], first: number, count: number): Argument[]
  /** The outputs by row, [argument, elements a row] each. */
  outputs(given: readonly Argument[]): [number, number][]
}

/** Same bits for a row whatever rows are beside it, however many, and wherever it stands. */
export function ignoresCompany(name: keyof Kernels, { make, part, outputs }: RowLaw, runs = CASES): void {
  test.skipIf(casesOf(runs) === 0).each(buildsOf(name))(
    `${name} gives a row the same bits alone and in company (%s)`,
    (build) => {
      const bench = new Bench(build)
      fc.assert(
        fc.property(
          fc.integer({ min: 0, max: 2 ** 31 }),
          fc.oneof(fc.integer({ min: 1, max: 40 }), fc.constant(1000)),
          fc.integer({ min: 0, max: 7 }),
          (seed, numRows, shift) => {
            const numbers = new Numbers(seed)
            const given = make(numbers, numRows)
            const all = bench.call(name, given)
            const first = numbers.whole(0, numRows - 1)
            for (const count of [1, numbers.whole(1, numRows - first)]) {
              const some = bench.call(name, part(given, first, count), shift)
              for (const [argument, width] of outputs(given)) {
                const wanted = all.columns[argument]!.slice(first * width, (first + count) * width)
                const got = some.columns[argument]!.slice(0, count * width)
                expectSameBits(got, wanted)
              }
            }
          },
        ),
        { numRuns: casesOf(runs) },
      )
    },
  )
}

/** Comparing bytes takes a small part of the time; where they differ, the first element that does is told. NaN is NaN. */
export function expectSameBits(got: Column, wanted: Column): void {
  expect(got.length).toBe(wanted.length)
  if (Buffer.compare(bytesOf(got), bytesOf(wanted)) === 0) return
  const first = got.findIndex((value, i) => !Object.is(value, wanted[i]))
  if (first >= 0) throw new Error(`element ${first} of ${got.length} is ${got[first]}, expected ${wanted[first]}`)
}

const bytesOf = ({ buffer, byteOffset, byteLength }: Column) => Buffer.from(buffer, byteOffset, byteLength)

/** Rows `first` to `first + count` of a column. */
export function rows(column: Argument | undefined, first: number, count: number, width = 1): Column {
  return (column as Column).slice(first * width, (first + count) * width)
}

/** A number of rows at which a body may turn: around its blocks. */
export const numRowsOf = (numbers: Numbers): number =>
  [0, 1, 2, 3, 4, 5, 6, 7, 31, 64, 65, 255, 256][numbers.whole(0, 12)]!
/** A width at which a body may turn. */
export const widthOf = (numbers: Numbers): number =>
  [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 31, 32, 33, 64, 65][numbers.whole(0, 14)]!
