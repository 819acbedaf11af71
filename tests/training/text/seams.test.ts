/** A training of conversations by an engine, a backend and a collector that are not those of this process. */
import { describe, expect, test } from 'vitest'
import type { EngineDefinition, TurnRequest } from '../../../src/engines/engine.ts'
import { type ScriptStep, scriptedEngine } from '../../../src/engines/scripted.ts'
import { createTrainer, rl, sft } from '../../../src/index.ts'
import type { BackendDefinition, TrainingBackend } from '../../../src/training/backends/backend.ts'
import { reserveConversations } from '../../../src/training/loop/conversations.ts'
import type { Phases } from '../../../src/training/loop/trainer-options.ts'
import type { TextMetrics } from '../../../src/training/text/evaluate/metrics.ts'
import type { ConversationCohort, ConversationCohortOptions } from '../../../src/world/conversations/cohort.ts'
import { digits, talkWorld } from '../../support/conversations.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { unigrams } from '../../support/unigrams.ts'

const environment = digits({
  maxTokens: 4,
  respond: ({ completion }) => ({ reward: [...completion].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % 7 }),
})
const settings = { groupsPerUpdate: 3, groupSize: 4, updates: 3, lossSettings: { klCoef: 0 } }

/** A token that the ids and the key decide, a different one under other weights. */
function decided({ key }: TurnRequest, ids: readonly number[], version = 0): { token: number; logprob: number } {
  const hash = [...key, version, ...ids].reduce((sum, id) => (Math.imul(sum, 31) + id) >>> 0, 7)
  return { token: (hash >>> 3) % 6, logprob: -Math.log(6) }
}

const world = (options: Partial<ConversationCohortOptions>) =>
  talkWorld({ environment, groupSize: 4, numLanes: 5, ...options })

/** Goes through all phases with this backend. */
async function train(cohort: Partial<ConversationCohortOptions>, phases: Phases, backend?: BackendDefinition) {
  const made = await world(cohort)
  const training = reserveConversations(made, made.names[0]!, phases, { profile: false, backend })()
  const metrics: TextMetrics[] = []
  while (!training.isDone({})) metrics.push((await training.advance({}))!)
  return { metrics, training, cohort: made.cohort() }
}

describe('a training of conversations', () => {
  test('learns by a backend of one’s own, which gets losses as derivatives, and gives its weights to the engine', async () => {
    const delivered: [number, number[]][] = []
    const engine: EngineDefinition = {
      id: 'listening',
      create(context) {
        const inner = scriptedEngine((turn, ids) => decided(turn, ids)).create(context)
        const { setWeights } = inner
        return Object.assign(inner, {
          setWeights(delivery: Parameters<typeof setWeights>[0]) {
            delivered.push([delivery.version, [...delivery.weights]])
            return setWeights.call(inner, delivery)
          },
        })
      },
    }
    const logits = new Array(32).fill(0).map((_, i) => (i % 5) / 5)
    let backend: TrainingBackend | undefined
    const definition: BackendDefinition = {
      id: 'unigrams',
      create(context) {
        backend = unigrams(logits).create(context)
        return backend
      },
    }
    const { metrics, training, cohort } = await train(
      { engine },
      {
        sft: sft({ updates: 2, batchSize: 3, optimizer: 'sgd', learningRate: 1 }),
        rl: rl({ ...settings, optimizer: 'sgd', learningRate: 1 }),
      },
      definition,
    )
    expect(metrics.map(({ phase, step }) => [phase, step])).toEqual([
      ['sft', 1],
      ['sft', 2],
      ['rl', 1],
      ['rl', 2],
      ['rl', 3],
    ])
    expect(delivered.map(([version]) => version)).toEqual([0, 1, 2, 3, 4, 5])
    expect(delivered[0]![1]).toEqual([...Float32Array.from(logits)])
    for (let i = 1; i < delivered.length; i++) expect(delivered[i]![1]).not.toEqual(delivered[i - 1]![1])
    expect(delivered[5]![1]).toEqual([...(await backend!.getWeights(5)).weights])
    const { version } = cohort.trajectories.columns()
    expect(new Set(version)).toEqual(new Set([-1, 4]))
    expect([training.update, cohort.version]).toEqual([5, 5])
    expect(metrics[1]!.loss).toBeLessThan(metrics[0]!.loss)
    for (const { gradNorm } of metrics) expect(gradNorm).toBeGreaterThan(0)
  })

  test('drops groups that other weights had a part in, and collects others in their place', async () => {
    const stale: EngineDefinition = {
      id: 'stale',
      create(context) {
        const inner = scriptedEngine((turn, ids) => decided(turn, ids)).create(context)
        const { poll } = inner
        return Object.assign(inner, {
          poll() {
            const polled = poll()
            for (const { count, slot, version } of polled.tokens) {
              for (let i = 0; i < count; i++) if (groups[slot[i]!] === 1) version[i] = version[i]! - 1
            }
            return polled
          },
          submit: ((submit) => (turn: TurnRequest) => {
            groups[turn.slot] = turn.key[0]
            submit(turn)
          })(inner.submit),
        })
      },
    }
    const groups: number[] = []
    const { metrics } = await train(
      { engine: stale },
      { sft: sft({ updates: 1 }), rl: rl({ ...settings, updates: 2 }) },
    )
    expect(metrics[1]!.rl!.drops).toEqual({ stale: 1 })
    expect(metrics[1]!.rl!.trajectories).toBe(12)
    expect(metrics[2]!.rl!.drops).toEqual({}) // They are those of one update.
    const none = train(
      { engine: stale },
      { sft: sft({ updates: 1 }), rl: rl({ ...settings, updates: 1, dropsMax: 0 }) },
    )
    await expect(none).rejects.toThrow(/1 groups dropped for one update \(1 stale\), expected at most 0/)
  })

  test('drops a group of which the engine generated nothing, and keeps one of which it failed in the middle', async () => {
    const script = (turn: TurnRequest, ids: readonly number[], step: number): ScriptStep => {
      const failsAt = [0, 2][turn.key[0]]
      return turn.key[1] === 1 && step === failsAt ? { failed: 'gone' } : decided(turn, ids)
    }
    const { metrics } = await train({ engine: scriptedEngine(script) }, { rl: rl({ ...settings, updates: 1 }) })
    const { drops, trajectories, numUnknown, firstError } = metrics[0]!.rl!
    expect([drops, trajectories, numUnknown, firstError]).toEqual([{ failed: 1 }, 12, 1, 'engine scripted: gone'])
  })

  test('evaluates what the engine says of another distribution, and nothing where it is the one drawn from', async () => {
    const phases = { rl: rl({ ...settings, updates: 1, temperature: 0.5 }) }
    const by = (logprobs: 'raw' | 'tempered' | 'none') => {
      const step = (turn: TurnRequest, ids: readonly number[]): ScriptStep => ({
        ...decided(turn, ids),
        ...(logprobs === 'none' ? { logprob: Number.NaN } : {}),
      })
      return train({ engine: scriptedEngine(step, { logprobs }), sampling: { temperature: 0.5 } }, phases)
    }
    for (const kind of ['raw', 'none'] as const) {
      const { metrics } = await by(kind)
      expect(metrics[0]!.rl!.numRecomputed).toBe(metrics[0]!.rl!.sampledTokens)
      expect(metrics[0]!.rl!.ratio).toBeCloseTo(1, 6)
    }
    const { metrics } = await by('tempered')
    expect(metrics[0]!.rl!.numRecomputed).toBe(0)
    expect(Math.abs(metrics[0]!.rl!.ratio - 1)).toBeGreaterThan(0.01)
  })

  test('is not begun where an engine does not confirm the weights that it was given', async () => {
    const lying: EngineDefinition = {
      id: 'lying',
      create: (context) =>
        Object.assign(scriptedEngine((turn, ids) => decided(turn, ids)).create(context), { setWeights: () => 2 }),
    }
    await expect(train({ engine: lying }, { rl: rl(settings) })).rejects.toThrow(
      'weights of engine scripted: got version 2 confirmed, expected version 0, as delivered',
    )
  })

  test('goes on after a tick to the same conversations and weights, with turns of an engine that waits and breaks off', async () => {
    const script = (turn: TurnRequest, ids: readonly number[], step: number): ScriptStep => {
      if (step === 0 && turn.key[0] % 2 === 1) return 'wait'
      return step === 3 ? 'aborted' : decided(turn, ids)
    }
    const made = async () => {
      const each = await world({ engine: scriptedEngine(script) })
      return createTrainer(each, rl(settings))
    }
    const state = ({ trajectories, weights }: ConversationCohort) => {
      const sorted = trajectories.take(trajectories.order())
      return [weights.slice(), ...Array.from({ length: sorted.count }, (_, i) => structuredClone(sorted.row(i)))]
    }
    const whole = await made()
    for await (const _ of whole.updates());
    for (const ticks of [1, 3, 6]) {
      const folder = await temporaryFolder()
      const first = await made()
      for (let i = 0; i < ticks; i++) await moveOnce(first)
      expect(first.world.cohort().submitted.includes(1)).toBe(true)
      await first.save(folder)
      const second = await made()
      await second.restore(folder)
      for await (const _ of second.updates());
      expect(state(second.world.cohort())).toEqual(state(whole.world.cohort()))
    }
  })
})

/** Lets a trainer make one tick, and stops it. */
async function moveOnce(trainer: ReturnType<typeof createTrainer<ConversationCohort, string>>): Promise<void> {
  const { steps } = trainer
  const { signal } = new AbortController()
  Object.defineProperty(signal, 'aborted', { get: () => trainer.steps > steps })
  for await (const _ of trainer.updates({ signal }));
}
