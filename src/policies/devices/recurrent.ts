/**
 * Recurrent cells as one operation over all steps of a sequence. tfjs would use about fifteen operations per step forward and forty
 * backward, each with 20 to 40 µs of overhead. Our kernels do the work, registered with the backends that can be read synchronously: in
 * the wasm backend's heap, or in own columns with copies of the tensors.
 */
import type { NamedTensorMap, Tensor, Tensor2D, TensorInfo } from '@tensorflow/tfjs-core'
import { bestKernelBuild, createKernels, gruScratch, lstmScratch } from '../../kernels/bind.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { Tf } from './tfjs.ts'

/** Names of our cells in tfjs; with the suffix `Grad`, of their gradients. */
export type Cell = 'Gru' | 'Lstm'

/** The memory of a sequence's steps: row n · length + t is step t of lane n. */
export interface StepMemory {
  /** The recorded memory of each step: numLanes × length × width. */
  readonly memory: Tensor
  /** 1 if a step continues the previous one, 0 if it starts from `memory`; null if none continues. */
  readonly continues: Tensor | null
  /** The memory before a lane's first step, if it continues: numLanes × width. */
  readonly carried: Tensor | null
}

/** Whether the active backend has these operations. */
export function hasRecurrence(tf: Tf): boolean {
  return tf.getKernel('Gru', tf.getBackend()) !== undefined
}

/**
 * Returns the memory after each step: rows × width, h first. `x` (rows × gates) is the input's part of the gates; weight and bias are
 * those of h, in the kernels' format. Gradients go to these three.
 */
export function recurrence(
  tf: Tf,
  cell: Cell,
  x: Tensor2D,
  weight: Tensor,
  bias: Tensor,
  { memory, continues, carried }: StepMemory,
): Tensor2D {
  const run = (name: string, inputs: NamedTensorMap) => tf.engine().runKernel(name, inputs) as unknown as Tensor[]
  const operation = tf.customGrad((...given) => {
    const [x, weight, bias, save] = given as unknown as [Tensor, Tensor, Tensor, (tensors: Tensor[]) => void]
    const inputs: NamedTensorMap = { weight, recorded: memory }
    if (continues !== null) inputs.continues = continues
    if (carried !== null) inputs.carried = carried
    const [after, gates] = run(cell, { ...inputs, x, bias }) as [Tensor, Tensor]
    const kept: NamedTensorMap = { ...inputs, after, gates }
    save(Object.values(kept))
    const gradFunc = (dAfter: Tensor, saved: Tensor[]) =>
      run(`${cell}Grad`, { dAfter, ...Object.fromEntries(Object.keys(kept).map((name, i) => [name, saved[i]!])) })
    return { value: after, gradFunc: gradFunc as (dy: Tensor, saved: Tensor[]) => Tensor[] }
  })
  return operation(x, weight, bias) as Tensor2D
}

/** Calls `work` on columns: the inputs, new ones of these shapes, and workspace. Returns the new ones as tensors. */
export type RunColumns = (
  given: readonly (TensorInfo | undefined)[],
  shapes: readonly (readonly number[])[],
  scratchLength: number,
  work: (kernels: Kernels, given: Float32Array[], made: Float32Array[], scratch: Float32Array) => void,
) => TensorInfo[]

/** A tfjs kernel with several outputs. */
export type ManyOutputs = (given: { readonly inputs: Readonly<Record<string, TensorInfo | undefined>> }) => TensorInfo[]

/** The cells and their gradients over columns. */
export function recurrentKernels(run: RunColumns): Readonly<Record<string, ManyOutputs>> {
  const gru = { gates: 4, scratch: gruScratch, forward: 'gruForward', backward: 'gruBackward' } as const
  const lstm = { gates: 5, scratch: lstmScratch, forward: 'lstmForward', backward: 'lstmBackward' } as const
  const forward =
    ({ gates, scratch, forward }: typeof gru | typeof lstm): ManyOutputs =>
    ({ inputs: { x, weight, bias, recorded, continues, carried } }) => {
      const [numLanes, length, width] = recorded!.shape as [number, number, number]
      const units = weight!.shape[0]!
      const shapes = [
        [numLanes * length, width],
        [numLanes * length, gates * units],
      ]
      return run(
        [x, weight, bias, recorded, continues, carried],
        shapes,
        scratch(numLanes, length, units),
        (kernels, [x, weight, bias, recorded, continues, carried], [after, gates], room) =>
          kernels[forward](
            ...[after!, gates!, x!, weight!, bias!],
            { recorded: recorded!, continues: continues!, carried: carried! },
            ...[room, numLanes, length, units],
          ),
      )
    }
  const backward =
    ({ scratch, backward }: typeof gru | typeof lstm): ManyOutputs =>
    ({ inputs: { dAfter, after, gates, weight, recorded, continues, carried } }) => {
      const [numLanes, length] = recorded!.shape as [number, number, number]
      const [units, numGates] = weight!.shape as [number, number]
      return run(
        [dAfter, after, gates, weight, recorded, continues, carried],
        [[numLanes * length, numGates], [units, numGates], [numGates]],
        scratch(numLanes, length, units),
        (kernels, [dAfter, after, gates, weight, recorded, continues, carried], [dX, dWeight, dBias], room) => {
          kernels.clear(dWeight!, dWeight!.length)
          kernels.clear(dBias!, dBias!.length)
          kernels[backward](
            ...[dX!, dWeight!, dBias!, dAfter!, after!, gates!, weight!],
            { recorded: recorded!, continues: continues!, carried: carried! },
            ...[room, numLanes, length, units],
          )
        },
      )
    }
  return { Gru: forward(gru), GruGrad: backward(gru), Lstm: forward(lstm), LstmGrad: backward(lstm) }
}

/** Registers the cells over own columns with a backend that can be read synchronously, unless it has them. */
export function registerRecurrence(tf: Tf, backendName: string): void {
  if (tf.getKernel('Gru', backendName) !== undefined) return
  const kernels = recurrentKernels(inColumns(tf))
  for (const [kernelName, kernel] of Object.entries(kernels)) {
    tf.registerKernel({ kernelName, backendName, kernelFunc: (given) => kernel({ inputs: given.inputs }) })
  }
}

/** Columns in own memory, which grows to the largest call. */
function inColumns(tf: Tf): RunColumns {
  const memory = new WebAssembly.Memory({ initial: 1 })
  let kernels = createKernels(memory, bestKernelBuild(), 'passing')
  return (given, shapes, scratchLength, work) => {
    const lengths = [...given.map((tensor) => (tensor === undefined ? 0 : tf.util.sizeFromShape(tensor.shape)))]
    lengths.push(...shapes.map((shape) => tf.util.sizeFromShape([...shape])), scratchLength)
    const bytes = lengths.reduce((sum, length) => sum + 16 * Math.ceil(length / 4), 16)
    if (bytes > memory.buffer.byteLength) {
      memory.grow(Math.ceil((bytes - memory.buffer.byteLength) / 65536))
      kernels = createKernels(memory, bestKernelBuild(), 'passing')
    }
    let at = 16
    const columns = lengths.map((length) => {
      const column = new Float32Array(memory.buffer, at, length)
      at += 16 * Math.ceil(length / 4)
      return column
    })
    for (const [i, tensor] of given.entries()) {
      if (tensor !== undefined) columns[i]!.set((tensor as Tensor).dataSync())
    }
    const made = columns.slice(given.length, -1)
    work(kernels, columns.slice(0, given.length), made, columns.at(-1)!)
    return made.map((column, i) => tf.tensor(column.slice(), [...shapes[i]!], 'float32'))
  }
}
