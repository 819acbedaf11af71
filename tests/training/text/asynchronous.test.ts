/** Trainings in which conversations go on while weights change. */
import { describe, expect, test, vi } from 'vitest'
import { Random, Stream } from '../../../src/base/random.ts'
import { defineEngine } from '../../../src/engines/define-engine.ts'
import type { EngineDefinition, TurnRequest } from '../../../src/engines/engine.ts'
import { type ScriptStep, scriptedEngine } from '../../../src/engines/scripted.ts'
import { RolloutStarvedError } from '../../../src/fleet/admission.ts'
import { simulate } from '../../../src/fleet/simulation.ts'
import { VirtualTime } from '../../../src/fleet/time.ts'
import { createTrainer, languageModel, rl } from '../../../src/index.ts'
import { spansOf } from '../../../src/kernels/bind.ts'
import type { BackendDefinition } from '../../../src/training/backends/backend.ts'
import { type ConversationTraining, reserveConversations } from '../../../src/training/loop/conversations.ts'
import { spreadOfAges } from '../../../src/training/text/collect/logged-groups.ts'
import type { TextMetrics } from '../../../src/training/text/evaluate/metrics.ts'
import { textReservation } from '../../../src/training/text/learn/plan.ts'
import type { ConversationCohort, ConversationCohortOptions } from '../../../src/world/conversations/cohort.ts'
import { packed } from '../../language/transformer/golden.ts'
import { digits, talkWorld } from '../../support/conversations.ts'
import * as fc from '../../support/properties.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { unigrams } from '../../support/unigrams.ts'

const SIZE = 2
const environment = digits({
  maxTokens: 9,
  respond: ({ completion }) => ({ reward: [...completion].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % 7 }),
})
type Settings = Parameters<typeof rl>[0]
const settingsOf = (more: Settings): Settings => ({
  ...{ groupsPerUpdate: 2, groupSize: SIZE, updates: 4, lossSettings: { klCoef: 0 } },
  ...more,
})
const world = (options: Partial<ConversationCohortOptions> = {}) =>
  talkWorld({ environment, groupSize: SIZE, numLanes: 6, ...options })

/** A number from 0 to `below` − 1 that these numbers decide. */
function hashed(below: number, ...numbers: readonly number[]): number {
  const hash = numbers.reduce((sum, number) => Math.imul(sum ^ number, 0x9e3779b1) >>> 0, 7)
  return (hash >>> 5) % below
}

/** Tokens of a turn, by its conversation. */
const lengthOf = (seed: number, [group, member]: TurnRequest['key']) => 1 + hashed(8, seed, group, member)

const later = (ms = 0) => new Promise<void>((resolve) => (ms === 0 ? setImmediate(resolve) : setTimeout(resolve, ms)))

/** An engine that generates by itself, a token after each `pause`; turns have lengths of their own. */
function streaming(pause: () => Promise<void> = later, seed = 1): EngineDefinition {
  return defineEngine('streaming', ({ tokenizer }) => ({
    logprobs: 'candidates',
    async begin(turn) {
      const total = lengthOf(seed, turn.request.key)
      for (let i = turn.request.generated; i < total && turn.isOpen; i++) {
        await pause()
        turn.add(i + 1 < total ? hashed(6, i, ...turn.request.key) : tokenizer.endIds[0]!, -Math.log(6))
      }
    },
  }))
}

/** A backend whose futures take `pause` to come. */
function slow(pause: () => Promise<void>): BackendDefinition {
  const inner = unigrams(new Array(32).fill(0).map((_, i) => (i % 5) / 5))
  return {
    ...inner,
    create(context) {
      const backend = inner.create(context)
      const { backward } = backend
      const paused: typeof backward = (...given) => pause().then(() => backward.apply(backend, given)) as never
      return Object.assign(backend, { backward: paused })
    },
  }
}

async function trainingOf(
  settings: Settings,
  options: Partial<ConversationCohortOptions>,
  backend?: BackendDefinition,
) {
  const made = await world(options)
  const phases = { rl: rl(settingsOf(settings)) }
  const training = reserveConversations(made, made.names[0]!, phases, { profile: false, backend })()
  return { training, cohort: made.cohort() }
}

interface Learned {
  readonly group: number
  readonly member: number
  readonly versions: number[]
  readonly token: number[]
}

/** Goes on until all updates are made: what each told, and the rows that it learned from. */
async function run(training: ConversationTraining) {
  const metrics: TextMetrics[] = []
  const batches: Learned[][] = []
  while (!training.isDone({})) {
    metrics.push((await training.advance({}))!)
    const { trajectories } = training.cohort
    const rows = Array.from({ length: trajectories.count }, (_, i) => trajectories.row(i))
    const isLearned = trajectories.columns().advantage
    batches.push(
      rows
        .filter((_, i) => !Number.isNaN(isLearned[i]))
        .map(({ group, member, version, lossMask, token }) => ({
          ...{ group, member, token: Array.from(token) },
          versions: Array.from(version).filter((_, t) => lossMask[t] === 1),
        })),
    )
  }
  training.close()
  return { metrics, batches }
}

/** What was learned from is whole groups, each once, and in the order in which they began. */
function expectWhole(batches: readonly (readonly Learned[])[], isInOrder = true): void {
  const seen: number[] = []
  for (const batch of batches) {
    const groups = [...new Set(batch.map(({ group }) => group))].sort((a, b) => a - b)
    expect(groups).toHaveLength(2)
    for (const group of groups) {
      const members = batch.filter((row) => row.group === group).map(({ member }) => member)
      expect(members.sort()).toEqual(Array.from({ length: SIZE }, (_, i) => i))
    }
    seen.push(...groups)
  }
  expect(new Set(seen).size).toBe(seen.length)
  if (isInOrder) expect(seen).toEqual(seen.map((_, i) => i))
}

describe('with maxStaleness', () => {
  test('conversations go on while the learner works, and no group is staler than permitted', async () => {
    const underWay: number[] = []
    const beat = async () => {
      const before = training.steps
      for (let i = 0; i < 12; i++) await later()
      underWay.push(training.steps - before)
    }
    const { training, cohort } = await trainingOf({ maxStaleness: 2, updates: 6 }, { engine: streaming() }, slow(beat))
    const { metrics, batches } = await run(training)
    expectWhole(batches)
    expect(underWay.slice(0, 3).every((ticks) => ticks > 3)).toBe(true)
    expect(cohort.conversation.phase.every((phase) => phase === 0)).toBe(true) // Nothing begins for updates that do not come.
    const ages = batches.map((batch, update) => batch.flatMap(({ versions }) => versions.map((each) => update - each)))
    for (const [i, all] of ages.entries()) {
      const told = metrics[i]!.rl!.staleness!
      expect(Math.min(...all)).toBeGreaterThanOrEqual(0)
      expect(told.max).toBe(Math.max(...all))
      expect(told.mean).toBeCloseTo(all.reduce((sum, age) => sum + age, 0) / all.length, 12)
      expect(told.counts).toEqual(Array.from({ length: told.max + 1 }, (_, age) => all.filter((a) => a === age).length))
    }
    expect(Math.max(...ages.flat())).toBe(2)
    expect(metrics.some(({ rl: told }) => told!.queueDepth > 0)).toBe(true)
  })

  test('0 nobody samples while the learner works', async () => {
    const moved: number[] = []
    const beat = async () => {
      const before = training.steps
      for (let i = 0; i < 12; i++) await later()
      moved.push(training.steps - before)
    }
    const { training } = await trainingOf({}, { engine: streaming() }, slow(beat))
    const { batches } = await run(training)
    expectWhole(batches)
    expect(Math.max(...moved)).toBeLessThanOrEqual(1)
    for (const [update, batch] of batches.entries())
      for (const { versions } of batch) expect(new Set(versions)).toEqual(new Set([update]))
  })

  test('the weights that a token is said to be of are those that chose it, in turns that see several', async () => {
    for (const weightSwap of ['in-place', 'interrupt'] as const) {
      const { training, cohort } = await trainingOf(
        { maxStaleness: 2, weightSwap, updates: 5, learningRate: 0.05, optimizer: 'sgd' },
        { numLanes: 3 },
      )
      const weights = new Map([[0, cohort.weights.slice()]])
      const rows: { token: Int32Array; logprob: Float32Array; version: Int32Array; lossMask: Uint8Array }[] = []
      while (!training.isDone({})) {
        await training.advance({})
        weights.set(cohort.version, cohort.weights.slice())
        const { trajectories } = cohort
        const { advantage } = trajectories.columns()
        for (let i = 0; i < trajectories.count; i++) {
          if (Number.isNaN(advantage[i])) continue
          const { token, logprob, version, lossMask } = trajectories.row(i) // Views, which others will write.
          rows.push({
            ...{ token: Int32Array.from(token), logprob: Float32Array.from(logprob) },
            ...{ version: Int32Array.from(version), lossMask: Uint8Array.from(lossMask) },
          })
        }
      }
      const mixed = rows.filter(({ version }) => new Set(version.filter((each) => each >= 0)).size > 1)
      expect(mixed.length).toBeGreaterThan(0)
      const work = packed(cohort.model, weights.get(0)!, 'plain', 64, 64)
      for (const { token, logprob, version, lossMask } of mixed) {
        for (const each of new Set(version.filter((one) => one >= 0))) {
          work.weights.set(weights.get(each)!)
          const spans = spansOf(Int32Array.of(0, token.length))
          const said = work.network.evaluate(work.network.pack(token, spans, 0, 1), 1).logprob
          for (let t = 1; t < token.length; t++) {
            if (lossMask[t] === 1 && version[t] === each) expect(said[t - 1]).toBeCloseTo(logprob[t]!, 4)
          }
        }
      }
    }
  })

  test('turns that are interrupted go on as those that take the weights in place', async () => {
    const by = async (weightSwap: 'in-place' | 'interrupt') => {
      const { training, cohort } = await trainingOf({ maxStaleness: 2, weightSwap }, { numLanes: 3 })
      const abort = vi.spyOn(cohort.engine, 'abort')
      const { batches } = await run(training)
      return { aborts: abort.mock.calls.length, batches, weights: cohort.weights.slice() }
    }
    const [{ aborts, ...inPlace }, interrupted] = [await by('in-place'), await by('interrupt')]
    expect(aborts).toBe(0)
    expect(interrupted.aborts).toBeGreaterThan(0)
    expect({ batches: interrupted.batches, weights: interrupted.weights }).toEqual(inPlace)
  })

  test('more groups than are wanted become too old, are dropped and counted, and their lanes are free', async () => {
    const settings = { maxStaleness: 1, overSampling: 2, order: 'arrival', updates: 6 } as const
    const { training, cohort } = await trainingOf(settings, { engine: streaming() }, slow(later))
    const notices: string[] = []
    cohort.onNotice = (message) => notices.push(message)
    const { metrics, batches } = await run(training)
    expectWhole(batches, false)
    expect(notices).toHaveLength(1)
    expect(notices[0]).toMatch(
      /^rl: \d+ % of the groups were dropped as stale before an update took them; this helps: a smaller overSampling than 2, or order=number, or a larger maxStaleness than 1$/,
    )
    const stale = metrics.reduce((sum, { rl: told }) => sum + (told!.drops.stale ?? 0), 0)
    expect(stale).toBeGreaterThan(0)
    expect(Math.max(...metrics.map(({ rl: told }) => told!.staleness!.max))).toBeLessThanOrEqual(1)
    expect(cohort.submitted.includes(1)).toBe(cohort.conversation.phase.some((phase) => phase !== 0))
  })

  test('groups that a filter drops while the learner works leave what it reads where it is', async () => {
    const pairs = digits({ maxTokens: 9, respond: ({ completion }) => ({ reward: completion.length % 2 }) })
    const beat = async () => {
      for (let i = 0; i < 12; i++) await later()
    }
    const settings = { maxStaleness: 2, filter: 'reward-nonzero-std', updates: 6 }
    const options = { engine: streaming(), environment: pairs, numLanes: 12 }
    const { training } = await trainingOf(settings, options, slow(beat))
    const { metrics, batches } = await run(training)
    expectWhole(batches, false)
    for (const batch of batches) {
      for (const { group, token } of batch) {
        const other = batch.find((row) => row.group === group && row.token !== token)!
        expect((token.length + other.token.length) % 2).toBe(1)
      }
    }
    expect(metrics.slice(1).some(({ rl: told }) => told!.drops.zero_std! > 0)).toBe(true)
  })

  test('an engine that lags behind has its groups dropped as stale when they are taken', async () => {
    const lagging = defineEngine('lagging', ({ tokenizer }) => ({
      logprobs: 'candidates',
      advance(turns) {
        for (const turn of turns) {
          const isLate = turn.request.key[0] === 5
          turn.add(tokenizer.endIds[0]!, -1, [], isLate ? 0 : undefined)
        }
      },
    }))
    const { training } = await trainingOf({ maxStaleness: 1 }, { engine: lagging })
    const { metrics, batches } = await run(training)
    expect(batches.flat().some(({ group }) => group === 5)).toBe(false)
    const drops = metrics.map(({ rl: told }) => told!.drops)
    expect(drops.filter(({ stale }) => stale === 1)).toHaveLength(1)
  })

  test('the log has room for the conversations of all updates that may be sampled ahead, and never more', async () => {
    const draft = (await world()).draft()
    const room = (settings: Settings) => textReservation(draft, { rl: rl(settingsOf(settings)) }, 1).log!.rows - 6
    expect([room({}), room({ maxStaleness: 3 }), room({ maxStaleness: 3, overSampling: 1.1 })]).toEqual([4, 16, 18])
  })

  test('a loss has to bound the ratio, unless any is asked for', () => {
    const { klCoef } = { klCoef: 0 }
    for (const loss of ['grpo', 'cispo', 'sapo', 'decoupled-ppo'] as const) {
      expect(rl({ loss, maxStaleness: 1, lossSettings: { klCoef } }).settings.maxStaleness).toBe(1)
    }
    expect(() => rl({ loss: 'rloo', maxStaleness: 2 })).toThrow(
      'rl.maxStaleness: got 2, with loss rloo, whose ratio is not clipped, expected a clipped loss, a correction, or rl.staleLoss any',
    )
    expect(() => rl({ maxStaleness: 1, lossSettings: { clipHigh: null } })).toThrow('whose ratio is not clipped')
    expect(rl({ loss: 'rloo', staleLoss: 'any', maxStaleness: 1 }).id).toBe('rl')
    const corrected = { correction: 'token-truncate', correctionHigh: 2 } as const
    expect(rl({ loss: 'rloo', maxStaleness: 1, lossSettings: corrected }).id).toBe('rl')
    expect(rl({ loss: 'rloo', maxStaleness: 0 }).id).toBe('rl')
  })

  test('a training stopped after any tick goes on to the same conversations and weights', async () => {
    const script = (turn: TurnRequest, ids: readonly number[]): ScriptStep => {
      const said = ids.length - turn.ids.length + turn.generated
      const isLast = said + 1 >= lengthOf(2, turn.key)
      return { token: isLast ? 10 : hashed(6, said, ...turn.key), logprob: -Math.log(6) }
    }
    const made = async () => {
      const each = await world({ engine: scriptedEngine(script), numLanes: 3 })
      return createTrainer(each, rl(settingsOf({ maxStaleness: 2, overSampling: 1.5, updates: 5 })))
    }
    const state = ({ trajectories, weights, conversation }: ConversationCohort) => {
      const sorted = trajectories.take(trajectories.order())
      const rows = Array.from({ length: sorted.count }, (_, i) => structuredClone(sorted.row(i)))
      return [weights.slice(), rows, conversation.begun.slice()]
    }
    const whole = await made()
    for await (const _ of whole.updates());
    const { steps } = whole
    for (const ticks of [2, 5, 9, 14, steps - 2]) {
      const folder = await temporaryFolder()
      const first = await made()
      const { signal } = new AbortController()
      Object.defineProperty(signal, 'aborted', { get: () => first.steps >= ticks })
      for await (const _ of first.updates({ signal }));
      expect(first.steps).toBe(ticks)
      await first.save(folder)
      const second = await made()
      await second.restore(folder)
      for await (const _ of second.updates());
      expect(state(second.world.cohort())).toEqual(state(whole.world.cohort()))
    }
  })
})

describe('an engine that', () => {
  const failing = (engine: EngineDefinition, settings: Settings, more: Partial<ConversationCohortOptions> = {}) =>
    trainingOf({ updates: 2, ...settings }, { engine, ...more }, slow(later))
  const fails = (isFailing: (key: TurnRequest['key']) => boolean) =>
    defineEngine('failing', ({ tokenizer }) => ({
      logprobs: 'candidates',
      async begin(turn) {
        await later()
        turn.add(3, -1)
        if (isFailing(turn.request.key)) return turn.fail('gone')
        for (let i = 0; i < 4; i++) await later()
        turn.add(tokenizer.endIds[0]!, -1)
      },
    }))
  const once = fails(([group, member]) => group === 1 && member === 0)

  test('fails once costs the reward of one conversation, its group, or the training, as was chosen', async () => {
    const kept = await run((await failing(once, {})).training)
    expect(kept.metrics[0]!.rl).toMatchObject({ drops: {}, trajectories: 4, numUnknown: 1 })
    const { training, cohort } = await failing(once, { failure: 'drop' })
    const abort = vi.spyOn(cohort.engine, 'abort')
    const dropped = await run(training)
    expect(dropped.metrics[0]!.rl).toMatchObject({ drops: { failed: 1 }, trajectories: 4, numUnknown: 0 })
    expect(abort).toHaveBeenCalledTimes(1) // The other member of the group.
    expect(dropped.batches.flat().some(({ group }) => group === 1)).toBe(false)
    const { training: ended } = await failing(once, { failure: 'throw' })
    await expect(run(ended)).rejects.toThrow('group 1, member 0: got engine failing: gone, expected turns that')
  })

  test('always fails ends the training with the counts of why', async () => {
    const { training } = await failing(
      fails(() => true),
      { failure: 'drop', dropsMax: 5 },
    )
    const error = await run(training).catch((thrown) => thrown)
    expect(error).toBeInstanceOf(RolloutStarvedError)
    expect(error.drops).toEqual({ failed: 6 })
    const kept = run(
      (
        await failing(
          fails(() => true),
          {},
        )
      ).training,
    )
    await expect(kept).rejects.toThrow('no reward of 4 conversations known (engine failing: gone)')
  })

  test('always breaks turns off is not asked forever', async () => {
    const breaking = (numTokens: number) =>
      defineEngine('breaking', () => ({
        logprobs: 'candidates',
        begin(turn) {
          if (turn.request.generated < numTokens) turn.add(3, -1)
          turn.end('aborted')
        },
      }))
    const some = run((await failing(breaking(2), {})).training)
    await expect(some).rejects.toThrow('engine breaking: broke the turn off 8 times without a token')
    const none = run((await failing(breaking(0), { dropsMax: 3 })).training)
    await expect(none).rejects.toThrow('4 groups dropped for one update (4 failed)')
    const whole = defineEngine('breaking at each token', ({ tokenizer }) => ({
      logprobs: 'candidates',
      begin(turn) {
        turn.add(turn.request.generated < 8 ? 3 : tokenizer.endIds[0]!, -1)
        turn.end('aborted')
      },
    }))
    const { metrics } = await run((await failing(whole, { updates: 1 })).training)
    expect(metrics[0]!.rl).toMatchObject({ numUnknown: 0, completionLength: 9 })
  })

  test('says nothing is told of with the lane and what was last heard, and the conversation ends', async () => {
    const silent = defineEngine('silent', ({ tokenizer }) => ({
      logprobs: 'candidates',
      async begin(turn) {
        turn.add(3, -1)
        if (turn.request.key[0] > 0 || turn.request.key[1] > 0) turn.add(tokenizer.endIds[0]!, -1)
      },
    }))
    const { training, cohort } = await failing(silent, { updates: 1 }, { turnSeconds: 0.05 })
    const told: string[] = []
    cohort.onLate = (message) => {
      told.push(message)
      return 'continue'
    }
    const { metrics } = await run(training)
    expect(told).toHaveLength(1)
    expect(told[0]).toMatch(
      /^lane 0 \(group 0, member 0\): engine silent has given no token for 0.05 s; last progress at .*Z after 1 tokens of the turn$/,
    )
    expect(metrics[0]!.rl).toMatchObject({ numUnknown: 1, firstError: 'engine silent: no token within 0.05 s' })
  })
})

test('how long groups and lanes waited is told in seconds, as a clock says that a script moves', async () => {
  let now = 0
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now)
  try {
    // Group g is over after g + 1 ticks of a second each; three lanes have groups of one.
    const engine = defineEngine('timed', ({ tokenizer }) => {
      const ticks = new Map<number, number>()
      return {
        logprobs: 'candidates',
        advance(turns) {
          now += 1000
          for (const turn of [...turns]) {
            const [group] = turn.request.key
            const tick = (ticks.get(group) ?? 0) + 1
            ticks.set(group, tick)
            turn.add(tick === [1, 4, 2, 2][group]! ? tokenizer.endIds[0]! : 3, -1)
          }
        },
      }
    })
    const settings = { groupsPerUpdate: 2, groupSize: 1, maxStaleness: 1, updates: 2, lossSettings: { lone: 'reward' } }
    const made = await talkWorld({ environment, groupSize: 1, numLanes: 3, engine })
    const backend = unigrams(new Array(32).fill(0))
    const phases = { rl: rl(settings as never) }
    const training = reserveConversations(made, made.names[0]!, phases, { profile: false, backend })()
    const [first, second] = [(await training.advance({}))!.rl!, (await training.advance({}))!.rl!]
    // Groups 0 to 3 may begin at once. 0 ends at 1 s, 2 at 2 s, 3 takes the lane of 0 and ends at 3 s, 1 ends at 4 s.
    const ages = { mean: 4, max: 4, counts: [0, 0, 0, 2] }
    expect(first).toMatchObject({ rolloutAgeSeconds: ages, queueDepth: 2, rolloutSeconds: 4 })
    expect(first.lanesIdleSeconds).toBeCloseTo((2 + 1) / 3, 12)
    expect(second).toMatchObject({ rolloutAgeSeconds: ages, queueDepth: 0, rolloutSeconds: 0 })
    expect(second.lanesIdleSeconds).toBe(0)
    expect([first.staleness, second.staleness]).toEqual([
      { mean: 0, max: 0, counts: [1 + 4] },
      { mean: 1, max: 1, counts: [0, 2 + 2] },
    ])
  } finally {
    clock.mockRestore()
  }
})

test('whatever takes how long, groups are whole, learned from once and in order, and never too stale', async () => {
  const cases = fc.record({
    seed: fc.nat(1000),
    maxStaleness: fc.nat(3),
    overSampling: fc.constantFrom(1, 1.5),
    order: fc.constantFrom('number' as const, 'arrival' as const),
    weightSwap: fc.constantFrom('in-place' as const, 'interrupt' as const),
    numLanes: fc.integer({ min: 1, max: 9 }),
    learner: fc.nat(9),
  })
  await fc.assert(
    fc.asyncProperty(cases, async ({ seed, numLanes, learner, ...settings }) => {
      const pause = async () => {
        for (let i = 0; i < learner; i++) await later()
      }
      const { training, cohort } = await trainingOf(settings, { engine: streaming(later, seed), numLanes }, slow(pause))
      const { metrics, batches } = await run(training)
      expectWhole(batches, settings.order === 'number' && settings.overSampling === 1)
      for (const { rl: told } of metrics) expect(told!.staleness!.max).toBeLessThanOrEqual(settings.maxStaleness)
      for (const [update, batch] of batches.entries()) {
        for (const { versions } of batch) {
          expect(versions).toEqual(versions.toSorted((a, b) => a - b))
          expect(versions.every((each) => each <= update)).toBe(true)
        }
      }
      expect(cohort.trajectories.count).toBeLessThanOrEqual(2 * SIZE * 1.5 * (settings.maxStaleness + 1) + numLanes)
    }),
    { numRuns: 25 },
  )
})

test('with answers of log-normal lengths it is at least twice as fast as synchronous, and simulated within 15 %', async () => {
  const seed = 1
  const lengths = { lengthMedian: 10, lengthSigma: 1, lengthMax: 80 }
  const [tokensPerSecond, updateSeconds, updates] = [50, 0.1, 10]
  const random = new Random(seed)
  const lengthOf = ([group, member]: TurnRequest['key']) => {
    random.draw(Stream.step, member, group, 0) // As long as those of the simulation.
    const length = Math.round(lengths.lengthMedian * Math.exp(lengths.lengthSigma * random.normal(0, 0)))
    return Math.min(lengths.lengthMax, Math.max(1, length))
  }
  const long = digits({
    maxTokens: lengths.lengthMax,
    respond: ({ completion }) => ({ reward: completion.length % 3 }),
  })
  const { setTimeout: timer } = globalThis
  // Virtual time stands still while somebody works: a turn of the event loop has to be one.
  const soon = vi
    .spyOn(globalThis, 'setTimeout')
    .mockImplementation(((then: () => void, ms?: number) => (ms === 0 ? setImmediate(then) : timer(then, ms))) as never)
  const measure = async (maxStaleness: number): Promise<number> => {
    const time = new VirtualTime()
    const engine = defineEngine('fixed rate', ({ tokenizer }) => ({
      logprobs: 'candidates',
      async begin(turn) {
        const total = lengthOf(turn.request.key)
        for (let i = turn.request.generated; i < total && turn.isOpen; i++) {
          await time.sleep(1 / tokensPerSecond)
          turn.add(i + 1 < total ? 3 : tokenizer.endIds[0]!, -Math.log(6))
        }
      },
    }))
    const settings = { groupsPerUpdate: 8, groupSize: 4, updates, maxStaleness }
    const policy = languageModel({ width: 8, layers: 1, heads: 1, context: lengths.lengthMax + 8 })
    const options = { environment: long, policy, engine, numLanes: 32, groupSize: 4 }
    const { training } = await trainingOf(
      settings,
      options,
      slow(() => time.sleep(updateSeconds)),
    )
    const { metrics } = await time.run(async () => {
      let isOver = false
      const moments = async () => {
        while (!isOver) await time.sleep(0.0005) // Some turns of the event loop take no sleep: time goes on in them.
      }
      const going = moments()
      const ran = await run(training)
      isOver = true
      await going
      return ran
    })
    return metrics.reduce((sum, { rl: told }) => sum + told!.sampledTokens, 0) / time.now()
  }
  try {
    const rates: number[] = []
    for (const maxStaleness of [0, 4]) {
      rates.push(await measure(maxStaleness))
      const { trainedTokensPerSecond } = await simulate({
        ...{ ...lengths, seed, groupSize: 4, groupsPerBatch: 8, slots: 32, updates, maxStaleness, tokensPerSecond },
        ...{ engineTokensPerSecond: 1e9, learnerTokensPerSecond: 1e9, updateSeconds, deliverySeconds: 0 },
      })
      expect(Math.abs(rates.at(-1)! / trainedTokensPerSecond - 1)).toBeLessThan(0.15)
    }
    expect(rates[1]! / rates[0]!).toBeGreaterThan(2)
  } finally {
    soon.mockRestore()
  }
})

test('ages of groups are counted from one power of two seconds to the next', () => {
  expect(spreadOfAges([0.2, 0.999, 1, 1.99, 2, 3.5, 4, 63.9])).toEqual({
    mean: (0.2 + 0.999 + 1 + 1.99 + 2 + 3.5 + 4 + 63.9) / 8,
    max: 63.9,
    counts: [2, 2, 2, 1, 0, 0, 1],
  })
})
