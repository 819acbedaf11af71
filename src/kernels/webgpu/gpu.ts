/**
 * A WebGPU device that runs steps (step.ts): gives columns their buffers, compiles shaders once, and counts the bytes
 * sent between processor and device. A refused operation leaves zeros in its result, so after the first failure every read is an error.
 */
import { assert } from '../../base/errors.ts'
import type { DeviceColumn, Step } from './step.ts'

/** Bytes that crossed, and how often. */
export interface Transfers {
  readonly sends: number
  readonly sentBytes: number
  readonly reads: number
  readonly readBytes: number
  readonly submits: number
}

const [STORAGE, COPY_SRC, COPY_DST, MAP_READ] = [0x80, 0x04, 0x08, 0x01]
const MAP_FOR_READING = 1

interface ReadyStep {
  readonly pipeline: GPUComputePipeline
  readonly group: GPUBindGroup
  readonly groups: Step['groups']
}

/** Steps that have been made ready, in order. */
export interface ReadySteps {
  readonly steps: readonly ReadyStep[]
}

export class Gpu {
  /** The adapter, for people. */
  readonly description: string
  /** Whether it computes on a GPU; null if unknown. */
  readonly isGpu: boolean | null
  /** The largest column, in bytes. */
  readonly maxColumnBytes: number
  readonly #device: GPUDevice
  readonly #pipelines = new Map<string, Promise<GPUComputePipeline>>()
  readonly #transfers = { sends: 0, sentBytes: 0, reads: 0, readBytes: 0, submits: 0 }
  #failure: string | undefined

  constructor(device: GPUDevice, description: string, isGpu: boolean | null) {
    this.#device = device
    this.description = description
    this.isGpu = isGpu
    this.maxColumnBytes = Math.min(device.limits.maxStorageBufferBindingSize, device.limits.maxBufferSize)
    device.addEventListener('uncapturederror', ({ error }) => {
      this.#failure ??= error.message
    })
    void device.lost.then(({ message }) => {
      this.#failure ??= message
    })
  }

  /** What crossed since the device was started. */
  get transfers(): Transfers {
    return { ...this.#transfers }
  }

  /** A room for columns; a column gets its buffer when it is first used. */
  memory(): DeviceMemory {
    return new DeviceMemory(this, this.#device, this.#transfers)
  }

  /** The pipeline of a shader, compiled once. @throws Error with the compiler's first message. */
  pipeline({ name, code }: Pick<Step, 'name' | 'code'>): Promise<GPUComputePipeline> {
    let made = this.#pipelines.get(code)
    if (made === undefined) {
      made = this.#compile(name, code)
      this.#pipelines.set(code, made)
    }
    return made
  }

  async #compile(name: string, code: string): Promise<GPUComputePipeline> {
    const module = this.#device.createShaderModule({ label: name, code })
    const { messages } = await module.getCompilationInfo()
    const error = messages.find(({ type }) => type === 'error')
    if (error !== undefined) throw new Error(`shader ${name}, line ${error.lineNum}: ${error.message}`)
    return this.#device.createComputePipelineAsync({
      label: name,
      layout: 'auto',
      compute: { module, entryPoint: 'main' },
    })
  }

  /** @throws Error if the device has failed. */
  check(): void {
    if (this.#failure !== undefined)
      throw new Error(`device webgpu has failed, and needs a new process: ${this.#failure}`)
  }

  /** Takes a refused read as the device's failure, if there is none yet: a lost device refuses reads before it says why. */
  async failed(cause: unknown): Promise<never> {
    await new Promise((resolve) => setTimeout(resolve, 0))
    this.#failure ??= cause instanceof Error ? cause.message : String(cause)
    this.check()
    throw cause
  }

  /** Releases the device; pending work is lost. */
  destroy(): void {
    this.#device.destroy()
  }
}

/** Columns on the device that are released together. */
export class DeviceMemory {
  readonly gpu: Gpu
  readonly #device: GPUDevice
  readonly #transfers: { -readonly [name in keyof Transfers]: number }
  readonly #buffers = new Map<DeviceColumn, GPUBuffer>()
  readonly #staging = new Map<number, GPUBuffer>()
  #encoder: GPUCommandEncoder | undefined

  constructor(gpu: Gpu, device: GPUDevice, transfers: { -readonly [name in keyof Transfers]: number }) {
    this.gpu = gpu
    this.#device = device
    this.#transfers = transfers
  }

  /** Compiles steps and gives their columns buffers. */
  async ready(steps: readonly Step[]): Promise<ReadySteps> {
    const made = await Promise.all(
      steps.map(async (each) => {
        const pipeline = await this.gpu.pipeline(each)
        const entries = each.columns.map((column, binding) => ({ binding, resource: { buffer: this.#buffer(column) } }))
        const group = this.#device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries })
        return { pipeline, group, groups: each.groups }
      }),
    )
    return { steps: made }
  }

  /** Sends numbers to a column, from its element `at`. Steps that were run before see the former numbers. */
  send(column: DeviceColumn, values: Float32Array | Uint32Array | Int32Array, at = 0): void {
    if (values.length === 0) return
    assert(at + values.length <= column.length, `device column ${column.name} is too short`)
    this.flush()
    // A queue copies at once, and accepts no shared memory.
    const bytes = values.buffer instanceof ArrayBuffer ? values : values.slice()
    this.#device.queue.writeBuffer(
      this.#buffer(column),
      at * 4,
      bytes.buffer as ArrayBuffer,
      bytes.byteOffset,
      bytes.byteLength,
    )
    this.#transfers.sends++
    this.#transfers.sentBytes += values.byteLength
  }

  /** Sets a column to zeros. */
  clear(column: DeviceColumn): void {
    this.#encode().clearBuffer(this.#buffer(column))
  }

  /** Runs steps in their order, after all that was run before. */
  run({ steps }: ReadySteps): void {
    const pass = this.#encode().beginComputePass()
    for (const { pipeline, group, groups } of steps) {
      pass.setPipeline(pipeline)
      pass.setBindGroup(0, group)
      pass.dispatchWorkgroups(...groups)
    }
    pass.end()
  }

  /** Gives the device what has been asked of it so far. */
  flush(): void {
    if (this.#encoder === undefined) return
    this.#device.queue.submit([this.#encoder.finish()])
    this.#transfers.submits++
    this.#encoder = undefined
  }

  /** Reads columns, once all that was run before is done: one crossing for all of them. @throws Error if the device has failed. */
  async read(
    parts: readonly { readonly column: DeviceColumn; readonly into: Float32Array | Uint32Array }[],
  ): Promise<void> {
    const bytes = parts.reduce((sum, { into }) => sum + into.byteLength, 0)
    const staging = this.#stagingOf(bytes)
    let at = 0
    for (const { column, into } of parts) {
      this.#encode().copyBufferToBuffer(this.#buffer(column), 0, staging, at, into.byteLength)
      at += into.byteLength
    }
    this.flush()
    try {
      await staging.mapAsync(MAP_FOR_READING, 0, bytes)
    } catch (cause) {
      await this.gpu.failed(cause)
    }
    this.gpu.check()
    const mapped = staging.getMappedRange(0, bytes)
    at = 0
    for (const { into } of parts) {
      const Type = into.constructor as Float32ArrayConstructor
      ;(into as Float32Array).set(new Type(mapped, at, into.length))
      at += into.byteLength
    }
    staging.unmap()
    this.#transfers.reads++
    this.#transfers.readBytes += bytes
  }

  /** Waits until the device has done all that was asked of it. @throws Error if it has failed. */
  async done(): Promise<void> {
    this.flush()
    await this.#device.queue.onSubmittedWorkDone()
    this.gpu.check()
  }

  /** Frees the columns' buffers; unflushed steps are dropped. */
  release(): void {
    this.#encoder = undefined
    for (const buffer of [...this.#buffers.values(), ...this.#staging.values()]) buffer.destroy()
    this.#buffers.clear()
    this.#staging.clear()
  }

  #encode(): GPUCommandEncoder {
    this.#encoder ??= this.#device.createCommandEncoder()
    return this.#encoder
  }

  #buffer(column: DeviceColumn): GPUBuffer {
    let buffer = this.#buffers.get(column)
    if (buffer === undefined) {
      const { name, length } = column
      buffer = this.#device.createBuffer({ label: name, size: length * 4, usage: STORAGE | COPY_SRC | COPY_DST })
      this.#buffers.set(column, buffer)
    }
    return buffer
  }

  #stagingOf(bytes: number): GPUBuffer {
    let buffer = this.#staging.get(bytes)
    if (buffer === undefined) {
      buffer = this.#device.createBuffer({ label: 'staging', size: bytes, usage: MAP_READ | COPY_DST })
      this.#staging.set(bytes, buffer)
    }
    return buffer
  }
}
