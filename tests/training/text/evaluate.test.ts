import { describe, expect, test } from 'vitest'
import type { Reply, Turn } from '../../../src/environments/text.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { converse } from '../../../src/training/text/collect/converse.ts'
import { evaluateText } from '../../../src/training/text/evaluate/evaluate.ts'
import { digits } from '../../support/conversations.ts'

const policy = languageModel({ width: 16, layers: 1, heads: 2 })

/** Evaluates with drawn tokens; returns what came of it, and every turn that was judged. */
async function evaluated(episodes: number, respond: (turn: Turn) => Reply, maxTurns = 1) {
  const turns: Turn[] = []
  const environment = digits({
    maxTurns,
    respond: (turn) => {
      turns.push(turn)
      return respond(turn)
    },
  })
  return { turns, evaluation: await evaluateText({ environment, policy, episodes, explore: true, seed: 4 }) }
}

describe('an evaluation of a language model', () => {
  test('sums up the rewards, lengths and ends of its conversations, and shows the first five', async () => {
    const { turns, evaluation } = await evaluated(8, ({ exampleIndex, completion }) => ({
      reward: 10 * exampleIndex - completion.length,
    }))
    expect(turns).toHaveLength(8)
    const rewards = turns.map(({ exampleIndex, completion }) => 10 * exampleIndex - completion.length)
    const mean = rewards.reduce((sum, value) => sum + value) / 8
    const { reward, samples, stopReasons, completionLength, ...rest } = evaluation
    expect(reward!.mean).toBeCloseTo(mean, 10)
    expect(reward!.std).toBeCloseTo(Math.sqrt(rewards.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 8), 10)
    expect([reward!.min, reward!.max]).toEqual([Math.min(...rewards), Math.max(...rewards)])
    expect(rest).toEqual({ episodes: 8, components: {}, numUnknown: 0, firstError: null, numQuestions: null })
    const counts: Record<string, number> = {}
    for (const { stopReason } of turns) counts[stopReason] = (counts[stopReason] ?? 0) + 1
    expect(stopReasons).toEqual(counts)
    // A character is a token, a special one too, and so is what ends an answer.
    const lengths = turns.map(
      ({ raw, stopReason }) => raw.match(/<[^>]+>|./g)!.length + (stopReason === 'stop' ? 1 : 0),
    )
    expect(completionLength).toBeCloseTo(lengths.reduce((sum, length) => sum + length) / 8, 10)
    expect(samples).toHaveLength(5)
    for (const { prompt, completion, reward: worth } of samples) {
      const turn = turns.find((each) => each.example.prompt === prompt && each.completion === completion)
      expect(worth).toBe(10 * turn!.exampleIndex - turn!.completion.length)
    }
  })

  test('leaves out rewards that are not known, counts them, and says why the first is not', async () => {
    const { evaluation } = await evaluated(10, ({ exampleIndex }) => {
      if (exampleIndex === 2) throw new Error('no judge')
      return { reward: exampleIndex }
    })
    // Ten conversations are two of each of the five examples.
    expect(evaluation).toMatchObject({ numUnknown: 2, firstError: 'no judge', reward: { mean: 2, min: 0, max: 4 } })
    const { evaluation: lost } = await evaluated(2, () => {
      throw new Error('no judge')
    })
    expect(lost).toMatchObject({ numUnknown: 2, reward: null })
  })

  test('is of a whole number of conversations, at least one', async () => {
    const reply = () => ({ reward: 1 })
    expect((await evaluated(1, reply)).evaluation).toMatchObject({ episodes: 1, reward: { mean: 1, std: 0 } })
    for (const episodes of [0, 1.5, -1, Number.NaN]) {
      await expect(evaluated(episodes, reply)).rejects.toThrow(`episodes: got ${episodes}, expected a whole number ≥ 1`)
    }
  })
})

test('conversations are had with the kernels that are asked for', async () => {
  const environment = digits({ maxTurns: 1, respond: () => ({ reward: 0 }) })
  const told = async (kernels: 'plain' | 'simd') => {
    const { conversed } = await converse({ environment, policy, episodes: 4, explore: true, kernels })
    return conversed.flatMap(({ rows }) => rows.flatMap(({ logprob }) => Array.from(logprob)))
  }
  const [plain, simd] = [await told('plain'), await told('simd')]
  expect(plain).not.toEqual(simd)
  expect(await told('plain')).toEqual(plain)
})
