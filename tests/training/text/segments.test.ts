/** Conversations in several rows: what becomes of them where a chat template rewrites earlier turns. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { LossSettings } from '../../../src/algorithms/losses/loss-settings.ts'
import { describeLoss } from '../../../src/algorithms/losses/losses.ts'
import { takeArena } from '../../../src/components/arena.ts'
import { column } from '../../../src/components/column.ts'
import type { Turn } from '../../../src/environments/text.ts'
import { createKernels, spansOf } from '../../../src/kernels/bind.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { PackedTransformer, packedPlan } from '../../../src/language/transformer/packed.ts'
import { Trajectories } from '../../../src/tables/trajectories/trajectories.ts'
import type { Trajectory } from '../../../src/tables/trajectories/trajectory.ts'
import { readTrajectories } from '../../../src/tables/trajectories/trajectory-table.ts'
import { Trainer, type TrainingColumns } from '../../../src/training/text/learn/token-trainer.ts'
import type { ConversationCohort } from '../../../src/world/conversations/cohort.ts'
import type { World } from '../../../src/world/world.ts'
import { talkUntil, talkWorld } from '../../support/conversations.ts'
import { writeQwen3 } from '../../support/qwen3-folder.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { modelFolder, threeTurns, trained, trainerOf } from '../../support/three-turns.ts'
import { trajectory } from '../../support/trajectories.ts'

describe('the rows of a conversation', () => {
  async function world(): Promise<World<ConversationCohort>> {
    const policy = languageModel({ folder: await modelFolder(), templateArguments: ['enable_thinking=false'] })
    const environment = threeTurns()
    return talkWorld({ environment, policy, groupSize: 2, cutTurn: 'continue', sampling: { topK: 50 } })
  }

  test('each have the prompt that the template renders then, a mask of their own, and the reward of all', async () => {
    const cohort = (await world()).cohort()
    const seen: Turn[] = []
    const spied = {
      ...cohort.environment,
      respond: (turn: Turn, signal: AbortSignal) => {
        seen.push(turn)
        return cohort.environment.respond(turn, signal)
      },
    }
    const talk = await talkWorld({
      ...{ environment: spied, policy: cohort.policyDefinition, groupSize: 2, cutTurn: 'continue' as const },
      numLanes: 1,
    })
    const rows = await talkUntil(talk, 4)
    expect(rows.map(({ segment, member }) => [member, segment])).toEqual(
      [0, 1, 0, 1].flatMap((member) => [0, 1, 2].map((segment) => [member, segment])),
    )
    const { tokenizer } = talk.cohort()
    for (const [i, { token, lossMask, turn, turns, segment, reward }] of rows.entries()) {
      const prompt = token.filter((_, t) => lossMask[t] === 0)
      const { messages } = seen[i]!
      const rendered = tokenizer.chatTemplate!.render(
        messages.map(({ role, content }) => ({ role, content })),
        { addGenerationPrompt: true },
      )
      expect(tokenizer.decode(prompt)).toBe(rendered)
      expect(rendered).not.toContain(`${seen[Math.max(0, i - 1)]!.raw}<think>`)
      expect(lossMask).toEqual([...prompt.map(() => 0), ...token.slice(prompt.length).map(() => 1)])
      expect(new Set(turn)).toEqual(new Set([segment]))
      expect(turns).toBe(1)
      expect(reward).toBe(rows[i - segment! + 2]!.reward)
    }
  })

  test('have, to the bit, the log-probabilities that evaluating each alone gives', async () => {
    const talk = await world()
    const rows = await talkUntil(talk, 6)
    const { model, weights } = talk.cohort()
    const { arena, columns } = takeArena({
      weights: column('f32', weights.length),
      packed: packedPlan(model, 160, 160),
    })
    columns.weights.set(weights)
    const packed = new PackedTransformer(
      model,
      columns.weights,
      columns.packed,
      createKernels(arena.memory, talk.kernelBuild),
    )
    expect(rows.filter(({ segment }) => segment === 2).length).toBe(6)
    for (const { token, lossMask, logprob, candidateCount, candidateIds } of rows) {
      const candidates = { begin: [0], length: candidateCount, ids: Int32Array.from(candidateIds) }
      const evaluated = packed.evaluate(packed.pack(token, spansOf([0, token.length]), 0, 1, candidates), 1).logprob
      token.forEach((_, t) => {
        if (lossMask[t] === 1) expect(evaluated[t - 1]).toBe(logprob[t])
      })
    }
  })

  test('are drawn by other random numbers, though their prompts be the same', async () => {
    const folder = await temporaryFolder()
    const template = "{{ '<|im_start|>' + messages[-1].role + messages[-1].content + '<|im_end|>' }}"
    await writeQwen3(folder, { template })
    const environment = threeTurns({
      example: () => ({ prompt: [{ role: 'user', content: 'x' }] }),
      respond: () => ({ reward: 0, messages: [{ role: 'user', content: 'x' }] }),
    })
    const rows = await talkUntil(
      await talkWorld({ environment, policy: languageModel({ folder }), cutTurn: 'continue' }),
      8,
    )
    expect(rows.filter(({ segment }) => segment === 2)).toHaveLength(8)
    const [first, second, third] = [0, 1, 2].map((wanted) => rows.filter(({ segment }) => segment === wanted))
    first!.forEach(({ token, lossMask }, i) => {
      const prompt = lossMask.indexOf(1)
      expect(second![i]!.token.slice(0, prompt)).toEqual(token.slice(0, prompt))
      expect(second![i]!.token).not.toEqual(token)
      expect(third![i]!.token).not.toEqual(second![i]!.token)
    })
  })

  test('are written and read again as Arrow, each with its place, and follow each other in a table', async () => {
    const trainer = await trainerOf(1, ['enable_thinking=false'])
    await trained(trainer)
    const path = join(await temporaryFolder(), 'rows.arrow')
    await trainer.writeTrajectories(path)
    expect((await readFile(path)).length).toBeGreaterThan(0)
    const { trajectories } = await readTrajectories(path)
    expect(trajectories.count).toBe(18)
    expect(trajectories.numConversations).toBe(6)
    expect([...trajectories.columns().segment]).toEqual(Array.from({ length: 18 }, (_, i) => i % 3))
    const { advantage } = trajectories.columns()
    for (let i = 0; i < 18; i += 3) expect([advantage[i + 1], advantage[i + 2]]).toEqual([advantage[i], advantage[i]])

    const table = new Trajectories()
    expect(() => table.append(trajectory({ segment: 1 }))).toThrow(/segment 1, expected segment 0 of its conversation/)
    table.append(trajectory({}))
    expect(() => table.append(trajectory({ segment: 1, member: 1 }))).toThrow(/segment 0 of its conversation/)
    expect(() => table.append(trajectory({ segment: 2 }))).toThrow(/segment 1 of its conversation/)
    table.append(trajectory({ segment: 1 }))
    expect([table.count, table.numConversations]).toEqual([2, 1])
  })
})

describe('the loss of a conversation in several rows', () => {
  /** Three conversations of one group: the first in rows of 3, 1 and 2 tokens to learn from, the others in one. */
  const rewards = [1, 0, 0.2]
  const learned = [[3, 1, 2], [4], [5]]
  function table(): Trajectories {
    const rows = new Trajectories()
    learned.forEach((segments, member) => {
      segments.forEach((count, segment) => {
        const token = [member, segment, ...Array.from({ length: count }, (_, t) => (3 * t + member + segment) % 10)]
        const given: Partial<Trajectory> = {
          ...{ member, segment, reward: rewards[member]!, token },
          lossMask: token.map((_, t) => (t < 2 ? 0 : 1)),
          logprob: token.map((_, t) => (t < 2 ? 0 : -2 - 0.1 * t)),
          version: token.map((_, t) => (t < 2 ? -1 : 0)),
          turn: token.map(() => segment),
        }
        rows.append(trajectory(given))
      })
    })
    return rows
  }

  /** What a step saw, each row of the table as lists, and the step's figures. */
  async function seenBy(settings: Partial<LossSettings>) {
    const world = await talkWorld({ groupSize: 3 })
    let seen: TrainingColumns | undefined
    const loss = describeLoss('grpo', 'paper', { klCoef: 0, ...settings })
    const trainer = new Trainer({
      ...{ model: world, advantageFn: { settings: loss.settings }, lossFn: loss },
      optimizer: { optimizer: 'sgd', learningRate: 1e-3 },
      metricsFn: (columns) => {
        seen = structuredClone(columns)
        return {}
      },
    })
    const figures = await trainer.train(table())
    const columns = seen!
    const rows = learned.flat().map((count) => {
      const i = Array.from(columns.offsets).findIndex((from, at) => {
        const counted = columns.counted.subarray(from, columns.offsets[at + 1])
        return counted.reduce((sum, flag) => sum + flag, 0) === count
      })
      const of = (values: Float32Array) => [...values.subarray(columns.offsets[i], columns.offsets[i + 1])].slice(2) // Behind the prompt of two.
      return { advantage: of(columns.advantage), entropy: of(columns.entropy), reward: columns.reward[i]! }
    })
    return { rows, figures }
  }

  test('counts its reward once in the group, and gives its advantage to all of its rows', async () => {
    const { rows } = await seenBy({ scale: 'none' })
    const mean = (1 + 0 + 0.2) / 3
    learned.flat().forEach((count, i) => {
      const reward = i < 3 ? 1 : rewards[i - 2]!
      expect(rows[i]!.reward).toBe(reward)
      expect(rows[i]!.advantage).toHaveLength(count)
      for (const advantage of rows[i]!.advantage) expect(advantage).toBeCloseTo(reward - mean, 6)
    })
  })

  test('discounts an earlier row by the tokens of the later ones', async () => {
    const { rows } = await seenBy({ advantage: 'returns', gamma: 0.9 })
    const returns = (count: number, reward: number) =>
      Array.from({ length: count }, (_, t) => reward * 0.9 ** (count - 1 - t))
    const whole = returns(6, 1)
    const expected = [whole.slice(0, 3), whole.slice(3, 4), whole.slice(4), returns(4, 0), returns(5, 0.2)]
    rows.forEach(({ advantage }, i) => {
      expect(advantage).toHaveLength(expected[i]!.length)
      advantage.forEach((value, t) => {
        expect(value).toBeCloseTo(expected[i]![t]!, 6)
      })
    })
  })

  test('by sequence, is a mean over the tokens of all its rows, and one of three conversations', async () => {
    // Advantages of 0 leave the entropy alone: −coef · mean over conversations of their mean entropy.
    const settings = { aggregation: 'sequence-mean', entropyCoef: 0.7, advantage: 'returns', gamma: 0 } as const
    const { rows, figures } = await seenBy({ ...settings, surrogate: 'clip', clipLow: null, clipHigh: null })
    const conversations = [rows.slice(0, 3), rows.slice(3, 4), rows.slice(4)]
    const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
    const entropy = mean(conversations.map((parts) => mean(parts.flatMap((row) => row.entropy))))
    const wrong = mean(rows.map((row) => mean(row.entropy)))
    const { loss: plain } = (await seenBy({ ...settings, entropyCoef: 0, clipLow: null, clipHigh: null })).figures
    expect(figures.loss - plain).toBeCloseTo(-0.7 * entropy, 5)
    expect(Math.abs(wrong - entropy)).toBeGreaterThan(1e-4)
  })

  test('is the same in minibatches, of which each is divided by its conversations, not by their rows', async () => {
    // Conversations of one to three rows. With these returns each token's advantage is the reward of its conversation, so a
    // conversation's mean over tokens is its reward, and the loss the mean reward with the other sign.
    const environment = threeTurns({
      respond: ({ completion, turn, exampleIndex }: Turn) => ({
        reward: completion.length + exampleIndex,
        ...(turn < exampleIndex && { messages: [{ role: 'user', content: 'more' }] }),
      }),
    })
    const lossSettings = {
      advantage: 'returns',
      gamma: 1,
      klCoef: 0,
      rewardKlCoef: 0,
      aggregation: 'sequence-mean',
    } as const
    for (const numMinibatches of [1, 2, 3, 6]) {
      const trainer = await trainerOf(1, ['enable_thinking=false'], {
        environment,
        ...{ numMinibatches, lossSettings, groupsPerUpdate: 4 },
        ...{ optimizer: 'sgd', learningRate: 1e-9 },
      })
      const { loss } = (await trained(trainer))[0]!
      const { reward, segment } = trainer.world.cohort().trajectories.columns()
      const conversations = [...reward].filter((_, row) => segment[row] === 0)
      expect(conversations).toHaveLength(12)
      expect(reward.length).toBeGreaterThan(12)
      expect(new Set(conversations).size).toBeGreaterThan(2)
      const mean = conversations.reduce((sum, each) => sum + each, 0) / 12
      expect(loss, `${numMinibatches} minibatches`).toBeCloseTo(-mean, 4)
    }
  })
})
