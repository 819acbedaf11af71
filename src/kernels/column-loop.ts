/**
 * A program of expressions as one loop over rows of columns, in f32: each row's numbers are loaded, computed and stored in one
 * pass. Where the kernels are compiled, the loop is a WebAssembly module made of the program, four rows at a time; else, and for
 * the last rows, each operation is a loop over a register of some rows. Both leave the same bits: each operation rounds
 * once to f32, and none is fused with another. A call allocates nothing.
 */
import { assert, checkGiven } from '../base/errors.ts'
import type { ExpressionProgram } from '../base/expressions/expression-program.ts'
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

/** Rows that each operation takes at once: their registers stay in the cache. */
const ROWS = 256

function plainLoop({ program, loads, stores }: ColumnLoop): BoundLoop {
  const registers = Array.from({ length: program.numRegisters }, () => new Float32Array(ROWS))
  for (const [register, value] of program.constants) registers[register]!.fill(value)
  return (columns, from, to) => {
    for (let first = from; first < to; first += ROWS) {
      const count = Math.min(ROWS, to - first)
      for (const { column, width, element, register } of loads) {
        const source = columns[column]!
        const numbers = registers[register]!
        for (let i = 0; i < count; i++) numbers[i] = source[(first + i) * width + element]!
      }
      for (const { operation, to: out, from: operands, numbers } of program.steps) {
        const [a, b = 0, c = 0] = operands
        compute(operation, registers[out]!, registers[a!]!, registers[b]!, registers[c]!, numbers, count)
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
  numbers: Float32Array,
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

function compute(
  operation: ExpressionProgram['steps'][number]['operation'],
  out: Float32Array,
  a: Float32Array,
  b: Float32Array,
  c: Float32Array,
  numbers: readonly number[],
  count: number,
): void {
  const low = Math.fround(numbers[0] ?? 0) + 0
  const high = Math.fround(numbers[1] ?? 0) + 0
  switch (operation) {
    case 'add':
      for (let i = 0; i < count; i++) out[i] = a[i]! + b[i]!
      return
    case 'subtract':
      for (let i = 0; i < count; i++) out[i] = a[i]! - b[i]!
      return
    case 'multiply':
      for (let i = 0; i < count; i++) out[i] = a[i]! * b[i]!
      return
    case 'divide':
      for (let i = 0; i < count; i++) out[i] = a[i]! / b[i]!
      return
    case 'negate':
      for (let i = 0; i < count; i++) out[i] = -a[i]!
      return
    case 'sqrt':
      for (let i = 0; i < count; i++) out[i] = Math.sqrt(a[i]!)
      return
    case 'floor':
      for (let i = 0; i < count; i++) out[i] = Math.floor(a[i]!)
      return
    case 'abs':
      for (let i = 0; i < count; i++) out[i] = Math.abs(a[i]!)
      return
    case 'min':
      for (let i = 0; i < count; i++) out[i] = Math.min(a[i]!, b[i]!)
      return
    case 'max':
      for (let i = 0; i < count; i++) out[i] = Math.max(a[i]!, b[i]!)
      return
    case 'clip':
      for (let i = 0; i < count; i++) out[i] = Math.min(Math.max(a[i]!, low), high)
      return
    case 'within':
      for (let i = 0; i < count; i++) out[i] = a[i]! >= low && a[i]! <= high ? 1 : 0
      return
    case 'greater':
      for (let i = 0; i < count; i++) out[i] = a[i]! > b[i]! ? 1 : 0
      return
    case 'less':
      for (let i = 0; i < count; i++) out[i] = a[i]! < b[i]! ? 1 : 0
      return
    case 'equal':
      for (let i = 0; i < count; i++) out[i] = a[i] === b[i] ? 1 : 0
      return
    case 'where':
      for (let i = 0; i < count; i++) out[i] = a[i] !== 0 ? b[i]! : c[i]!
      return
    default:
      assert(false, `${operation} is no operation of a loop over columns`)
  }
}
