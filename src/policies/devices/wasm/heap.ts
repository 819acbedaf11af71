/**
 * The heap of tfjs's wasm backend for our kernels: tensors are columns in its memory, used in place. Creating an output can grow the
 * memory, which invalidates every view: create all outputs before taking views.
 */
import type { DataType, NamedAttrMap, NamedTensorInfoMap, TensorInfo } from '@tensorflow/tfjs-core'
import { assert } from '../../../base/errors.ts'
import { createKernels, MATMUL_SCRATCH } from '../../../kernels/bind.ts'
import type { KernelBuild, Kernels } from '../../../kernels/kernels.ts'
import type { RunColumns } from '../recurrent.ts'

/** tfjs's core. All code here uses the instance with which the backend was loaded. */
export type Tfjs = typeof import('@tensorflow/tfjs-core')

/** The used parts of tfjs's wasm backend. */
export interface WasmBackend {
  readonly wasm: {
    readonly asm: { readonly memory: WebAssembly.Memory }
    _malloc(bytes: number): number
    _free(at: number): void
  }
  readonly dataIdMap: { get(dataId: object): { readonly memoryOffset: number } }
  makeOutput(shape: number[], dtype: DataType): TensorInfo
  incRef(dataId: object): void
  disposeData(dataId: object): boolean
}

export interface KernelArguments {
  readonly inputs: Readonly<Record<string, TensorInfo | undefined>>
  readonly attrs?: NamedAttrMap
}

/** One of tfjs's kernels, or a replacement. */
export type Kernel = (given: KernelArguments) => TensorInfo | TensorInfo[]

/** Kernels by their names in tfjs. */
export type TensorKernels = Readonly<Record<string, Kernel>>

export class Heap {
  readonly tf: Tfjs
  readonly #backend: WasmBackend
  readonly #memory: WebAssembly.Memory
  readonly #build: KernelBuild
  readonly #scratch: number
  #buffer: ArrayBuffer
  #kernels: Kernels

  constructor(tf: Tfjs, backend: WasmBackend, build: KernelBuild) {
    this.tf = tf
    this.#backend = backend
    this.#memory = backend.wasm.asm.memory
    this.#build = build
    this.#scratch = backend.wasm._malloc(4 * MATMUL_SCRATCH) >>> 0
    assert(this.#scratch !== 0, 'no room for the workspace of matrix products')
    this.#buffer = this.#memory.buffer
    this.#kernels = createKernels(this.#memory, build, 'passing')
  }

  /** Our kernels, bound to the current memory; bound again after it has grown. */
  get kernels(): Kernels {
    if (this.#current() !== this.#buffer) {
      this.#buffer = this.#current()
      this.#kernels = createKernels(this.#memory, this.#build, 'passing')
    }
    return this.#kernels
  }

  #current(): ArrayBuffer {
    return this.#memory.buffer
  }

  /** Creates a tensor with undefined contents. Invalidates earlier views if the memory grows. */
  output(shape: readonly number[], dtype: DataType): TensorInfo {
    const made = this.#backend.makeOutput([...shape], dtype)
    if (this.#at(made) === 0) {
      this.#backend.disposeData(made.dataId)
      throw new Error(`tfjs's wasm heap has no room for a tensor of shape [${shape.join(', ')}]`)
    }
    return made
  }

  /** The same elements with another shape of the same size, without a copy. */
  reshaped(tensor: TensorInfo, shape: readonly number[]): TensorInfo {
    this.#backend.incRef(tensor.dataId)
    return { dataId: tensor.dataId, shape: [...shape], dtype: tensor.dtype }
  }

  /** Frees an intermediate tensor. */
  free(tensor: TensorInfo): void {
    this.#backend.disposeData(tensor.dataId)
  }

  floats(tensor: TensorInfo): Float32Array<ArrayBuffer> {
    assert(tensor.dtype === 'float32', `a tensor of ${tensor.dtype} is read as float32`)
    return new Float32Array(this.#current(), this.#at(tensor), sizeOf(tensor.shape))
  }

  ints(tensor: TensorInfo): Int32Array<ArrayBuffer> {
    assert(tensor.dtype === 'int32', `a tensor of ${tensor.dtype} is read as int32`)
    return new Int32Array(this.#current(), this.#at(tensor), sizeOf(tensor.shape))
  }

  flags(tensor: TensorInfo): Uint8Array<ArrayBuffer> {
    assert(tensor.dtype === 'bool', `a tensor of ${tensor.dtype} is read as bool`)
    return new Uint8Array(this.#current(), this.#at(tensor), sizeOf(tensor.shape))
  }

  #at(tensor: TensorInfo): number {
    return this.#backend.dataIdMap.get(tensor.dataId).memoryOffset
  }

  /** Workspace of `matmul`. */
  get scratch(): Float32Array<ArrayBuffer> {
    return new Float32Array(this.#current(), this.#scratch, MATMUL_SCRATCH)
  }

  /** Runs work on columns that are the tensors themselves. */
  readonly runColumns: RunColumns = (given, shapes, scratchLength, work) => {
    const made: TensorInfo[] = []
    try {
      for (const shape of [...shapes, [scratchLength]]) made.push(this.output(shape, 'float32'))
    } catch (error) {
      for (const tensor of made) this.free(tensor)
      throw error
    }
    const columns = made.map((tensor) => this.floats(tensor))
    const room = columns.pop()!
    const inputs = given.map((tensor) => (tensor === undefined ? room.subarray(0, 0) : this.floats(tensor)))
    work(this.kernels, inputs, columns, room)
    this.free(made.pop()!)
    return made
  }

  /** Frees the workspace; no kernel may run afterwards. */
  close(): void {
    this.#backend.wasm._free(this.#scratch)
  }

  /** A tensor of 32-bit elements as one column, for kernels that only move them. */
  words(tensor: TensorInfo): Int32Array<ArrayBuffer> {
    assert(tensor.dtype === 'float32' || tensor.dtype === 'int32', `a tensor of ${tensor.dtype} has no words`)
    return new Int32Array(this.#current(), this.#at(tensor), sizeOf(tensor.shape))
  }

  /** The kernel that is currently registered for `name`; tfjs's own, before ours are registered. */
  registered(name: string): Kernel {
    const { kernelFunc } = this.tf.getKernel(name, 'wasm')
    return ({ inputs, attrs }) => kernelFunc({ inputs: inputs as NamedTensorInfoMap, backend: this.#backend, attrs })
  }

  /** Runs the kernel that is currently registered for `name`. */
  run(name: string, inputs: Readonly<Record<string, TensorInfo | undefined>>, attrs: object = {}): TensorInfo {
    return this.registered(name)({ inputs, attrs: attrs as NamedAttrMap }) as TensorInfo
  }
}

/** Number of elements of a tensor with this shape. */
export function sizeOf(shape: readonly number[]): number {
  let size = 1
  for (const length of shape) size *= length
  return size
}
