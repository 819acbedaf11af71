/**
 * A program of expressions as one loop over rows of columns, in f32: each row's numbers are loaded, computed and stored in one
 * pass. With compiled kernels, the program becomes a WebAssembly module that computes four rows at a time. With plain
 * kernels, and for the last rows, each operation is a loop over a register of some rows. Both give the same bits: each
 * operation rounds once to f32, and no operations are fused. A call allocates nothing.
 */
import { checkGiven } from '../base/errors.ts'
import { computeStep } from '../base/expressions/compute.ts'
import { moduleOfLoop } from './column-module.ts'
import { placesIn } from './compiled.ts'
import type { Kernels } from './kernels.ts'
import type { ColumnLoop, LoopType } from './loop.ts'
import { bindingOf } from './own.ts'

/** The columns that such a loop reads and writes. */
export type LoopColumn = Float32Array | Int32Array | Uint8Array

/** Runs the loop over rows `from` to `to` of columns in the memory of its kernels. */
export type BoundLoop = (columns: readonly LoopColumn[], from: number, to: number) => void

/** Binds a loop as the kernels of a thread are. */
export function bindColumnLoop(kernels: Kernels, loop: ColumnLoop): BoundLoop {
  checkGiven('loop of bindColumnLoop', loop, ['program'])
  const plain = plainLoop(loop)
  const { memory, build } = bindingOf(kernels)
  if (build === 'plain') return plain
  const at = placesIn(memory.buffer)
  const { exports } = new WebAssembly.Instance(moduleOfLoop(loop, memory.buffer), {
    env: { memory: memory as WebAssembly.Memory },
  })
  const run = exports.run as (...numbers: number[]) => void
  const { numColumns } = loop
  /** Where the columns begin, the rows, and 1. */
  const numbers = new Array<number>(numColumns + 3).fill(1)
  return (columns, from, to) => {
    const end = to - ((to - from) & 3)
    if (end > from) {
      for (let c = 0; c < numColumns; c++) numbers[c] = at(columns[c]!)
      numbers[numColumns] = from
      numbers[numColumns + 1] = end
      Reflect.apply(run, undefined, numbers)
    }
    if (to > end) plain(columns, end, to)
  }
}

/** Rows per operation, few enough for their registers to stay in the cache. */
const ROWS = 256

function plainLoop({ program, loads, stores }: ColumnLoop): BoundLoop {
  const registers = Array.from({ length: program.numRegisters }, () => new Float64Array(ROWS))
  const steps = program.steps.map((step) => ({ ...step, numbers: step.numbers.map(Math.fround) }))
  for (const [register, value] of program.constants) registers[register]!.fill(Math.fround(value))
  return (columns, from, to) => {
    for (let first = from; first < to; first += ROWS) {
      const count = Math.min(ROWS, to - first)
      for (const { column, width, element, register } of loads) {
        const source = columns[column]!
        const numbers = registers[register]!
        for (let i = 0; i < count; i++) numbers[i] = source[(first + i) * width + element]!
      }
      for (const step of steps) {
        computeStep(step, registers, count)
        const out = registers[step.to]!
        for (let i = 0; i < count; i++) out[i] = Math.fround(out[i]!)
      }
      for (const { column, type, width, element, register } of stores) {
        keep(type, columns[column]!, first * width + element, width, registers[register]!, count)
      }
    }
  }
}

function keep(
  type: LoopType,
  out: LoopColumn,
  first: number,
  width: number,
  numbers: Float64Array,
  count: number,
): void {
  for (let i = 0, at = first; i < count; i++, at += width) {
    const value = numbers[i]!
    if (type === 'f32') out[at] = value
    else if (type === 'i32')
      out[at] = Math.min(Math.max(value, -(2 ** 31)), 2 ** 31 - 1) // NaN becomes 0.
    else if (type === 'u8') out[at] = Math.min(Math.max(value, 0), 255)
    else out[at] = value === 0 ? 0 : 1
  }
}
