/** Computes a program's operations, each as one loop over rows of registers. */
import { assert } from '../errors.ts'
import type { ExpressionProgram } from './expression-program.ts'

/** Computes rows 0 … count − 1 of a row-wise operation (any but a sequence sum). Allocates nothing. */
export function computeStep(
  { operation, to, from, numbers }: ExpressionProgram['steps'][number],
  registers: readonly Float64Array[],
  count: number,
): void {
  const out = registers[to]!
  const a = registers[from[0]!]!
  const b = registers[from[1] ?? 0]!
  const c = registers[from[2] ?? 0]!
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
    case 'exp':
      for (let i = 0; i < count; i++) out[i] = Math.exp(a[i]!)
      return
    case 'log':
      for (let i = 0; i < count; i++) out[i] = Math.log(a[i]!)
      return
    case 'sqrt':
      for (let i = 0; i < count; i++) out[i] = Math.sqrt(a[i]!)
      return
    case 'sin':
      for (let i = 0; i < count; i++) out[i] = Math.sin(a[i]!)
      return
    case 'cos':
      for (let i = 0; i < count; i++) out[i] = Math.cos(a[i]!)
      return
    case 'floor':
      for (let i = 0; i < count; i++) out[i] = Math.floor(a[i]!)
      return
    case 'tanh':
      for (let i = 0; i < count; i++) out[i] = Math.tanh(a[i]!)
      return
    case 'sigmoid':
      for (let i = 0; i < count; i++) out[i] = 1 / (1 + Math.exp(-a[i]!))
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
      for (let i = 0; i < count; i++) out[i] = Math.min(Math.max(a[i]!, numbers[0]!), numbers[1]!)
      return
    case 'within':
      for (let i = 0; i < count; i++) out[i] = a[i]! >= numbers[0]! && a[i]! <= numbers[1]! ? 1 : 0
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
      assert(false, `${operation} is not a row-wise operation`)
  }
}
