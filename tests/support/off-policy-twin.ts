/**
 * A reference run from a replay in f64, by definition: lanes' steps are lists, rows are drawn by walking along
 * priorities, networks read named parameters, and gradients are difference quotients. Slow, so for tiny networks.
 */
import { expect } from 'vitest'
import { philox4x32, Stream, unitFromWord } from '../../src/base/random.ts'
import { type AlgorithmFactory, replayTable } from '../../src/entries/algorithms.ts'
import { createTrainer, createWorld, type EnvironmentDefinition } from '../../src/index.ts'
import type { Parameter, PolicyDefinition } from '../../src/policies/policy.ts'
import { step as descend, type StepSettings } from './on-policy-twin.ts'

/** The settings of learning from a replay. */
export interface OffPolicyTwinSettings extends StepSettings {
  readonly gradientSteps: number
  readonly batchSize: number
  readonly replayRows: number
  readonly learningStarts: number
  readonly nStep: number
  readonly priorityExponent: number
  readonly priorityCorrection: number
  readonly targetRate: number
  readonly targetInterval: number
  readonly learningRateSchedule: string
  readonly warmupFraction: number
  readonly gamma: number
  readonly maxGradNorm: number
}

/** A lane's step, and the final observation if the episode was truncated there. */
interface Step {
  readonly observation: readonly number[]
  readonly action: readonly number[]
  readonly reward: number
  readonly terminated: boolean
  readonly final: readonly number[] | null
  priority: number
}

/** A row of a minibatch. */
export interface TwinRow {
  readonly observation: readonly number[]
  readonly action: readonly number[]
  readonly return: number
  readonly discount: number
  readonly next: readonly number[]
  readonly weight: number
}

/** A minibatch, and the weights of its loss. */
export interface TwinBatch {
  readonly rows: readonly TwinRow[]
  readonly weights: readonly number[]
  readonly target: readonly number[]
  /** Gradient steps before this one. */
  readonly step: number
  readonly key0: number
  readonly key1: number
  readonly parameters: readonly Parameter[]
}

/** A loss, by definition. */
export interface TwinLoss {
  /** The mean over rows as a function of the named parameter's weights; all else is constant. */
  readonly lossAt: (weights: readonly number[], parameter: string) => number
  /** Of each row, before the step. */
  readonly errors: readonly number[]
  /** Means over the rows. */
  readonly metrics: Readonly<Record<string, number>>
}

/** The outputs of a tanh perceptron with a linear last layer, for an observation that may be normalized. */
export function layersOf(parameters: readonly Parameter[], name: string) {
  const place = (of: string) => parameters.find((each) => each.name === of)
  const weights = parameters.filter((each) => each.name.startsWith(`${name}.`) && each.name.endsWith('.weight'))
  const layers = weights.map(({ name: of, offset, shape }) => {
    return { offset, bias: place(of.replace(/weight$/, 'bias'))!.offset, ins: shape[0]!, outs: shape[1]! }
  })
  const [center, deviation] = [place('observation.center')?.offset, place('observation.deviation')?.offset]
  return (at: readonly number[], observation: readonly number[], more: readonly number[] = []): number[] => {
    const seen = observation.map((x, k) => {
      if (center === undefined || deviation === undefined) return x
      return Math.max(-10, Math.min(10, (x - at[center + k]!) / at[deviation + k]!))
    })
    let x = [...seen, ...more]
    for (const [l, { offset, bias, ins, outs }] of layers.entries()) {
      const y: number[] = []
      for (let j = 0; j < outs; j++) {
        let sum = at[bias + j]!
        for (let i = 0; i < ins; i++) sum += x[i]! * at[offset + i * outs + j]!
        y.push(l === layers.length - 1 ? sum : Math.tanh(sum))
      }
      x = y
    }
    return x
  }
}

/** The remaining fraction of a schedule at update `u` of `total`. */
function scheduleOf({ learningRateSchedule, warmupFraction: f }: OffPolicyTwinSettings, u: number, total: number) {
  if (u < f * total) return Math.min(1, (u + 1) / (f * total))
  const gone = (u / total - f) / (1 - f)
  if (learningRateSchedule === 'linear') return 1 - gone
  return learningRateSchedule === 'cosine' ? (1 + Math.cos(Math.PI * gone)) / 2 : 1
}

/** A run's collected steps, by update. */
export interface Recording {
  readonly begun: readonly number[]
  readonly parameters: readonly Parameter[]
  readonly numLanes: number
  readonly key0: number
  readonly key1: number
  /** For each update, each lane's steps. */
  readonly updates: readonly (readonly (readonly Omit<Step, 'priority'>[])[])[]
}

/** A part of the parameters with steps and moments of its own, by how their names begin, and the metrics that it tells. */
export interface TwinStage {
  readonly names: readonly string[]
  readonly interval: number
  readonly metrics: readonly string[]
}

/** A recomputed update. */
interface TwinUpdate {
  readonly weights: readonly number[]
  readonly target: readonly number[]
  readonly metrics: Readonly<Record<string, number>>
  /** Rows of the last minibatch by their index in the ring, and their weights. */
  readonly drawn: readonly number[]
  readonly weight: readonly number[]
  readonly norms: readonly number[]
}

/** Changes the weights as the algorithm does after each update. */
type After<S> = (
  weights: number[],
  settings: S,
  progress: number,
  parameters: readonly Parameter[],
  gradientSteps: number,
) => void

/** Recomputes the run's updates. `after` changes the weights as the algorithm does after each update. */
export function* replayed<S extends OffPolicyTwinSettings>(
  { begun, parameters, numLanes, key0, key1, updates }: Recording,
  settings: S,
  lossOf: (batch: TwinBatch, settings: S) => TwinLoss,
  after: After<S> = () => {},
  stagesOf: (settings: S) => readonly TwinStage[] = () => [{ names: [''], interval: 1, metrics: [''] }],
): Generator<TwinUpdate> {
  const stages = stagesOf(settings).map((stage) => ({ ...stage, moments: { first: [], second: [], steps: 0 } }))
  const { batchSize, nStep, gamma, priorityExponent, priorityCorrection } = settings
  const numSteps = updates[0]![0]!.length
  const weights = [...begun]
  let target = [...begun]
  const lanes: Step[][] = Array.from({ length: numLanes }, () => [])
  const numBlocks = Math.max(Math.ceil(settings.replayRows / numLanes), numSteps + nStep)
  const center = parameters.find(({ name }) => name === 'observation.center')?.offset
  const numTrained = center ?? weights.length
  let highest = 1
  let steps = 0
  for (const [u, rollout] of updates.entries()) {
    if (steps === 0) target = [...weights]
    target.splice(numTrained, target.length, ...weights.slice(numTrained))
    for (const [n, taken] of rollout.entries()) {
      for (const each of taken) lanes[n]!.push({ ...each, priority: 0 })
      for (const [t, each] of lanes[n]!.entries()) {
        const isNew = t >= lanes[n]!.length - numSteps - nStep && t < lanes[n]!.length - nStep
        if (isNew) each.priority = highest
      }
    }
    const now = lanes[0]!.length
    /** Rows that may be drawn, in the ring's order. */
    const places: { readonly row: number; readonly n: number; readonly t: number }[] = []
    for (let t = Math.max(0, now - numBlocks); t < now - nStep; t++) {
      for (let n = 0; n < numLanes; n++) places.push({ row: (t % numBlocks) * numLanes + n, n, t })
    }
    places.sort((a, b) => a.row - b.row)
    const learns = places.length > 0 && now * numLanes >= settings.learningStarts
    const rate = settings.learningRate * scheduleOf(settings, u, updates.length)
    const beta = priorityCorrection + (1 - priorityCorrection) * (u / updates.length)
    const norms: number[] = []
    const told: (readonly [string, number])[] = []
    let named: readonly string[] = []
    let drawn: typeof places = []
    let rows: TwinRow[] = []
    for (let g = 0; g < settings.gradientSteps && learns; g++) {
      const total = places.reduce((sum, { n, t }) => sum + lanes[n]![t]!.priority, 0)
      drawn = Array.from({ length: batchSize }, (_, i) => {
        const words = new Uint32Array(4)
        philox4x32(words, Math.floor(i / 4), steps, 0, Stream.replay, key0, key1)
        const until = ((i + unitFromWord(words[i % 4]!)) / batchSize) * total
        let sum = 0
        return places.find(({ n, t }) => {
          sum += lanes[n]![t]!.priority
          return sum > until
        })!
      })
      const raw = drawn.map(({ n, t }) => {
        if (priorityExponent === 0) return 1
        return (places.length * (lanes[n]![t]!.priority / total)) ** -beta
      })
      rows = drawn.map(({ n, t }, i) => {
        const lane = lanes[n]!
        const { observation, action } = lane[t]!
        const row = { observation, action, weight: raw[i]! / Math.max(...raw) }
        let [sum, discount] = [0, 1]
        for (let k = t; k < t + nStep; k++) {
          sum += discount * lane[k]!.reward
          discount *= gamma
          if (lane[k]!.terminated) return { ...row, return: sum, discount: 0, next: observation }
          if (lane[k]!.final !== null) return { ...row, return: sum, discount, next: lane[k]!.final! }
        }
        return { ...row, return: sum, discount, next: lane[t + nStep]!.observation }
      })
      const of = { rows, target: [...target], step: steps, key0, key1, parameters }
      let errors: readonly number[] = []
      for (const { names, interval, metrics: own, moments } of stages) {
        if ((steps + 1) % interval !== 0) continue
        const loss = lossOf({ ...of, weights: [...weights] }, settings)
        if (errors.length === 0) errors = loss.errors
        named = Object.keys(loss.metrics)
        const trained = [...weights.keys()].filter((k) => {
          const { name } = parameters.findLast(({ offset }) => offset <= k)!
          return k < numTrained && names.some((begin) => name.startsWith(begin))
        })
        const gradient = trained.map((k) => {
          const { name } = parameters.findLast(({ offset }) => offset <= k)!
          const along = (move: number) => loss.lossAt(weights.with(k, weights[k]! + move), name)
          return (along(1e-5) - along(-1e-5)) / 2e-5
        })
        const norm = Math.hypot(...gradient)
        norms.push(norm)
        const isOwn = ([name]: readonly [string, number]) => own.some((begin) => name.startsWith(begin))
        told.push(...Object.entries(loss.metrics).filter(isOwn))
        const scale = Math.min(1, settings.maxGradNorm / norm)
        const part = trained.map((k) => weights[k]!)
        const scaled = gradient.map((slope) => scale * slope)
        descend(part, scaled, { ...settings, learningRate: rate }, moments)
        for (const [i, k] of trained.entries()) weights[k] = part[i]!
      }
      if (priorityExponent > 0) {
        for (const [i, { n, t }] of drawn.entries()) {
          lanes[n]![t]!.priority = (errors[i]! + 1e-6) ** priorityExponent
          highest = Math.max(highest, lanes[n]![t]!.priority)
        }
      }
      steps++
      if (steps % settings.targetInterval === 0) {
        target = target.map((each, k) => each + settings.targetRate * (weights[k]! - each))
      }
    }
    after(weights, settings, (u + 1) / updates.length, parameters, steps)
    const mean = (of: readonly number[]) => of.reduce((sum, each) => sum + each, 0) / of.length
    const meanOf = (name: string) => mean(told.filter(([of]) => of === name).map(([, value]) => value))
    const metrics = {
      ...Object.fromEntries(named.map((name) => [name, meanOf(name)])),
      ...{ gradNorm: mean(norms), learningRate: rate, drawableRows: places.length },
    }
    yield {
      ...{ weights: [...weights], target: [...target], metrics, norms },
      ...{ drawn: drawn.map(({ row }) => row), weight: rows.map(({ weight }) => weight) },
    }
    if (center === undefined) continue
    // Observations so far, for the normalization of later ones.
    const seen = lanes.flat().map(({ observation }) => observation)
    const width = seen[0]!.length
    for (let k = 0; k < width; k++) {
      const average = mean(seen.map((each) => each[k]!))
      weights[center + k] = average
      weights[center + width + k] = Math.sqrt(mean(seen.map((each) => (each[k]! - average) ** 2)) + 1e-8)
    }
  }
}

interface Learned {
  readonly target: Float32Array
  readonly drawn: Uint32Array
  readonly weight: Float32Array
}

type Field = { readonly name: string; readonly column: ArrayLike<number>; readonly rows?: Uint32Array }

export const NUM_LANES = 5
const NUM_STEPS = 4
export const NUM_UPDATES = 8

/** A run of the product, with its state after each update. */
export async function recordRun(
  factory: AlgorithmFactory,
  settings: Readonly<Record<string, unknown>>,
  environment: EnvironmentDefinition,
  policy: PolicyDefinition,
) {
  const algorithm = factory({ numSteps: NUM_STEPS, ...settings } as never)
  const world = await createWorld({ environment, policy, numLanes: NUM_LANES, seed: 11 })
  const trainer = createTrainer(world, algorithm)
  const cohort = world.cohort()
  const learned = cohort.learner.algorithm as unknown as Learned
  const begun = Array.from(cohort.weights)
  const updates: Omit<Step, 'priority'>[][][] = []
  const seen: {
    metrics: Readonly<Record<string, number>>
    weights: number[]
    columns: Record<keyof Learned, number[]>
  }[] = []
  for await (const metrics of trainer.updates({ totalSteps: NUM_UPDATES * NUM_LANES * NUM_STEPS })) {
    const { fields } = Object.values(trainer.rollouts)[0]!.table as unknown as { readonly fields: readonly Field[] }
    const field = (name: string) => fields.find((each) => each.name === name)!
    const rowOf = (name: string, row: number, numRows: number) => {
      const { column } = field(name)
      const width = column.length / numRows
      return Array.from({ length: width }, (_, k) => column[row * width + k]!)
    }
    const numRows = NUM_LANES * NUM_STEPS
    const finals = field('finalObservation')
    const lanes: Omit<Step, 'priority'>[][] = Array.from({ length: NUM_LANES }, () => [])
    for (let row = 0; row < numRows; row++) {
      const at = finals.rows!.indexOf(row)
      const terminated = field('terminated').column[row] !== 0
      const isCut = field('truncated').column[row] !== 0 && !terminated
      lanes[row % NUM_LANES]!.push({
        observation: rowOf('observation', row, numRows),
        action: rowOf('action', row, numRows),
        reward: field('reward').column[row]!,
        terminated,
        final: isCut ? rowOf('finalObservation', at, finals.rows!.length) : null,
      })
    }
    updates.push(lanes)
    const { target, drawn, weight } = learned
    const columns = { target: Array.from(target), drawn: Array.from(drawn), weight: Array.from(weight) }
    seen.push({ metrics: metrics as never, weights: Array.from(cohort.weights), columns })
  }
  const { key0, key1 } = cohort.environmentLanes.random
  const { parameters } = cohort.model
  const recording: Recording = { begun, parameters, numLanes: NUM_LANES, key0, key1, updates }
  return { recording, seen, settings: algorithm.parameters, numRows: replayTable(cohort).numRows }
}

/**
 * Compares a run with its twin: weights, the target's, the drawn rows with their weights, and all metrics. Then shows
 * that every setting acts: another value gives the twin other weights. Returns the twin's updates.
 */
export async function holdToReplay<S extends OffPolicyTwinSettings>(
  factory: AlgorithmFactory,
  given: Readonly<Record<string, unknown>>,
  environment: EnvironmentDefinition,
  policy: PolicyDefinition,
  lossOf: (batch: TwinBatch, settings: S) => TwinLoss,
  after?: After<S>,
  others: Readonly<Record<string, unknown>> = {},
  stagesOf?: (settings: S) => readonly TwinStage[],
) {
  const { recording, seen, settings } = await recordRun(factory, given, environment, policy)
  const { parameters } = recording
  const numTrained = parameters.find(({ name }) => name === 'observation.center')?.offset ?? recording.begun.length
  const furthest = (a: readonly number[], b: readonly number[]) => Math.max(...a.map((x, k) => Math.abs(x - b[k]!)))
  const twins = [...replayed(recording, settings as unknown as S, lossOf, after, stagesOf)]
  for (const [u, twin] of twins.entries()) {
    const { metrics, weights, columns } = seen[u]!
    const message = `update ${u}`
    if (twin.norms.length > 0) {
      expect(columns.drawn, message).toEqual(twin.drawn)
      expect(furthest(twin.weight, columns.weight), message).toBeLessThan(10 * TOLERANCE)
    }
    expect(furthest(twin.weights.slice(0, numTrained), weights), message).toBeLessThan(TOLERANCE)
    expect(furthest(twin.target, columns.target), message).toBeLessThan(TOLERANCE)
    for (const [key, value] of Object.entries(twin.metrics)) {
      const got = metrics[key]!
      if (Number.isNaN(value)) expect(got, `${message} ${key}`).toBeNaN()
      else
        expect(Math.abs(got - value), `${message} ${key}: ${got} for ${value}`).toBeLessThan(
          2e-4 * (1 + Math.abs(value)),
        )
    }
    // No metric may lack a twin.
    if (twin.norms.length > 0)
      expect(Object.keys(twin.metrics).toSorted()).toEqual(Object.keys(factory.metrics).toSorted())
  }
  for (const [name, other] of Object.entries(others)) {
    const changed = { ...settings, [name]: other } as unknown as S
    let apart = 0
    let u = 0
    for (const twin of replayed(recording, changed, lossOf, after, stagesOf)) {
      apart = Math.max(apart, furthest(twin.weights.slice(0, numTrained), seen[u++]!.weights))
      if (apart > 10 * TOLERANCE) break
    }
    expect(apart, `${name} ${String(other)} instead of ${String((settings as never)[name])}`).toBeGreaterThan(
      10 * TOLERANCE,
    )
  }
  return twins
}

/** Tolerance between the run's f32 weights and the twin's after all updates. */
const TOLERANCE = 2e-5
