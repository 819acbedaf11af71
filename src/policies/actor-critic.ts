/**
 * Actors and critics over our own kernels: stacks of layers for each, or a shared trunk below two heads. `mlp`, `convolutional` and
 * `recurrent` are such networks.
 */
import { InputError } from '../base/errors.ts'
import type { Random } from '../base/random.ts'
import { actorWidth, observationType, type Space, spaceWidth } from '../base/space.ts'
import { type Columns, column, type Plan } from '../components/column.ts'
import type { ObservationColumn } from '../components/observation.ts'
import { observationColumn } from '../components/rollout.ts'
import { Activation } from '../kernels/bind.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { Head, headPlan, headShape } from './head.ts'
import { addInputMoments, Inputs, inputsPlan } from './inputs.ts'
import { modelOf, numInputsOf } from './network-model.ts'
import type { NetworkShape } from './network-shape.ts'
import {
  type ActingLanes,
  BLOCK_ROWS,
  type DenseLayer,
  type DenseNetwork,
  type Evaluated,
  type LossOf,
  type ParameterViews,
  type Policy,
  type PolicyModel,
  type Rows,
  type Seen,
  type Sequence,
} from './policy.ts'
import type { ShaderDevice } from './shader-device.ts'
import { embeddings } from './stack/embedding.ts'
import type { Cell, Steps } from './stack/layer.ts'
import { ParameterList } from './stack/parameters.ts'
import {
  type InputGradient,
  Stack,
  type StackOptions,
  type StackShape,
  stackPlan,
  stackShape,
  workPlan,
} from './stack/stack.ts'

/** The settings of such a network. */
export interface ActorCriticSettings extends Omit<StackOptions, 'memoryAt'> {
  /** Actor and critic share everything but the heads. */
  readonly sharedTrunk: boolean
  /** Initial log standard deviation of a continuous action. */
  readonly logStd: number
  readonly normalizeObservations: boolean
  /** Learned numbers for each choice in an observation; 0 for none. */
  readonly embedding?: number
}

/** The model of an actor and a critic; `id` is the policy's in errors. A network with a cell is trained on sequences. */
export function actorCritic(
  id: string,
  settings: ActorCriticSettings,
  sequence: Sequence | null,
  observationSpace: Space,
  actionSpace: Space,
  device: ShaderDevice | null = null,
): PolicyModel {
  const { layerNorm, embedding } = settings
  for (const [name, value] of Object.entries({ layerNorm, embedding })) {
    if (device !== null && value) throw new InputError(`${id} ${name}`, `${value} with device webgpu`, 'device none')
  }
  const shape = shapeOf(id, settings, sequence, observationSpace, actionSpace)
  if (device !== null && shape.actorInputs < shape.numInputs) {
    throw new InputError(`${id}.device`, 'webgpu, of observations with a part for critics alone', 'none')
  }
  const dense = denseNetwork(shape)
  const model = modelOf(shape, workspacePlan, (views) => views[shape.logStd]?.fill(settings.logStd), ActorCritic)
  return {
    ...model,
    memoryWidth: shape.memoryWidth,
    sequence,
    blockRows: shape.blockRows,
    ...(dense === null ? {} : { dense }),
    ...(device === null
      ? {}
      : {
          updateOnDevice: device.updateOf(shape),
          bind: (...given) => Object.assign(model.bind(...given), { dispose: () => device.release() }),
        }),
  }
}

export function shapeOf(
  id: string,
  settings: ActorCriticSettings,
  sequence: Sequence | null,
  observationSpace: Space,
  actionSpace: Space,
): NetworkShape {
  const { hidden, activation, cell = null, sharedTrunk, normalizeObservations, embedding = 0 } = settings
  const actorInputs = actorWidth(observationSpace)
  const isSplit = actorInputs < spaceWidth(observationSpace)
  if (isSplit && (sharedTrunk || settings.first !== undefined || embedding > 0)) {
    const kind = sharedTrunk ? 'layers that actor and critic share' : embedding > 0 ? 'embeddings' : 'convolutions'
    const got = `${kind}, of observations with a part for critics alone`
    throw new InputError(`${id} observation space`, got, 'dense or recurrent layers of the actor alone')
  }
  if (embedding > 0 && normalizeObservations) {
    throw new InputError(`${id} embedding`, `${embedding} with normalizeObservations`, '0, or raw observations')
  }
  const numInputs = isSplit ? spaceWidth(observationSpace) : numInputsOf(id, observationSpace)
  const first = embedding > 0 ? embeddings(id, embedding, observationSpace) : settings.first
  const layers = first === undefined ? settings : { ...settings, first }
  const parameters = new ParameterList()
  const head = headShape(actionSpace)
  const hasTrunk = sharedTrunk && (first !== undefined || hidden.length > 0 || cell !== null)
  const trunk = hasTrunk ? stackShape(parameters, 'trunk', { numInputs }, layers) : null
  const below = trunk?.layers.at(-1)?.numOutputs ?? numInputs
  const own = (memoryAt: number) => (hasTrunk ? { hidden: [], activation } : { ...layers, memoryAt })
  const widthOf = (stack: StackShape | null) => stack?.cell?.memoryWidth ?? 0
  const actorBelow = isSplit ? actorInputs : below
  const actor = stackShape(parameters, 'actor', { numInputs: actorBelow, numOutputs: head.numOutputs }, own(0), 0.01)
  const logStd = head.choices.length > 0 ? -1 : parameters.add('actor.logStd', [head.actionWidth])
  const critic = stackShape(parameters, 'critic', { numInputs: below, numOutputs: 1 }, own(widthOf(actor)), 1)
  const inputs = normalizeObservations ? addInputMoments(parameters, numInputs) : null
  const stacks = trunk === null ? [actor, critic] : [trunk, actor, critic]
  const memoryWidth = stacks.reduce((sum, stack) => sum + widthOf(stack), 0)
  const blockRows = blockRowsOf(stacks, sequence)
  const stacked = { trunk, actor, critic, stacks }
  const given = { numInputs, areBytes: observationType(observationSpace) === 'u8', inputs }
  return { parameters, ...stacked, actorInputs, logStd, head, ...given, memoryWidth, sequence, blockRows }
}

/** Rows whose activations stay in the second-level cache; at least a whole sequence. */
function blockRowsOf(stacks: readonly StackShape[], sequence: Sequence | null): number {
  const widest = Math.max(...stacks.flatMap(({ layers }) => layers.map(({ numOutputs }) => numOutputs)))
  const rows = widest > 1024 ? BLOCK_ROWS / 4 : BLOCK_ROWS
  return sequence === null ? rows : Math.max(rows, sequence.burnIn + sequence.length)
}

/** The layers of a network that has only dense ones, which can be exported; else null. */
function denseNetwork({ stacks, trunk, actor, critic, logStd, inputs, parameters }: NetworkShape): DenseNetwork | null {
  const offsetOf = (place: number) => parameters.list[place]!.offset
  if (
    !stacks.every(
      ({ layers, cell }) => cell === null && layers.every(({ isDense, norm }) => isDense || norm !== undefined),
    )
  )
    return null
  const describe = (stack: StackShape | null): DenseLayer[] =>
    (stack?.layers ?? []).flatMap(({ numInputs, numOutputs, norm, matrices: [matrix] }, i, layers) => {
      if (norm !== undefined) return [] // A part of the layer below.
      const above = layers[i + 1]?.norm
      const { activation } = layers[above === undefined ? i : i + 1]!
      return {
        name: parameters.list[matrix!.weight]!.name.replace(/\.weight$/, ''),
        ...{ numInputs, numOutputs },
        activation: (['linear', 'tanh', 'relu'] as const).find((name) => Activation[name] === activation)!,
        weight: offsetOf(matrix!.weight),
        bias: offsetOf(matrix!.weight + 1),
        norm: above === undefined ? null : { weight: offsetOf(above), bias: offsetOf(above + 1) },
      }
    })
  return {
    trunk: describe(trunk),
    actor: describe(actor),
    critic: describe(critic),
    logStd: logStd < 0 ? null : offsetOf(logStd),
    inputs: inputs && { center: offsetOf(inputs.center), deviation: offsetOf(inputs.deviation), clip: inputs.clip },
  }
}

function workspacePlan(shape: NetworkShape) {
  const { trunk, actor, critic, stacks, head, numInputs, actorInputs, areBytes } = shape
  const { memoryWidth, sequence, blockRows } = shape
  const rows = (width: number) => column('f32', blockRows, width)
  const partRows = sequence !== null && sequence.burnIn > 0 ? blockRows : 0
  return {
    inputs: inputsPlan(shape, blockRows),
    trunk: stackPlan(trunk ?? { layers: [], cell: null }, blockRows),
    actor: stackPlan(actor, blockRows),
    critic: stackPlan(critic, blockRows),
    head: headPlan(head, blockRows),
    work: workPlan(stacks, blockRows),
    /** What the actor sees, if that is less than the critic sees. */
    own: column('f32', actorInputs < numInputs ? blockRows : 0, actorInputs),
    /** The gradient by the trunk's outputs. */
    dTrunk: trunk === null ? column('f32', 0) : rows(actor.layers[0]!.numInputs),
    /** The burn-in of sequences, or what follows it: rows one after another. */
    part: {
      observation: observationColumn(partRows, { observation: numInputs, observationType: areBytes ? 'u8' : 'f32' }),
      memory: column('f32', partRows, memoryWidth),
      continues: column('u8', partRows),
    },
  } satisfies Plan
}

type Workspace = Columns<ReturnType<typeof workspacePlan>>

/** Empty log standard deviations for a head of choices; empty rows. */
const NONE = new Float32Array(0)
const NO_FLAGS = new Uint8Array(0)

class ActorCritic implements Policy {
  readonly #shape: NetworkShape
  readonly #inputs: Inputs
  readonly #trunk: Stack | null
  readonly #actor: Stack
  readonly #critic: Stack
  readonly #head: Head
  /** The two heads' gradients by the trunk's outputs, which are summed before the activation's derivative. */
  readonly #dActor: InputGradient | null
  readonly #dCritic: InputGradient | null
  readonly #cells: readonly Cell[]
  readonly #part: Workspace['part']
  readonly #own: Float32Array
  readonly #kernels: Kernels
  readonly #steps: { -readonly [name in keyof Steps]: Steps[name] }
  /** The current rows' inputs and the trunk's outputs; `…From` is the index of the first. */
  #x: Float32Array = NONE
  #xFrom = 0
  #top: Float32Array = NONE
  #topFrom = 0
  /** What the actor's layers read: the trunk's outputs, or the part of the inputs that is for the actor. */
  #seen: Float32Array = NONE
  #seenFrom = 0

  constructor(shape: NetworkShape, weights: Float32Array, workspace: Workspace, kernels: Kernels, random: Random) {
    const views = shape.parameters.view(weights)
    const { trunk, actor, critic, work, dTrunk } = workspace
    this.#shape = shape
    this.#inputs = new Inputs(shape, views, workspace.inputs, kernels)
    this.#trunk = shape.trunk && new Stack(shape.trunk, views, trunk, work, kernels)
    this.#actor = new Stack(shape.actor, views, actor, work, kernels)
    this.#critic = new Stack(shape.critic, views, critic, work, kernels)
    this.#head = new Head(shape.head, workspace.head, views[shape.logStd] ?? NONE, kernels, random)
    const activation = shape.trunk?.layers.at(-1)?.activation ?? Activation.linear
    this.#dActor = this.#trunk && { dx: dTrunk, accumulate: false, activation: Activation.linear }
    this.#dCritic = this.#trunk && { dx: dTrunk, accumulate: true, activation }
    this.#cells = [this.#trunk?.cell, this.#actor.cell, this.#critic.cell].filter((cell) => cell != null)
    this.#part = workspace.part
    this.#own = workspace.own
    this.#kernels = kernels
    this.#steps = {
      ...{ numLanes: 0, length: 1, memory: NONE, memoryWidth: shape.memoryWidth, memoryFrom: 0 },
      ...{ continues: NO_FLAGS, isCarried: false },
    }
  }

  view(column: Float32Array): ParameterViews {
    return this.#shape.parameters.view(column)
  }

  infer(lanes: ActingLanes, explore: boolean, from: number, to: number): void {
    const { blockRows, memoryWidth } = this.#shape
    for (let first = from; first < to; first += blockRows) {
      const count = Math.min(blockRows, to - first)
      this.#singleSteps(lanes.memory.current, first, count)
      this.#read(lanes.observation.current, first, count)
      this.#actor.forward(this.#seen, this.#seenFrom, count, this.#head.columns.output, 0, this.#steps)
      this.#head.act(lanes, explore, first, count)
      this.#critic.forward(this.#top, this.#topFrom, count, lanes.action.value, first, this.#steps)
      for (const cell of this.#cells) cell.remember(lanes.memory.next, memoryWidth, first)
    }
  }

  values(value: Float32Array, { observation, memory }: Seen, count: number): void {
    const { blockRows } = this.#shape
    for (let first = 0; first < count; first += blockRows) {
      const rows = Math.min(blockRows, count - first)
      this.#singleSteps(memory, first, rows)
      this.#read(observation, first, rows)
      this.#critic.forward(this.#top, this.#topFrom, rows, value, first, this.#steps)
    }
  }

  evaluate(rows: Rows, from: number, count: number): Evaluated {
    const { sequence } = this.#shape
    if (sequence === null) {
      this.#read(rows.observation, from, count)
    } else {
      const isWhole = sequence.burnIn === 0
      const numLanes = count / sequence.length
      if (!isWhole) {
        const early = this.#partOf(rows, numLanes, 0, sequence.burnIn)
        this.#readSequences(early, numLanes, sequence.burnIn, false)
        this.#forward(numLanes * sequence.burnIn)
        for (const cell of this.#cells) cell.carry()
      }
      const trained = isWhole ? rows : this.#partOf(rows, numLanes, sequence.burnIn, sequence.length)
      this.#readSequences(trained, numLanes, sequence.length, !isWhole)
    }
    this.#forward(count)
    this.#head.evaluate(rows, from, count)
    return this.#head.evaluated
  }

  differentiate(rows: Rows, from: number, count: number, lossOf: LossOf, gradient: ParameterViews): void {
    lossOf(this.evaluate(rows, from, count), this.#head.derivatives, from, count)
    this.#head.backward(rows, from, count, gradient[this.#shape.logStd] ?? NONE)
    const { dOutput, dValue } = this.#head.columns
    this.#actor.backward(dOutput, this.#seen, this.#seenFrom, count, gradient, this.#dActor)
    this.#critic.backward(dValue, this.#top, this.#topFrom, count, gradient, this.#dCritic)
    if (this.#dActor !== null) this.#trunk!.backward(this.#dActor.dx, this.#x, this.#xFrom, count, gradient)
  }

  /** Computes logits (means) and values of the current rows. */
  #forward(count: number): void {
    const { output, value } = this.#head.columns
    this.#actor.forward(this.#seen, this.#seenFrom, count, output, 0, this.#steps)
    this.#critic.forward(this.#top, this.#topFrom, count, value, 0, this.#steps)
  }

  /** Runs rows from … from + count of observations through the layers that actor and critic share, and takes out the actor's part. */
  #read(observation: ObservationColumn, from: number, count: number): void {
    this.#x = this.#inputs.read(observation, from, count)
    this.#xFrom = this.#inputs.at(from)
    this.#top = this.#trunk?.forward(this.#x, this.#xFrom, count, undefined, 0, this.#steps) ?? this.#x
    this.#topFrom = this.#trunk === null ? this.#xFrom : 0
    this.#seen = this.#top
    this.#seenFrom = this.#topFrom
    const { actorInputs, numInputs } = this.#shape
    if (actorInputs === numInputs) return
    this.#kernels.copyRows(this.#own, this.#x, count, actorInputs, actorInputs, numInputs, 0, this.#xFrom * numInputs)
    this.#seen = this.#own
    this.#seenFrom = 0
  }

  /** Marks each of the next `count` rows as a separate step, from row `from` of the memory. */
  #singleSteps(memory: Float32Array, from: number, count: number): void {
    const steps = this.#steps
    steps.numLanes = count
    steps.length = 1
    steps.memory = memory
    steps.memoryFrom = from
    steps.continues = NO_FLAGS
    steps.isCarried = false
  }

  #readSequences(
    rows: Omit<Rows, 'action' | 'actionMask'>,
    numLanes: number,
    length: number,
    isCarried: boolean,
  ): void {
    const steps = this.#steps
    steps.numLanes = numLanes
    steps.length = length
    steps.memory = rows.memory
    steps.memoryFrom = 0
    steps.continues = rows.continues
    steps.isCarried = isCarried
    this.#read(rows.observation, 0, numLanes * length)
  }

  /** Copies `length` rows of each sequence, from its row `first`, one after another. */
  #partOf(rows: Rows, numLanes: number, first: number, length: number): Workspace['part'] {
    const part = this.#part
    const { numInputs, memoryWidth, sequence } = this.#shape
    const all = sequence!.burnIn + sequence!.length
    const copy = (into: ObservationColumn, from: ObservationColumn, width: number) =>
      this.#kernels.copyRows(into, from, numLanes, length * width, length * width, all * width, 0, first * width)
    copy(part.observation, rows.observation, numInputs)
    copy(part.memory, rows.memory, memoryWidth)
    for (let n = 0, i = 0; n < numLanes; n++) {
      for (let t = 0; t < length; t++, i++) part.continues[i] = rows.continues[n * all + first + t]!
    }
    return part
  }
}
