/**
 * A policy whose network runs on a tfjs device. Weights, actions, losses and gradients stay columns: before a pass, changed weights are
 * sent to the device; afterwards outputs are read back as columns, for the same kernels as the fused perceptron. A pass leaves no tensors
 * behind, even if it throws.
 *
 * If the device can be read synchronously, the loss is called within a custom gradient; otherwise the pass is repeated with the
 * derivatives.
 */
import type { NamedTensorMap, Scalar, Tensor, Tensor2D, Tensor3D, Variable } from '@tensorflow/tfjs-core'
import { assert, InputError, show } from '../../base/errors.ts'
import type { Random } from '../../base/random.ts'
import { type Space, spaceWidth } from '../../base/space.ts'
import { type Columns, column, type Plan } from '../../components/column.ts'
import type { ObservationColumn } from '../../components/observation.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { Device } from '../devices/device.ts'
import { Head, type HeadColumns, type HeadShape, headPlan, headShape } from '../head.ts'
import type {
  ActingLanes,
  Evaluated,
  LossOf,
  ParameterViews,
  Policy,
  PolicyModel,
  Rows,
  Seen,
  Sequence,
} from '../policy.ts'
import { ParameterList } from '../stack/parameters.ts'
import type { NetworkParameter, SeenSteps, Weights } from './module.ts'

/** Maximum rows per call of a device: the overhead of a call far exceeds the work of one row. */
const DEVICE_BLOCK_ROWS = 8192

/** Outputs of a network. */
export interface Outputs {
  /** Logits or means: a row per input row. */
  readonly output: Tensor2D
  /** The critic's value: a row of one element. */
  readonly value: Tensor2D
  /** Each lane's memory after its last step; null without a memory. */
  readonly memory: Tensor2D | null
}

/** A whole network: trunk and heads. */
export interface Network {
  /** In the order of the flat weights. LOG_STD, for a box action, is not a tensor of the network. */
  readonly parameters: readonly NetworkParameter[]
  readonly memoryWidth: number
  forward(tf: Device['tf'], weights: Weights, seen: SeenSteps): Outputs
  /** The user's variables for the first parameters; each policy creates its own for the others. */
  readonly variables?: readonly Variable[]
}

/** Name of the log standard deviations of a box action. */
export const LOG_STD = 'actor.logStd'

/** Holds the device that `prepare` started. */
export interface DeviceHolder {
  device: Device | undefined
}

/** The policy's model over a network. */
export function networkModel(
  id: string,
  network: Network,
  actionSpace: Space,
  observationSpace: Space,
  sequence: Sequence | null,
  holder: DeviceHolder,
): PolicyModel {
  const head = headShape(actionSpace)
  const parameters = new ParameterList()
  for (const { name, shape } of network.parameters) parameters.add(name, shape)
  const shape = { network, head, parameters, sequence, observationWidth: spaceWidth(observationSpace) }
  return {
    numParameters: parameters.size,
    parameters: parameters.list,
    memoryWidth: network.memoryWidth,
    sequence,
    blockRows: DEVICE_BLOCK_ROWS,
    answersLater: holder.device?.readsSynchronously === false,
    staysInThread: true,
    workspace: () => ({ head: headPlan(head, DEVICE_BLOCK_ROWS), logStd: column('f32', 0) }) satisfies Plan,
    initialize(weights, random, key) {
      weights.fill(0)
      const views = parameters.view(weights)
      let layer = 0
      for (const [index, { shape: sides, initialize }] of network.parameters.entries()) {
        initialize?.(views[index]!, random, key, layer)
        if (sides.length > 1) layer++
      }
    },
    bind(weights, workspace, kernels, random) {
      if (holder.device === undefined) {
        throw new InputError(`policy ${id}`, 'a world that was made without its device', 'createWorld, which starts it')
      }
      return new DevicePolicy(id, shape, holder.device, weights, workspace, kernels, random)
    },
  }
}

interface Shape {
  readonly network: Network
  readonly head: HeadShape
  readonly parameters: ParameterList
  readonly sequence: Sequence | null
  readonly observationWidth: number
}

interface Read {
  readonly output: Float32Array
  readonly value: Float32Array
  readonly memory: Float32Array | null
}

/** The policy whose weights a model's variables hold, by the first variable: several policies may share them. */
const lastUser = new WeakMap<Variable, DevicePolicy>()

class DevicePolicy implements Policy {
  readonly #id: string
  readonly #shape: Shape
  readonly #device: Device
  readonly #tf: Device['tf']
  readonly #weights: ParameterViews
  readonly #head: Head
  readonly #logStd: number
  #variables: readonly (Variable | null)[] | undefined
  #isStale = true
  readonly #byName: Weights

  constructor(
    id: string,
    shape: Shape,
    device: Device,
    weights: Float32Array,
    workspace: Columns<Plan>,
    kernels: Kernels,
    random: Random,
  ) {
    this.#id = id
    this.#shape = shape
    this.#device = device
    this.#tf = device.tf
    this.#weights = this.view(weights)
    this.#logStd = shape.parameters.list.findIndex(({ name }) => name === LOG_STD)
    const columns = workspace as unknown as { head: HeadColumns; logStd: Float32Array }
    this.#head = new Head(shape.head, columns.head, this.#weights[this.#logStd] ?? columns.logStd, kernels, random)
    const places = new Map(shape.parameters.list.map(({ name }, index) => [name, index]))
    this.#byName = (name) => {
      const place = places.get(name)
      assert(place !== undefined, `${id} has no parameter ${name}`)
      return this.#variables![place]!
    }
  }

  view(weights: Float32Array): ParameterViews {
    return this.#shape.parameters.view(weights)
  }

  refresh(): void {
    this.#isStale = true
  }

  dispose(): void {
    const { variables = [] } = this.#shape.network
    for (const variable of this.#variables?.slice(variables.length) ?? []) variable?.dispose()
    this.#variables = undefined
    this.#isStale = true
  }

  infer(lanes: ActingLanes, explore: boolean, from: number, to: number): void | Promise<void> {
    const { observation, actionMask, memory, action } = lanes
    const count = Math.min(DEVICE_BLOCK_ROWS, to - from)
    if (count <= 0) return
    const { memoryWidth } = this.#shape.network
    const done = this.#run(
      { observation: observation.current, actionMask: actionMask.current, memory: memory.current },
      from,
      count,
      (read) => {
        this.#head.columns.output.set(read.output)
        action.value.set(read.value, from)
        if (read.memory !== null) memory.next.set(read.memory, from * memoryWidth)
        this.#head.act(lanes, explore, from, count)
      },
    )
    if (from + count >= to) return done
    if (done !== undefined) return done.then(() => this.infer(lanes, explore, from + count, to))
    return this.infer(lanes, explore, from + count, to)
  }

  values(value: Float32Array, seen: Seen, count: number, from = 0): void | Promise<void> {
    const rows = Math.min(DEVICE_BLOCK_ROWS, count - from)
    if (rows <= 0) return
    const done = this.#run(seen, from, rows, (read) => value.set(read.value, from))
    if (done !== undefined) return done.then(() => this.values(value, seen, count, from + rows))
    return this.values(value, seen, count, from + rows)
  }

  evaluate(rows: Rows, from: number, count: number): Evaluated | Promise<Evaluated> {
    const forward = () => this.#forwardRows(rows, from, count)
    return this.#read(forward, (read) => this.#evaluated(read, rows, from, count))
  }

  differentiate(
    rows: Rows,
    from: number,
    count: number,
    lossOf: LossOf,
    gradient: ParameterViews,
  ): void | Promise<void> {
    const dLogStd = gradient[this.#logStd] ?? EMPTY
    const lossAt = (read: Read): void => {
      const evaluated = this.#evaluated(read, rows, from, count)
      lossOf(evaluated, this.#head.derivatives, from, count)
      this.#head.backward(rows, from, count, dLogStd)
    }
    if (this.#device.readsSynchronously) return this.#backward(rows, from, count, lossAt, gradient)
    // A device that cannot be read within a pass is read after a first pass; the second pass has the derivatives.
    const done = this.#read(
      () => this.#forwardRows(rows, from, count),
      (read) => lossAt(read),
    ) as Promise<void>
    return done.then(() => this.#backward(rows, from, count, null, gradient))
  }

  /** Writes the network's outputs into the head's columns. */
  #evaluated(read: Read, rows: Rows, from: number, count: number): Evaluated {
    this.#head.columns.output.set(read.output)
    this.#head.columns.value.set(read.value)
    this.#head.evaluate(rows, from, count)
    return this.#head.evaluated
  }

  /**
   * Adds the gradient by the weights. The loss is a function of columns: either it is called with the outputs within the pass, or its
   * derivatives are already computed.
   */
  #backward(
    rows: Rows,
    from: number,
    count: number,
    lossAt: ((read: Read) => void) | null,
    gradient: ParameterViews,
  ): void | Promise<void> {
    const tf = this.#tf
    this.#load()
    const { dOutput, dValue } = this.#head.columns
    const { numOutputs } = this.#shape.head
    const derivatives = (): Tensor[] => [
      tf.tensor2d(dOutput.slice(0, count * numOutputs), [count, numOutputs]),
      tf.tensor2d(dValue.slice(0, count), [count, 1]),
    ]
    const columnLoss = tf.customGrad((...given) => {
      const [output, value] = given as unknown as [Tensor2D, Tensor2D]
      lossAt?.({ output: syncData(output), value: syncData(value), memory: null })
      return { value: tf.scalar(0), gradFunc: () => derivatives() }
    })
    const before = this.#burnIn(rows, count)
    let grads: NamedTensorMap
    try {
      const variables = this.#variables!.filter((variable) => variable !== null)
      const result = tf.variableGrads(() => {
        const { output, value } = this.#forwardRows(rows, from, count, before)
        return columnLoss(output, value) as Scalar
      }, variables)
      result.value.dispose()
      grads = result.grads
    } catch (error) {
      releaseTape(tf)
      throw error
    } finally {
      before?.dispose()
    }
    if (this.#device.readsSynchronously) {
      try {
        this.#variables!.forEach((variable, index) => {
          if (variable !== null) add(gradient[index]!, syncData(grads[variable.name]!))
        })
      } finally {
        tf.dispose(grads)
      }
      return
    }
    const reading = this.#variables!.map(async (variable, index) => {
      if (variable !== null) add(gradient[index]!, (await grads[variable.name]!.data()) as Float32Array)
    })
    return Promise.all(reading).then(
      () => tf.dispose(grads),
      (cause) => {
        tf.dispose(grads)
        throw cause
      },
    )
  }

  /** Runs one step of `count` lanes from row `from`. */
  #run(seen: Seen, from: number, count: number, then: (read: Read) => void): void | Promise<void> {
    return this.#read(() => {
      const { memoryWidth } = this.#shape.network
      const memory =
        memoryWidth === 0
          ? null
          : this.#tf.tensor3d(part(seen.memory, from, count, memoryWidth), [count, 1, memoryWidth])
      return this.#forward({
        x: this.#observations(seen, from, count),
        numLanes: count,
        length: 1,
        memory,
        continues: null,
        carried: null,
      })
    }, then)
  }

  /** Runs `count` rows of a minibatch, or of its sequences without their burn-in. */
  #forwardRows(rows: Rows, from: number, count: number, before: Tensor2D | null = null): Outputs {
    const { sequence } = this.#shape
    if (sequence === null) {
      const x = this.#observations(rows, from, count)
      return this.#forward({ x, numLanes: count, length: 1, memory: null, continues: null, carried: null })
    }
    assert(from === 0 && count % sequence.length === 0, 'sequences are evaluated whole, from row 0')
    const carried = before ?? this.#burnIn(rows, count)
    return this.#forward(this.#steps(rows, count, sequence.burnIn, sequence.length, carried))
  }

  /** The lanes' memory after the burn-in; null without a burn-in. */
  #burnIn(rows: Rows, count: number): Tensor2D | null {
    const { sequence } = this.#shape
    if (sequence === null || sequence.burnIn === 0) return null
    return this.#tf.tidy(() => this.#forward(this.#steps(rows, count, 0, sequence.burnIn, null)).memory!)
  }

  /** Steps `first` to `first + length` of each sequence. */
  #steps(rows: Rows, count: number, first: number, length: number, carried: Tensor2D | null): SeenSteps {
    const tf = this.#tf
    const { sequence, network, observationWidth } = this.#shape
    const { memoryWidth } = network
    const rowsOf = sequence!.burnIn + sequence!.length
    const numLanes = count / sequence!.length
    const cut = (recorded: ObservationColumn, width: number) => {
      const all = tf.tensor3d(part(recorded, 0, numLanes * rowsOf, width), [numLanes, rowsOf, width])
      return length === rowsOf ? all : tf.slice(all, [0, first, 0], [-1, length, -1])
    }
    const observation = cut(rows.observation, observationWidth)
    const continues = cut(Float32Array.from(rows.continues.subarray(0, numLanes * rowsOf)), 1)
    return {
      x: tf.reshape(observation, [numLanes * length, observationWidth]),
      numLanes,
      length,
      memory: cut(rows.memory, memoryWidth) as Tensor3D,
      continues: tf.reshape(continues, [numLanes, length]),
      carried,
    }
  }

  #observations(seen: Seen, from: number, count: number): Tensor2D {
    const { observationWidth } = this.#shape
    return this.#tf.tensor2d(part(seen.observation, from, count, observationWidth), [count, observationWidth])
  }

  /** Runs the network's forward pass and checks the shapes. */
  #forward(seen: SeenSteps): Outputs {
    const outputs = this.#shape.network.forward(this.#tf, this.#byName, seen)
    const numRows = seen.numLanes * seen.length
    check(this.#id, 'output', outputs.output, [numRows, this.#shape.head.numOutputs])
    check(this.#id, 'value', outputs.value, [numRows, 1])
    return outputs
  }

  /** Runs `forward` with the current weights, reads the outputs and passes them on. */
  #read<T>(forward: () => Outputs, then: (read: Read) => T): T | Promise<T> {
    const tf = this.#tf
    this.#load()
    const { output, value, memory } = tf.tidy(() => forward() as unknown as NamedTensorMap) as unknown as Outputs
    const kept = [output, value, ...(memory === null ? [] : [memory])]
    if (this.#device.readsSynchronously) {
      try {
        const [outputs, values, memories] = kept.map(syncData)
        return then({ output: outputs!, value: values!, memory: memories ?? null })
      } finally {
        tf.dispose(kept)
      }
    }
    const reading = Promise.all(kept.map((tensor) => tensor.data() as Promise<Float32Array>))
    return reading
      .then(([outputs, values, memories]) => then({ output: outputs!, value: values!, memory: memories ?? null }))
      .finally(() => tf.dispose(kept))
  }

  /** Sends the weights to the device if it does not have them. */
  #load(): void {
    const { variables } = this.#shape.network
    const active = this.#tf.getBackend()
    if (active !== this.#device.backend) {
      const expected = `the policy's device, ${this.#device.name}: one is active at a time (startDevice)`
      throw new InputError(`policy ${this.#id}`, `tfjs backend ${active}`, expected)
    }
    if (!this.#isStale && (variables === undefined || lastUser.get(variables[0]!) === this)) return
    const tf = this.#tf
    tf.tidy(() => {
      const tensors = this.#shape.parameters.list.map(({ name, shape }, index) =>
        name === LOG_STD ? null : tf.tensor(this.#weights[index]!.slice(), [...shape]),
      )
      this.#variables ??= tensors.map((tensor, index) => variables?.[index] ?? (tensor && tf.variable(tensor)))
      for (const [index, variable] of this.#variables.entries()) variable?.assign(tensors[index]!)
    })
    if (variables !== undefined) lastUser.set(variables[0]!, this)
    this.#isStale = false
  }
}

const EMPTY = new Float32Array(0)

function syncData(tensor: Tensor): Float32Array {
  return tensor.dataSync() as Float32Array
}

/** A copy of rows as floats, because a device may keep its input while columns are reused. */
function part(column: ObservationColumn, from: number, count: number, width: number): Float32Array {
  const [first, end] = [from * width, (from + count) * width]
  return column instanceof Float32Array ? column.slice(first, end) : Float32Array.from(column.subarray(first, end))
}

function add(sum: Float32Array, values: Float32Array): void {
  for (let i = 0; i < sum.length; i++) sum[i] = sum[i]! + values[i]!
}

/** Disposes tensors that a failed pass had saved for its gradient, which tfjs leaks. */
function releaseTape(tf: Device['tf']): void {
  const { state } = tf.engine() as unknown as { state: { activeTape: { saved?: Tensor[] }[] | null } }
  for (const { saved } of state.activeTape ?? []) tf.dispose(saved ?? [])
  state.activeTape = null
}

function check(id: string, what: string, tensor: Tensor | undefined, expected: readonly number[]): void {
  const shape = tensor?.shape
  if (shape !== undefined && shape.length === expected.length && expected.every((side, i) => shape[i] === side)) return
  throw new InputError(`network ${id}, ${what}`, show(shape), `a tensor of shape ${show(expected)}`)
}
