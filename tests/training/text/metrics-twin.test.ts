import { expect, test } from 'vitest'
import { rl } from '../../../src/algorithms/tokens/rl.ts'
import { sft } from '../../../src/algorithms/tokens/sft.ts'
import type { Reply } from '../../../src/environments/text.ts'
import { spansOf } from '../../../src/kernels/bind.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { createTrainer, type Trainer } from '../../../src/training/loop/trainer.ts'
import type { TextMetrics } from '../../../src/training/text/evaluate/metrics.ts'
import type { ConversationCohort } from '../../../src/world/conversations/cohort.ts'
import { createWorld } from '../../../src/world/world.ts'
import { packed } from '../../language/transformer/golden.ts'
import { digits } from '../../support/conversations.ts'

const GROUPS = 4
const SIZE = 3

type Algorithm = ReturnType<typeof rl>

/**
 * A trainer whose weights are pushed once all conversations of an update are over: what is recorded is then of other weights
 * than those that learn, as with an engine that lags behind, and every estimator of how far they are apart has a number of
 * its own.
 */
async function pushedTrainer(settings: Parameters<typeof rl>[0], model: object = {}): Promise<Pushed> {
  const algorithm = rl({ groupsPerUpdate: GROUPS, groupSize: SIZE, optimizer: 'sgd', ...settings })
  const { temperature } = algorithm.settings
  let replies = 0
  const pushed = { pushes: 0 }
  const environment = digits({
    respond: ({ completion, exampleIndex }): Reply => {
      replies++
      if (replies % (GROUPS * SIZE) === 0) {
        const { weights } = trainer.world.cohort()
        for (let k = 0; k < weights.length; k++) weights[k] = weights[k]! + 0.04 * Math.sin(7 * k + pushed.pushes)
        pushed.pushes++
        before = weights.slice()
      }
      if (exampleIndex === 1 && completion.length % 2 === 1) return { reward: null, error: 'odd' }
      if (exampleIndex === 2) return { reward: 0.25, components: { length: completion.length } }
      const sum = [...completion].reduce((total, digit) => total + Number(digit), 0)
      return { reward: sum / 7, components: { length: completion.length, sum: sum > 9 ? null : sum } }
    },
  })
  let before = new Float32Array(0)
  const world = await createWorld({
    environment,
    policy: languageModel({ width: 8, layers: 1, heads: 2, ...model }),
    numLanes: GROUPS * SIZE,
    seed: 5,
    groupSize: SIZE,
    sampling: { temperature },
    kernels: 'plain',
  })
  const trainer = createTrainer(world, algorithm)
  return { trainer, algorithm, before: () => before }
}

interface Pushed {
  readonly trainer: Trainer<ConversationCohort>
  readonly algorithm: Algorithm
  /** The weights that the update at hand began with. */
  before(): Float32Array
}

const mean = (of: readonly number[]) => of.reduce((sum, each) => sum + each, 0) / of.length

/** What an update is by its definition: its metrics and the weights after it. */
function twinOf({ trainer, algorithm, before }: Pushed, reference: Float32Array, update: number) {
  const { settings, loss } = algorithm
  const cohort = trainer.world.cohort()
  const columns = cohort.trajectories.take(cohort.trajectories.order()).columns()
  const { offsets, token, lossMask, logprob: recorded, reward, known, group } = columns
  const count = offsets.length - 1
  const { klCoef, entropyCoef, clipLow, clipHigh, correction, correctionLow, correctionHigh } = loss.settings
  const work = packed(cohort.model, before(), 'plain', token.length, 64)
  const evaluate = (weights: ArrayLike<number>) => {
    work.weights.set(weights)
    const evaluated = work.network.evaluate(work.network.pack(token, spansOf(offsets), 0, count), settings.temperature)
    const told = {
      logprob: new Array(token.length).fill(0),
      entropy: new Array(token.length).fill(0),
      value: new Array(token.length).fill(0),
    }
    let row = 0
    for (let i = 0; i < count; i++) {
      for (let t = offsets[i]! + 1; t < offsets[i + 1]!; t++, row++) {
        told.logprob[t] = evaluated.logprob[row]
        told.entropy[t] = evaluated.entropy[row]
        told.value[t] = evaluated.value[row]
      }
    }
    return told as { logprob: number[]; entropy: number[]; value: number[] }
  }

  // Who learns, and what of: rewards beside those of their group.
  const members = new Map<number, number[]>()
  for (let i = 0; i < count; i++) members.set(group[i]!, [...(members.get(group[i]!) ?? []), i])
  const knownOf = (of: readonly number[]) => of.filter((i) => known[i] === 1)
  const advantage = new Array<number>(count).fill(0)
  const learns = new Array<boolean>(count).fill(false)
  for (const all of members.values()) {
    const some = knownOf(all)
    if (some.length < 2) continue
    const rewards = some.map((i) => reward[i]!)
    const deviation = Math.sqrt(rewards.reduce((sum, each) => sum + (each - mean(rewards)) ** 2, 0) / (some.length - 1))
    for (const i of some) {
      learns[i] = true
      advantage[i] = deviation === 0 ? 0 : (reward[i]! - mean(rewards)) / deviation
    }
  }
  const tokensOf = (i: number) =>
    Array.from({ length: offsets[i + 1]! - offsets[i]! }, (_, k) => offsets[i]! + k).filter((t) => lossMask[t] === 1)
  const learned = Array.from({ length: count }, (_, i) => i).filter((i) => learns[i])
  const all = learned.flatMap(tokensOf)

  const now = evaluate(before())
  const isCorrected = correction !== 'none'
  const old = isCorrected ? now.logprob : Array.from(recorded)
  const other = evaluate(reference)
  const weight = (t: number) =>
    isCorrected ? Math.min(correctionHigh!, Math.max(correctionLow, Math.exp(old[t]! - recorded[t]!))) : 1

  // Epoch by epoch, down the gradient of the loss by each token's logprob and entropy.
  const weights = Array.from(before())
  const epochs = []
  const rate = settings.learningRate! * (1 - update / settings.updates)
  for (let epoch = 0; epoch < settings.updateEpochs; epoch++) {
    const { logprob, entropy } = evaluate(weights)
    const dLogprob = new Array<number>(token.length).fill(0)
    const dEntropy = new Array<number>(token.length).fill(0)
    let total = 0
    let [low, high] = [0, 0]
    for (const i of learned) {
      const own = tokensOf(i)
      const share = 1 / (learned.length * own.length)
      for (const t of own) {
        const ratio = Math.exp(logprob[t]! - old[t]!)
        const A = advantage[i]!
        const free = ratio * A
        const bound = A > 0 ? (1 + clipHigh!) * A : (1 - clipLow!) * A
        const isFlat = bound < free
        if (isFlat && A > 0) high++
        if (isFlat && A < 0) low++
        const away = logprob[t]! - other.logprob[t]!
        const k3 = Math.exp(-away) - 1 + away
        total += share * (-weight(t) * Math.min(free, bound) + klCoef * k3 - entropyCoef * entropy[t]!)
        dLogprob[t] = share * ((isFlat ? 0 : -weight(t) * free) + klCoef * (1 - Math.exp(-away)))
        dEntropy[t] = -share * entropyCoef
      }
    }
    work.gradient.fill(0)
    work.network.differentiate(
      work.network.pack(token, spansOf(offsets), 0, count),
      (_, derivatives) => {
        let row = 0
        for (let i = 0; i < count; i++) {
          for (let t = offsets[i]! + 1; t < offsets[i + 1]!; t++, row++) {
            derivatives.dLogprob[row] = dLogprob[t]!
            derivatives.dEntropy[row] = dEntropy[t]!
          }
        }
      },
      work.network.view(work.gradient),
      settings.temperature,
    )
    const norm = Math.hypot(...work.gradient)
    const scale = Math.min(1, settings.maxGradNorm / norm)
    for (let k = 0; k < weights.length; k++) weights[k] = weights[k]! - rate * scale * work.gradient[k]!
    epochs.push({ loss: total, gradNorm: norm, low: low / all.length, high: high / all.length, logprob, entropy })
  }
  const [first, last] = [epochs[0]!, epochs.at(-1)!]
  const apart = all.map((t) => first.logprob[t]! - old[t]!)
  const away = all.map((t) => first.logprob[t]! - other.logprob[t]!)
  const lag = all.map((t) => old[t]! - recorded[t]!)
  const rewards = knownOf([...reward.keys()]).map((i) => reward[i]!)
  const groups = [...members.values()].map(knownOf).filter((some) => some.length > 0)
  const component = (name: string) => mean(columns.components.get(name)!.filter((each) => each !== null))
  const sampled = lossMask.reduce((sum, each) => sum + each, 0)
  const figures = {
    reward: mean(rewards),
    rewardStd: Math.sqrt(mean(rewards.map((each) => (each - mean(rewards)) ** 2))),
    components: { length: component('length'), sum: component('sum') },
    numUnknown: count - rewards.length,
    firstError: columns.error.find((each) => each !== null) ?? null,
    fracRewardZeroStd: groups.filter((some) => new Set(some.map((i) => reward[i])).size === 1).length / groups.length,
    completionLength: sampled / count,
    clippedRatio: columns.stopReason.filter((each) => each === 'length' || each === 'context').length / count,
    // Of one turn each: nobody had more to say, and nothing was rendered again.
    cutTurns: columns.stopReason.filter((each) => each === 'length' || each === 'context').length,
    droppedReplies: 0,
    rewrites: 0,
    entropy: mean(all.map((t) => first.entropy[t]!)),
    kl: {
      k1: mean(apart.map((d) => -d)),
      k2: mean(apart.map((d) => d ** 2 / 2)),
      k3: mean(apart.map((d) => Math.exp(d) - 1 - d)),
    },
    referenceKl: {
      k1: mean(away),
      k2: mean(away.map((d) => d ** 2 / 2)),
      k3: mean(away.map((d) => Math.exp(-d) - 1 + d)),
    },
    ratio: mean(apart.map(Math.exp)),
    valueLoss: null,
    mismatchKl: isCorrected ? mean(lag.map((d) => Math.exp(d) - d - 1)) : null,
    importanceRatio: isCorrected
      ? { mean: mean(lag.map(Math.exp)), min: Math.exp(Math.min(...lag)), max: Math.exp(Math.max(...lag)) }
      : null,
    // Of one weights’ version, each group of the update that waits for it.
    staleness: { mean: 0, max: 0, counts: [all.length] },
    queueDepth: 0,
    importanceWeight: isCorrected
      ? { mean: mean(all.map(weight)), min: Math.min(...all.map(weight)), max: Math.max(...all.map(weight)) }
      : null,
    clipRatio: { low: first.low, high: first.high },
    groupRewards: groups.map((some) => mean(some.map((i) => reward[i]!))),
    trajectories: count,
    drops: {},
    sampledTokens: sampled,
    trainedTokens: settings.updateEpochs * token.length,
    untrainedTokens: 0,
    numRecomputed: 0,
  }
  const top = {
    phase: 'rl',
    step: update + 1,
    loss: first.loss,
    learningRate: rate,
    gradNorm: first.gradNorm,
    tokens: all.length,
  }
  return { top, figures, weights, first, last }
}

/** Numbers within a thousandth, in objects and lists too; everything else the same. */
function expectNear(got: unknown, wanted: unknown, name: string): void {
  if (typeof wanted === 'number' && typeof got === 'number') {
    expect(Math.abs(got - wanted), `${name}: ${got} for ${wanted}`).toBeLessThan(1e-6 + 1e-3 * Math.abs(wanted))
  } else if (typeof wanted === 'object' && wanted !== null && typeof got === 'object' && got !== null) {
    expect(Object.keys(got), name).toEqual(Object.keys(wanted))
    for (const key of Object.keys(wanted)) expectNear(got[key as never], wanted[key as never], `${name}.${key}`)
  } else expect(got, name).toEqual(wanted)
}

/** Figures of a clock. */
const TIMED = ['seconds', 'rolloutSeconds', 'updateSeconds', 'phaseSeconds', 'rolloutAgeSeconds', 'lanesIdleSeconds']

function checkFigures({ rl: figures, ...top }: TextMetrics, wanted: ReturnType<typeof twinOf>): void {
  for (const [key, value] of Object.entries(wanted.top)) expectNear(top[key as never], value, key)
  for (const [key, value] of Object.entries(wanted.figures)) expectNear(figures![key as never], value, key)
  // Nobody adds a metric without a twin.
  const told = Object.keys({ ...top, ...figures }).filter((key) => !TIMED.includes(key))
  expect(told.toSorted()).toEqual(Object.keys({ ...wanted.top, ...wanted.figures }).toSorted())
}

const clips = { clipLow: 0.03, clipHigh: 0.11, klCoef: 0.2, entropyCoef: 0.05 }
const steps = { updates: 3, updateEpochs: 2, learningRateSchedule: 'linear', temperature: 1.3 } as const

test.each<[string, Parameters<typeof rl>[0]]>([
  ['as recorded', { ...steps, learningRate: 0.4, maxGradNorm: 100, lossSettings: clips }],
  ['as recorded, with gradients brought down', { ...steps, learningRate: 3, maxGradNorm: 0.05, lossSettings: clips }],
  [
    'with a correction',
    {
      ...steps,
      learningRate: 0.4,
      maxGradNorm: 100,
      lossSettings: { ...clips, correction: 'token-truncate', correctionLow: 0.93, correctionHigh: 1.2 },
    },
  ],
])('an update off its policy is what its definition says %s: weights and every metric', async (_, settings) => {
  const pushed = await pushedTrainer(settings)
  const reference = pushed.trainer.world.cohort().weights.slice()
  const seen: ReturnType<typeof twinOf>[] = []
  for await (const metrics of pushed.trainer.updates()) {
    const wanted = twinOf(pushed, reference, seen.length)
    checkFigures(metrics, wanted)
    const { weights } = pushed.trainer.world.cohort()
    wanted.weights.forEach((weight, k) => {
      if (Math.abs(weights[k]! - weight) > 1e-4) expect(weights[k], `weight ${k}`).toBeCloseTo(weight, 4)
    })
    seen.push(wanted)
  }
  expect(seen).toHaveLength(3)
  // The case is one that tells: no two of the figures that could be taken for each other are equal.
  const tells = seen.filter(({ figures: { kl, clipRatio, mismatchKl, referenceKl }, first, last }) => {
    const isApart = (a: number, b: number) => Math.abs(a - b) > 0.01 * Math.max(Math.abs(a), Math.abs(b))
    if (!isApart(referenceKl.k1, referenceKl.k3) || !isApart(first.loss, last.loss)) return false
    if (mismatchKl !== null) return mismatchKl > 1e-4
    return isApart(kl.k1, kl.k3) && isApart(clipRatio.low, clipRatio.high) && clipRatio.low * clipRatio.high > 0
  })
  expect(tells.length).toBeGreaterThan(0)
})

test('a critic tells its part of the loss, off its policy, and how far the policy is from the one that spoke', async () => {
  const lossSettings = { gamma: 0.9, gaeLambda: 0.7, valueCoef: 0.3, clipValue: 0.2 }
  const settings = { loss: 'ppo', updates: 1, temperature: 1.3, learningRate: 0.1, lossSettings } as const
  const pushed = await pushedTrainer(settings, { critic: true })
  const cohort = pushed.trainer.world.cohort()
  const [{ value: told }] = [await pushed.trainer.updates().next()]
  const {
    offsets,
    token,
    lossMask,
    logprob: recorded,
    reward,
    known,
  } = cohort.trajectories.take(cohort.trajectories.order()).columns()
  const work = packed(cohort.model, pushed.before(), 'plain', token.length, 64)
  const { value, logprob } = work.network.evaluate(
    work.network.pack(token, spansOf(offsets), 0, offsets.length - 1),
    1.3,
  )
  const [squares, lag]: [number[], number[]] = [[], []]
  for (let i = 0; i + 1 < offsets.length; i++) {
    if (known[i] === 0) continue
    let [later, laterValue, isLast] = [0, 0, true]
    for (let t = offsets[i + 1]! - 1; t > offsets[i]!; t--) {
      if (lossMask[t] === 0) continue
      const row = t - 1 - i // Each sequence before has one row less than tokens, and so has this one.
      later = (isLast ? reward[i]! : 0) + 0.9 * laterValue - value[row]! + 0.9 * 0.7 * later
      squares.push(later ** 2) // The return is the advantage and the value.
      const apart = logprob[row]! - recorded[t]!
      lag.push(Math.exp(apart) - apart - 1)
      ;[laterValue, isLast] = [value[row]!, false]
    }
  }
  expectNear(told!.rl!.valueLoss, (0.3 * mean(squares)) / 2, 'valueLoss')
  expectNear(told!.rl!.mismatchKl, mean(lag), 'mismatchKl')
  // Advantages of mean 0 at a ratio of 1 make no loss of their own.
  expect(told!.loss).toBeCloseTo(told!.rl!.valueLoss!, 5)
  expect([told!.rl!.ratio, told!.rl!.referenceKl, told!.rl!.importanceWeight]).toEqual([1, null, null])
})

test('a supervised step tells its loss and its norm, and moves by the rate of the schedule', async () => {
  const environment = digits({})
  const policy = languageModel({ width: 8, layers: 1, heads: 2 })
  const world = await createWorld({ environment, policy, numLanes: 2, seed: 5, kernels: 'plain' })
  const settings = {
    updates: 5,
    batchSize: 3,
    learningRate: 0.5,
    optimizer: 'sgd',
    learningRateSchedule: 'cosine',
  } as const
  const trainer = createTrainer(world, sft({ ...settings, warmupFraction: 0.4, maxGradNorm: 0.7 }))
  const rates = [0.25, 0.5, 0.5, 0.375, 0.125]
  const { weights } = trainer.world.cohort()
  let before = weights.slice()
  const norms: number[] = []
  for await (const {
    phase,
    step,
    loss,
    learningRate,
    gradNorm,
    tokens,
    seconds,
    phaseSeconds,
    rl: figures,
    ...others
  } of trainer.updates({ phase: 'sft' })) {
    expect([phase, step, figures, others]).toEqual(['sft', norms.length + 1, null, {}])
    expect(learningRate).toBeCloseTo(rates[step - 1]!, 6)
    const moved = Math.hypot(...weights.map((weight, k) => weight - before[k]!))
    expect(moved).toBeCloseTo(learningRate * Math.min(gradNorm, 0.7), 4)
    // Each answer is a digit, or two, and the token that ends it; a model of few weights knows nothing at first.
    expect([6, 7]).toContain(tokens)
    if (step === 1) expect(Math.abs(loss - Math.log(12))).toBeLessThan(1.5)
    expect(seconds).toBeGreaterThan(0)
    expect(phaseSeconds.backward).toBeGreaterThan(0)
    norms.push(gradNorm)
    before = weights.slice()
  }
  expect(Math.max(...norms)).toBeGreaterThan(0.7)
  expect(norms).toHaveLength(5)
})
