/** Fitted Q evaluation: learns the values of a policy's actions from recorded rows, by regression on their own bootstrapped targets. */
import { Random, Stream } from '../../base/random.ts'
import { takeArena } from '../../components/arena.ts'
import { column } from '../../components/column.ts'
import { createKernels } from '../../kernels/bind.ts'
import { ParameterList } from '../../policies/stack/parameters.ts'
import { initializeStacks, Stack, stackPlan, stackShape, workPlan } from '../../policies/stack/stack.ts'

/** Recorded rows, and the policy's actions in their states. States are those of all rows, then those after truncated rows. */
export interface FittedRows {
  /** Numbers per state, mean 0 and deviation 1. */
  readonly observation: Float32Array
  readonly observationWidth: number
  /** Recorded actions of rows, as numbers. */
  readonly action: Float32Array
  readonly actionWidth: number
  /** `draws` actions of the policy per state. */
  readonly own: Float32Array
  readonly draws: number
  readonly reward: ArrayLike<number>
  /** State after a row; −1 after a terminal one. */
  readonly next: Int32Array
  /** Episode of a row, from 0, and each episode's first row. */
  readonly episode: Uint32Array
  readonly begins: readonly number[]
}

/** How to fit. */
export interface FitOptions {
  readonly gamma: number
  /** Gradient steps. */
  readonly steps: number
  readonly seed: number
}

/** A value and its 95 % bootstrap interval. */
export interface Fitted {
  readonly mean: number
  readonly low: number
  readonly high: number
}

/** Heads of the interval: each learns of episodes drawn with replacement. */
const BOOTSTRAPS = 40
const HIDDEN = [64, 64]
const BATCH = 128
const LEARNING_RATE = 1e-3
/** Fraction of the weights that the target takes over at a step. */
const TARGET_RATE = 0.05
const ADAM = { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0 }

/**
 * Fits values of state and action (Le, Voloshin, Yue 2019, "Batch Policy Learning under Constraints") and returns the policy's mean value of
 * the episodes' first states. One network has a head for all episodes and, for the interval, a head for each bootstrap sample of episodes
 * (Hao et al. 2021, "Bootstrapping Fitted Q-Evaluation"); heads share hidden layers.
 */
export function fitValues(rows: FittedRows, { gamma, steps, seed }: FitOptions): Fitted {
  const { observationWidth, actionWidth, reward, next, episode, begins, draws } = rows
  const numHeads = 1 + BOOTSTRAPS
  const width = observationWidth + actionWidth
  const parameters = new ParameterList()
  const shape = stackShape(
    parameters,
    'values',
    { numInputs: width, numOutputs: numHeads },
    { hidden: HIDDEN, activation: 'tanh' },
  )
  const weightsPlan = () => column('f32', parameters.size)
  const { arena, columns } = takeArena({
    ...{ weights: weightsPlan(), target: weightsPlan(), gradient: weightsPlan() },
    ...{ moment: weightsPlan(), squareMoment: weightsPlan() },
    ...{ own: stackPlan(shape, BATCH), of: stackPlan(shape, BATCH), work: workPlan([shape], BATCH) },
    ...{ x: column('f32', BATCH, width), dy: column('f32', BATCH, numHeads), goal: column('f32', BATCH, numHeads) },
  })
  const kernels = createKernels(arena.memory, 'best')
  const random = new Random(seed)
  const { weights, target, gradient, moment, squareMoment, work, x, dy, goal } = columns
  initializeStacks([shape], parameters.view(weights), random, 0)
  target.set(weights)
  const values = new Stack(shape, parameters.view(weights), columns.own, work, kernels)
  const targets = new Stack(shape, parameters.view(target), columns.of, work, kernels)
  const views = parameters.view(gradient)

  const counts = countsOf(begins.length, random)
  const scale = sizeOf(rows, gamma)
  const fill = (row: number, state: number, actions: Float32Array, at: number) => {
    for (let k = 0; k < observationWidth; k++) x[row * width + k] = rows.observation[state * observationWidth + k]!
    for (let k = 0; k < actionWidth; k++) x[row * width + observationWidth + k] = actions[at * actionWidth + k]!
  }
  const drawn = new Uint32Array(BATCH)
  const powers = [1, 1]
  for (let step = 0; step < steps; step++) {
    for (let i = 0; i < BATCH; i++) {
      random.draw(Stream.replay, step, 1, i)
      const row = Math.floor(random.uniform(0) * next.length)
      drawn[i] = row
      const state = Math.max(0, next[row]!)
      fill(i, state, rows.own, state * draws + Math.floor(random.uniform(1) * draws))
    }
    const bootstrapped = targets.forward(x, 0, BATCH)
    for (let i = 0; i < BATCH; i++) {
      const row = drawn[i]!
      const discount = next[row]! < 0 ? 0 : gamma
      for (let h = 0; h < numHeads; h++) {
        goal[i * numHeads + h] = reward[row]! / scale + discount * bootstrapped[i * numHeads + h]!
      }
      fill(i, row, rows.action, row)
    }
    const said = values.forward(x, 0, BATCH)
    for (let i = 0; i < BATCH; i++) {
      const own = counts[episode[drawn[i]!]!]!
      for (let h = 0; h < numHeads; h++) {
        dy[i * numHeads + h] = (own[h]! * (said[i * numHeads + h]! - goal[i * numHeads + h]!)) / BATCH
      }
    }
    gradient.fill(0)
    values.backward(dy, x, 0, BATCH, views)
    for (const [i, beta] of [ADAM.beta1, ADAM.beta2].entries()) powers[i] = powers[i]! * beta
    const rate = LEARNING_RATE * Math.min(1, 2 * (1 - step / steps)) // The second half settles.
    kernels.adamStep(
      ...([weights, moment, squareMoment, gradient, 1, rate, ADAM] as const),
      ...([1 - powers[0]!, 1 - powers[1]!, parameters.size] as const),
    )
    for (let i = 0; i < target.length; i++) target[i] = target[i]! + TARGET_RATE * (weights[i]! - target[i]!)
  }

  const sums = new Float64Array(numHeads)
  const totals = new Float64Array(numHeads)
  for (const [e, row] of begins.entries()) {
    for (let d = 0; d < draws; d++) {
      fill(0, row, rows.own, row * draws + d)
      const said = values.forward(x, 0, 1)
      for (let h = 0; h < numHeads; h++) {
        const count = counts[e]![h]!
        sums[h] = sums[h]! + count * said[h]!
        totals[h] = totals[h]! + count
      }
    }
  }
  const [mean, ...others] = Array.from(sums, (sum, h) => (scale * sum) / totals[h]!)
  others.sort((a, b) => a - b)
  const [low, high] = [others[Math.floor(0.025 * BOOTSTRAPS)]!, others[Math.ceil(0.975 * BOOTSTRAPS) - 1]!]
  return { mean: mean!, low, high }
}

/** How often each episode is in each head's sample: once for the first head, then by drawing with replacement. */
function countsOf(numEpisodes: number, random: Random): Float32Array[] {
  const counts = Array.from({ length: numEpisodes }, () => new Float32Array(1 + BOOTSTRAPS))
  for (const own of counts) own[0] = 1
  for (let h = 1; h <= BOOTSTRAPS; h++) {
    for (let i = 0; i < numEpisodes; i++) {
      random.draw(Stream.shuffle, h, 0, i)
      const own = counts[Math.floor(random.uniform(0) * numEpisodes)]!
      own[h] = own[h]! + 1
    }
  }
  return counts
}

/** The greatest size of a recorded discounted return from a row on: values are learned as multiples of it. */
function sizeOf({ reward, next, begins }: FittedRows, gamma: number): number {
  let [greatest, sum] = [0, 0]
  const first = new Set(begins)
  for (let row = next.length - 1; row >= 0; row--) {
    if (first.has(row + 1)) sum = 0
    sum = reward[row]! + gamma * sum
    greatest = Math.max(greatest, Math.abs(sum))
  }
  return greatest === 0 ? 1 : greatest
}
