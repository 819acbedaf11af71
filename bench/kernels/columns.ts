/** A memory that threads share, with room for the columns of a network of 1,024 units: 64 MiB. */
export function networkMemory(): WebAssembly.Memory {
  return new WebAssembly.Memory({ initial: 1024, maximum: 1024, shared: true })
}

/** Columns of a memory, one after the other, at cache lines. */
export class Columns {
  readonly #buffer: ArrayBufferLike
  #end = 1024

  constructor(memory: WebAssembly.Memory) {
    this.#buffer = memory.buffer
  }

  floats(length: number): Float32Array {
    return new Float32Array(this.#buffer, this.#take(4 * length), length)
  }

  doubles(length: number): Float64Array {
    return new Float64Array(this.#buffer, this.#take(8 * length), length)
  }

  wholes(length: number): Int32Array {
    return new Int32Array(this.#buffer, this.#take(4 * length), length)
  }

  counts(length: number): Uint32Array {
    return new Uint32Array(this.#buffer, this.#take(4 * length), length)
  }

  flags(length: number): Uint8Array {
    return new Uint8Array(this.#buffer, this.#take(length), length)
  }

  #take(bytes: number): number {
    const at = this.#end
    this.#end += Math.ceil(bytes / 64) * 64
    return at
  }
}
