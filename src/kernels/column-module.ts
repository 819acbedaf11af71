/**
 * The WebAssembly module of a loop over columns (`column-loop.ts`). It exports `run(columns…, from, to, one)`: the
 * columns as offsets in bytes, rows `from` to `to` (a positive multiple of 4 rows), and the number 1. V8 must not know
 * that number at compile time, because it would then build every constant anew at each use.
 */
import { assert } from '../base/errors.ts'
import { isShared } from '../base/shared.ts'
import type { ColumnLoop, LoopElement } from './loop.ts'

const I32 = 0x7f
const F32 = 0x7d
const V128 = 0x7b

/** Instructions of the core. */
const LOCAL_GET = 0x20
const LOCAL_SET = 0x21
const LOCAL_TEE = 0x22
const I32_CONST = 0x41
const F32_CONST = 0x43
const I32_LT_U = 0x49
const I32_ADD = 0x6a
const I32_MUL = 0x6c
const F32_MUL = 0x94
const END = 0x0b

/** SIMD instructions, behind the byte 0xfd. */
const Simd = {
  load: 0x00,
  store: 0x0b,
  splat: 0x13,
  equal: 0x41,
  notEqual: 0x42,
  less: 0x43,
  greater: 0x44,
  lessOrEqual: 0x45,
  greaterOrEqual: 0x46,
  and: 0x4e,
  bitselect: 0x52,
  loadByte: 0x54,
  loadLane: 0x56,
  storeByte: 0x58,
  storeLane: 0x5a,
  loadFirst: 0x5c,
  absOfBytes: 0x60,
  halvesToBytes: 0x65,
  halvesToBytesUnsigned: 0x66,
  floor: 0x68,
  wordsToHalves: 0x85,
  extendBytes: 0x89,
  extendHalves: 0xa9,
  abs: 0xe0,
  negate: 0xe1,
  sqrt: 0xe3,
  add: 0xe4,
  subtract: 0xe5,
  multiply: 0xe6,
  divide: 0xe7,
  min: 0xe8,
  max: 0xe9,
  toWords: 0xf8,
  fromWords: 0xfa,
} as const

const HEADER = [0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00]

/** Compiles the loop for a memory that is shared, or one that is not. */
export function moduleOfLoop(loop: ColumnLoop, buffer: ArrayBufferLike): WebAssembly.Module {
  const { numColumns } = loop
  const parameters = [...new Array<number>(numColumns + 2).fill(I32), F32]
  const memory = isShared(buffer) ? [0x03, ...unsigned(1), ...unsigned(65536)] : [0x00, ...unsigned(0)]
  const bytes = [
    ...HEADER,
    ...section(1, [1, 0x60, ...unsigned(parameters.length), ...parameters, 0]),
    ...section(2, [1, ...text('env'), ...text('memory'), 0x02, ...memory]),
    ...section(3, [1, 0]),
    ...section(7, [1, ...text('run'), 0x00, 0]),
    ...section(10, [1, ...sized(bodyOf(loop))]),
  ]
  return new WebAssembly.Module(Uint8Array.from(bytes))
}

function bodyOf({ program, loads, stores, numColumns }: ColumnLoop): number[] {
  const from = numColumns
  const to = numColumns + 1
  const one = numColumns + 2
  const address = numColumns + 3
  const scratch = numColumns + 4
  const firstRegister = numColumns + 5
  const local = (register: number) => firstRegister + register
  const get = (register: number) => [LOCAL_GET, ...unsigned(local(register))]

  /** Numbers that stay, and the locals that hold them. */
  const kept = new Map<number, number>()
  const constant = (value: number): number[] => {
    let index = kept.get(value)
    if (index === undefined) {
      index = local(program.numRegisters) + kept.size
      kept.set(value, index)
    }
    return [LOCAL_GET, ...unsigned(index)]
  }

  /** Leaves the address of an element of row `from` on the stack. */
  const place = ({ column, type, width, element }: LoopElement) => {
    const bytes = type === 'f32' || type === 'i32' ? 4 : 1
    const row = [LOCAL_GET, ...unsigned(from), I32_CONST, ...signed(width * bytes), I32_MUL]
    const start = [LOCAL_GET, ...unsigned(column), ...row, I32_ADD]
    return element === 0 ? start : [...start, I32_CONST, ...signed(element * bytes), I32_ADD]
  }

  const body: number[] = []
  for (const load of loads)
    body.push(...loaded(load, place(load), address, constant), LOCAL_SET, ...unsigned(local(load.register)))
  for (const { operation, to: out, from: operands, numbers } of program.steps) {
    const [a, b, c] = operands.map(get) as [number[], number[], number[]]
    body.push(...computed(operation, a, b, c, numbers, constant), LOCAL_SET, ...unsigned(local(out)))
  }
  for (const store of stores) body.push(...stored(store, place(store), get(store.register), address, scratch, constant))

  const set = (value: number, index: number) => [
    ...[F32_CONST, ...bytesOf(value), LOCAL_GET, ...unsigned(one), F32_MUL, ...simd(Simd.splat)],
    ...[LOCAL_SET, ...unsigned(index)],
  ]
  const before = [
    ...program.constants.flatMap(([register, value]) => set(value, local(register))),
    ...[...kept].flatMap(([value, index]) => set(value, index)),
  ]
  const next = [LOCAL_GET, ...unsigned(from), I32_CONST, ...signed(4), I32_ADD, LOCAL_TEE, ...unsigned(from)]
  const loop = [0x03, 0x40, ...body, ...next, LOCAL_GET, ...unsigned(to), I32_LT_U, 0x0d, 0, END]
  const locals = [2, 1, I32, ...unsigned(1 + program.numRegisters + kept.size), V128]
  return [...locals, ...before, ...loop, END]
}

/** Leaves an element of four rows on the stack, in f32; uses a local for its address. */
function loaded(
  { type, width }: LoopElement,
  place: number[],
  address: number,
  constant: (value: number) => number[],
): number[] {
  const isBytes = type === 'u8' || type === 'flag'
  const at = [LOCAL_GET, ...unsigned(address)]
  // Each lane is loaded into the vector on top of the stack, from the address beneath it.
  const each = [...place, LOCAL_SET, ...unsigned(address), ...at, ...at, ...at, ...at]
  let vector: number[]
  if (isBytes && width > 1) {
    const lanes = [0, 1, 2, 3].flatMap((lane) => [...simd(Simd.loadByte), ...memoryPlace(lane * width), lane])
    vector = [...each, ...constant(0), ...lanes]
  } else if (width > 1) {
    const lanes = [1, 2, 3].flatMap((lane) => [...simd(Simd.loadLane), ...memoryPlace(lane * width * 4), lane])
    vector = [...each, ...simd(Simd.loadFirst), ...memoryPlace(0), ...lanes]
  } else {
    vector = [...place, ...simd(isBytes ? Simd.loadFirst : Simd.load), ...memoryPlace(0)]
  }
  if (type === 'f32') return vector
  const words = isBytes ? [...vector, ...simd(Simd.extendBytes), ...simd(Simd.extendHalves)] : vector
  return [...words, ...simd(Simd.fromWords)]
}

/** Stores an element of four rows; uses a local for its address and one for the vector. */
function stored(
  { type, width }: LoopElement,
  place: number[],
  value: number[],
  address: number,
  scratch: number,
  constant: (value: number) => number[],
): number[] {
  const isBytes = type === 'u8' || type === 'flag'
  const vector = isBytes
    ? bytesOfRows(type, value, scratch, constant)
    : type === 'i32'
      ? [...value, ...simd(Simd.toWords)]
      : value
  if (width === 1) {
    const store = isBytes ? [...simd(Simd.storeLane), ...memoryPlace(0), 0] : [...simd(Simd.store), ...memoryPlace(0)]
    return [...place, ...vector, ...store]
  }
  const [store, bytes] = isBytes ? [Simd.storeByte, 1] : [Simd.storeLane, 4]
  const one = [LOCAL_GET, ...unsigned(address), LOCAL_GET, ...unsigned(scratch), ...simd(store)]
  const lanes = [0, 1, 2, 3].flatMap((lane) => [...one, ...memoryPlace(lane * width * bytes), lane])
  return [...place, LOCAL_SET, ...unsigned(address), ...vector, LOCAL_SET, ...unsigned(scratch), ...lanes]
}

/** Leaves four numbers as bytes, in the first four bytes of a vector. */
function bytesOfRows(
  type: 'u8' | 'flag',
  value: number[],
  scratch: number,
  constant: (value: number) => number[],
): number[] {
  const twice = (vector: number[]) => [...vector, LOCAL_TEE, ...unsigned(scratch), LOCAL_GET, ...unsigned(scratch)]
  if (type === 'flag') {
    const mask = [...value, ...constant(0), ...simd(Simd.notEqual)]
    const halves = [...twice(mask), ...simd(Simd.wordsToHalves)]
    return [...twice(halves), ...simd(Simd.halvesToBytes), ...simd(Simd.absOfBytes)]
  }
  const held = [...value, ...constant(0), ...simd(Simd.max), ...constant(255), ...simd(Simd.min), ...simd(Simd.toWords)]
  const halves = [...twice(held), ...simd(Simd.wordsToHalves)]
  return [...twice(halves), ...simd(Simd.halvesToBytesUnsigned)]
}

/** Leaves the result of an operation on the stack, given the instructions that leave its operands. */
function computed(
  operation: string,
  a: number[],
  b: number[],
  c: number[],
  numbers: readonly number[],
  constant: (value: number) => number[],
): number[] {
  const [low, high] = [(numbers[0] ?? 0) + 0, (numbers[1] ?? 0) + 0] // 0 rather than −0: constants are told apart by ===.
  const flag = (mask: number[]) => [...mask, ...constant(1), ...simd(Simd.and)]
  switch (operation) {
    case 'add':
    case 'subtract':
    case 'multiply':
    case 'divide':
    case 'min':
    case 'max':
      return [...a, ...b, ...simd(Simd[operation])]
    case 'negate':
    case 'sqrt':
    case 'floor':
    case 'abs':
      return [...a, ...simd(Simd[operation])]
    case 'clip':
      return [...a, ...constant(low), ...simd(Simd.max), ...constant(high), ...simd(Simd.min)]
    case 'within': {
      const above = [...a, ...constant(low), ...simd(Simd.greaterOrEqual)]
      return flag([...above, ...a, ...constant(high), ...simd(Simd.lessOrEqual), ...simd(Simd.and)])
    }
    case 'greater':
    case 'less':
    case 'equal':
      return flag([...a, ...b, ...simd(Simd[operation])])
    case 'where':
      return [...b, ...c, ...a, ...constant(0), ...simd(Simd.notEqual), ...simd(Simd.bitselect)]
    default:
      assert(false, `${operation} is no operation of a loop over columns`)
  }
}

function simd(instruction: number): number[] {
  return [0xfd, ...unsigned(instruction)]
}

/** The guaranteed alignment (none), and an offset in bytes. */
function memoryPlace(offset: number): number[] {
  return [0, ...unsigned(offset)]
}

function section(id: number, content: number[]): number[] {
  return [id, ...sized(content)]
}

function sized(content: number[]): number[] {
  return [...unsigned(content.length), ...content]
}

function text(name: string): number[] {
  return sized([...new TextEncoder().encode(name)])
}

/** LEB128 of a whole number ≥ 0. */
function unsigned(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...unsigned(value >>> 7)]
}

/** LEB128 of a whole number ≥ 0 with a sign. */
function signed(value: number): number[] {
  return value < 64 ? [value] : [(value & 127) | 128, ...signed(value >>> 7)]
}

/** A number in f32, little-endian. */
function bytesOf(value: number): number[] {
  const bytes = new Uint8Array(4)
  new DataView(bytes.buffer).setFloat32(0, value, true)
  return [...bytes]
}
