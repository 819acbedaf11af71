/**
 * Meters WebAssembly with fuel. Time depends on the machine and its load; executed code does not, so a fuel limit is
 * the same everywhere. `withFuel` rewrites a module: each function call and each loop iteration takes one unit from the
 * exported global `fuel`, and each memory copy or fill takes one per 16 bytes. Below zero the code traps. Nothing else
 * in WebAssembly can take long.
 *
 * Supported is what C compilers emit: version 1 of the format with its later numeric operators, bulk memory, references
 * and tail calls. Anything else is an error, since it could not be counted.
 * (https://webassembly.github.io/spec/core/binary/)
 */

/** The exported i64 global. The caller sets it before a call. */
export const FUEL = 'fuel'

/** Bytes of a copy that cost as much as a loop iteration (log2). */
const LOG2_BYTES_PER_FUEL = 4

const SECTION = { type: 1, import: 2, function: 3, global: 6, export: 7, code: 10 } as const
const OP = { loop: 0x03, i32: 0x7f, i64: 0x7e } as const

class Reader {
  readonly bytes: Uint8Array
  at: number

  constructor(bytes: Uint8Array, at = 0) {
    this.bytes = bytes
    this.at = at
  }

  byte(): number {
    return this.bytes[this.at++]!
  }

  /** An unsigned LEB128 integer below 2³². */
  number(): number {
    let value = 0
    for (let scale = 1; ; scale *= 128) {
      const byte = this.byte()
      value += (byte & 127) * scale
      if (byte < 128) return value
    }
  }

  /** Skips a LEB128 integer. */
  skipNumber(): void {
    while (this.byte() >= 128);
  }

  skipNumbers(count: number): void {
    for (let i = 0; i < count; i++) this.skipNumber()
  }

  skip(count: number): void {
    this.at += count
  }
}

function leb(value: number): number[] {
  const bytes: number[] = []
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...bytes, rest]
    bytes.push((rest % 128) + 128)
  }
}

class Writer {
  #bytes = new Uint8Array(256)
  length = 0

  write(bytes: ArrayLike<number>): void {
    if (this.length + bytes.length > this.#bytes.length) {
      const larger = new Uint8Array(2 * (this.length + bytes.length))
      larger.set(this.#bytes)
      this.#bytes = larger
    }
    this.#bytes.set(bytes, this.length)
    this.length += bytes.length
  }

  bytes(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.length)
  }
}

interface Section {
  readonly id: number
  readonly body: Uint8Array
}

function sectionsOf(bytes: Uint8Array): Section[] {
  const isModule = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0].every((byte, i) => bytes[i] === byte)
  if (!isModule) throw new Error('no WebAssembly module of version 1')
  const reader = new Reader(bytes, 8)
  const sections: Section[] = []
  while (reader.at < bytes.length) {
    const id = reader.byte()
    const size = reader.number()
    sections.push({ id, body: bytes.subarray(reader.at, reader.at + size) })
    reader.skip(size)
  }
  return sections
}

function parameterCounts(body: Uint8Array): number[] {
  const reader = new Reader(body)
  return Array.from({ length: reader.number() }, () => {
    if (reader.byte() !== 0x60) throw new Error('a type that is not a function')
    const count = reader.number()
    reader.skip(count)
    reader.skip(reader.number())
    return count
  })
}

/** Number of imported globals, which have the first indices. */
function importedGlobals(body: Uint8Array): number {
  const reader = new Reader(body)
  let globals = 0
  for (let rest = reader.number(); rest > 0; rest--) {
    reader.skip(reader.number())
    reader.skip(reader.number())
    const kind = reader.byte()
    if (kind === 0) reader.skipNumber()
    else if (kind === 3) {
      reader.skip(2)
      globals++
    } else if (kind === 1 || kind === 2) {
      if (kind === 1) reader.skip(1)
      reader.skipNumbers(reader.byte() & 1 ? 2 : 1)
    } else throw new Error(`an import of kind ${kind}`)
  }
  return globals
}

function appended(body: Uint8Array, item: readonly number[]): Uint8Array {
  const reader = new Reader(body)
  const count = reader.number()
  return Uint8Array.from([...leb(count + 1), ...body.subarray(reader.at), ...item])
}

function skipImmediates(reader: Reader, op: number, where: string): void {
  if (op >= 0x45 && op <= 0xc4) return // Arithmetic.
  if (op >= 0x28 && op <= 0x3e) {
    reader.skipNumbers(2) // Loads and stores: alignment and offset.
    return
  }
  switch (op) {
    case 0x00: // unreachable
    case 0x01: // nop
    case 0x05: // else
    case 0x0b: // end
    case 0x0f: // return
    case 0x1a: // drop
    case 0x1b: // select
    case 0xd1: // ref.is_null
      return
    case 0x02: // block
    case 0x03: // loop
    case 0x04: // if
    case 0x0c: // br
    case 0x0d: // br_if
    case 0x10: // call
    case 0x12: // return_call
    case 0x20: // local.get, set, tee
    case 0x21:
    case 0x22:
    case 0x23: // global.get, set
    case 0x24:
    case 0x25: // table.get, set
    case 0x26:
    case 0x3f: // memory.size, grow
    case 0x40:
    case 0x41: // i32.const
    case 0x42: // i64.const
    case 0xd0: // ref.null
    case 0xd2: // ref.func
      reader.skipNumber()
      return
    case 0x11: // call_indirect
    case 0x13: // return_call_indirect
      reader.skipNumbers(2)
      return
    case 0x0e: // br_table
      reader.skipNumbers(reader.number() + 1)
      return
    case 0x1c: // select with types
      reader.skip(reader.number())
      return
    case 0x43: // f32.const
      reader.skip(4)
      return
    case 0x44: // f64.const
      reader.skip(8)
      return
  }
  throw new Error(`an unknown operator: 0x${op.toString(16)} ${where}`)
}

/** Skips the immediates of operator 0xfc: saturating conversions, bulk memory, tables. */
function skipBulkImmediates(reader: Reader, op: number, where: string): void {
  if (op > 17) throw new Error(`an unknown operator: 0xfc ${op} ${where}`)
  if (op > 7) reader.skipNumbers([8, 10, 12, 14].includes(op) ? 2 : 1)
}

/** Code that takes fuel: `cost` pushes an i64; `global` is the global's index. */
function taking(global: readonly number[], cost: readonly number[]): number[] {
  const get = [0x23, ...global]
  return [...get, ...cost, 0x7d, 0x24, ...global, ...get, 0x42, 0, 0x53, 0x04, 0x40, 0x00, 0x0b]
}

const ONE = [0x42, 1]
/** The largest i64: the initial fuel. */
const FULL = [0x42, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0]

/** A function's body with metering. `local` is the index of an added local. */
function meteredBody(body: Uint8Array, numParameters: number, global: readonly number[], where: string): Uint8Array {
  const reader = new Reader(body)
  const groups = reader.number()
  const groupsAt = reader.at
  let local = numParameters
  for (let i = 0; i < groups; i++) {
    local += reader.number()
    reader.skip(1)
  }
  const declared = body.subarray(groupsAt, reader.at)
  const code = new Writer()
  const tick = taking(global, ONE)
  code.write(tick)
  let copied = reader.at
  const insert = (inserted: readonly number[]): void => {
    code.write(body.subarray(copied, reader.at))
    code.write(inserted)
    copied = reader.at
  }
  let usesLocal = false
  while (reader.at < body.length) {
    const at = reader.at
    const op = reader.byte()
    if (op === 0xfc) {
      const bulk = reader.number()
      // memory.init, copy and fill, table.init, copy, grow and fill: the number of bytes or entries is on the stack.
      if ([8, 10, 11, 12, 14, 15, 17].includes(bulk)) {
        usesLocal = true
        const [length, ahead] = [leb(local), reader.at]
        reader.at = at
        insert([0x22, ...length, ...taking(global, [0x20, ...length, 0xad, 0x42, LOG2_BYTES_PER_FUEL, 0x88])])
        reader.at = ahead
      }
      skipBulkImmediates(reader, bulk, where)
    } else {
      skipImmediates(reader, op, where)
      if (op === OP.loop) insert(tick)
    }
  }
  insert([])
  const whole = new Writer()
  whole.write(leb(groups + (usesLocal ? 1 : 0)))
  whole.write(declared)
  if (usesLocal) whole.write([1, OP.i32])
  whole.write(code.bytes())
  return whole.bytes()
}

function codeSection(body: Uint8Array, numParameters: readonly number[], global: readonly number[]): Uint8Array {
  const reader = new Reader(body)
  const count = reader.number()
  const code = new Writer()
  code.write(leb(count))
  for (let i = 0; i < count; i++) {
    const size = reader.number()
    const metered = meteredBody(
      body.subarray(reader.at, reader.at + size),
      numParameters[i]!,
      global,
      `in function ${i}`,
    )
    code.write(leb(metered.length))
    code.write(metered)
    reader.skip(size)
  }
  return code.bytes()
}

/** Adds metering: code takes from the exported global `fuel`, and traps below zero. @throws Error if unsupported. */
export function withFuel(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const sections = sectionsOf(bytes)
  const bodyOf = (id: number): Uint8Array => {
    const found = sections.find((section) => section.id === id)
    if (found === undefined) throw new Error(`a module without section ${id}`)
    return found.body
  }
  const counts = parameterCounts(bodyOf(SECTION.type))
  const functions = new Reader(bodyOf(SECTION.function))
  const numParameters = Array.from({ length: functions.number() }, () => counts[functions.number()]!)
  const imports = sections.find(({ id }) => id === SECTION.import)
  const defined = new Reader(bodyOf(SECTION.global)).number()
  const global = leb((imports === undefined ? 0 : importedGlobals(imports.body)) + defined)
  const name = new TextEncoder().encode(FUEL)
  const changed = new Map<number, Uint8Array>([
    [SECTION.global, appended(bodyOf(SECTION.global), [OP.i64, 1, ...FULL, 0x0b])],
    [SECTION.export, appended(bodyOf(SECTION.export), [...leb(name.length), ...name, 3, ...global])],
    [SECTION.code, codeSection(bodyOf(SECTION.code), numParameters, global)],
  ])
  const whole = new Writer()
  whole.write(bytes.subarray(0, 8))
  for (const { id, body } of sections) {
    const now = changed.get(id) ?? body
    whole.write([id, ...leb(now.length)])
    whole.write(now)
  }
  return whole.bytes()
}
