import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, describe, expect, test } from 'vitest'
import type { Reply, TextEnvironmentModel, Turn } from '../../../src/environments/text.ts'
import { composeRewards } from '../../../src/language/rewards/compose.ts'
import { createAsyncBatchProcessor, withPolicy } from '../../../src/language/rewards/policy.ts'
import { remoteReward } from '../../../src/language/rewards/remote.ts'
import { batchSizeOf, type Judgment, judge, judgesTogether, type Reward } from '../../../src/language/rewards/reward.ts'
import { applyVerifiersToReward, lengthVerifier } from '../../../src/language/rewards/verifiers.ts'
import { digits, talkUntil, talkWorld } from '../../support/conversations.ts'

const servers: Server[] = []
afterEach(() => {
  for (const server of servers.splice(0)) server.close()
})

type Asked = { prompt: string; completion: string }

/** A reward model that counts: how many samples each request had. `wait` says when the n-th answer comes, in milliseconds. */
async function rewardModel(wait: (request: number) => number = () => 0) {
  const requests: number[] = []
  const server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const { samples } = JSON.parse(body) as { samples: Asked[] }
    const number = requests.push(samples.length) - 1
    await sleep(wait(number))
    const rewards = samples.map(({ prompt, completion }) => worth(`${prompt} ${completion}`))
    response.end(JSON.stringify({ rewards }))
  })
  servers.push(server)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, requests }
}

/** A number that a text has; one in five has none. */
function worth(text: string): number | null {
  const sum = [...text].reduce((total, letter, i) => (total * 31 + letter.charCodeAt(0) + i) % 1009, 7)
  return sum % 5 === 0 ? null : sum / 1009
}

/** Judges turns by a reward model, in batches where it takes them. */
function judgedBy(url: string, batchSize: number | null): Partial<TextEnvironmentModel> {
  return judgedWith(remoteReward({ url, batchSize: batchSize ?? 1, retries: 0 }), batchSize !== null)
}

function judgedWith(reward: Reward, isBatched = true): Partial<TextEnvironmentModel> {
  const judgeAll = createAsyncBatchProcessor(reward)
  const inputOf = ({ example, completion }: Turn) => ({ prompt: String(example.prompt), completion, example })
  const replyOf = ({ value, error, components }: Judgment): Reply => ({
    reward: value,
    components,
    ...(error === undefined ? {} : { error }),
  })
  const respond = async (turn: Turn) => replyOf(await judge(reward, inputOf(turn)))
  if (!isBatched) return { respond }
  return {
    respond,
    together: {
      size: batchSizeOf(reward)!,
      respond: async (turns) => (await judgeAll(turns.map(inputOf))).map(replyOf),
    },
  }
}

async function talk(
  model: Partial<TextEnvironmentModel>,
  options: { numLanes: number; count: number; groupSize?: number },
) {
  const { numLanes, count, groupSize = 4 } = options
  const world = await talkWorld({ environment: digits(model), numLanes, groupSize })
  return talkUntil(world, count)
}

describe('a reward that judges batches', () => {
  test('makes one request for 32 conversations, with the rewards that one by one have', async () => {
    const alone = await rewardModel()
    const one = await talk(judgedBy(alone.url, null), { numLanes: 32, count: 32 })
    expect(alone.requests).toEqual(new Array(32).fill(1))
    const batched = await rewardModel()
    const all = await talk(judgedBy(batched.url, 32), { numLanes: 32, count: 32 })
    expect(batched.requests).toEqual([32])
    expect(all).toEqual(one)
    const rewards = all.map(({ reward }) => reward)
    expect(rewards).toContain(null)
    expect(new Set(rewards).size).toBeGreaterThan(5)
    for (const { reward, error } of all) expect(error).toBe(reward === null ? 'the server gave null' : null)
  })

  test('makes as many requests as the batch size says, and waits no longer than lanes can go on', async () => {
    const alone = await talk(judgedBy((await rewardModel()).url, null), { numLanes: 32, count: 32 })
    const batched = await rewardModel()
    expect(await talk(judgedBy(batched.url, 8), { numLanes: 32, count: 32 })).toEqual(alone)
    expect(batched.requests).toEqual([8, 8, 8, 8])
    const narrow = await rewardModel()
    expect(await talk(judgedBy(narrow.url, 32), { numLanes: 6, count: 32 })).toEqual(alone)
    expect(narrow.requests).toEqual([6, 6, 6, 6, 6, 2])
  })

  test('gives the same rewards in whichever order the answers come', async () => {
    const early = await talk(judgedBy((await rewardModel()).url, 8), { numLanes: 32, count: 64 })
    const late = await rewardModel((request) => 30 * (3 - (request % 4)))
    expect(await talk(judgedBy(late.url, 8), { numLanes: 32, count: 64 })).toEqual(early)
  })

  test('that fails leaves the rewards of its batch unknown, with the reason', async () => {
    const answers: [unknown, RegExp][] = [
      [new Error('no judge'), /no judge/],
      [[{ reward: 1 }], /1 replies to 4 turns/],
      [3, /3 to 4 turns/],
    ]
    for (const [answer, reason] of answers) {
      for (const isLate of [true, false]) {
        const respond = () => {
          if (isLate) return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer as Reply[])
          if (answer instanceof Error) throw answer
          return answer as Reply[]
        }
        const rows = await talk({ together: { size: 4, respond } }, { numLanes: 4, count: 8 })
        expect(rows).toHaveLength(8)
        for (const { reward, error } of rows) {
          expect(reward).toBeNull()
          expect(error).toMatch(reason)
        }
      }
    }
  })
})

describe('a reward that judges groups', () => {
  /** Each conversation's reward is how many of its group say something that comes before it. */
  const groups = (seen: string[][]): Partial<TextEnvironmentModel> => ({
    together: {
      size: 'group',
      respond: async (turns) => {
        await sleep(5 * (seen.length % 3))
        seen.push(turns.map(({ exampleIndex }) => String(exampleIndex)))
        return turns.map(({ completion }) => ({
          reward: turns.filter((other) => other.completion < completion).length,
        }))
      },
    },
  })

  test('gets whole groups, in the order of their members, however many lanes there are', async () => {
    const seen: string[][] = []
    const rows = await talk(groups(seen), { numLanes: 4, count: 24 })
    expect(seen).toHaveLength(6)
    for (const prompts of seen) expect(prompts).toEqual(new Array(4).fill(prompts[0]))
    for (const numLanes of [7, 24]) {
      const others: string[][] = []
      expect(await talk(groups(others), { numLanes, count: 24 })).toEqual(rows)
      expect(others.toSorted()).toEqual(seen.toSorted())
    }
    expect(new Set(rows.map(({ reward }) => reward)).size).toBeGreaterThan(2)
    const places = {
      size: 'group',
      respond: (turns: readonly Turn[]) => turns.map((_, place) => ({ reward: place })),
    } as const
    const placed = await talk({ together: places }, { numLanes: 7, count: 24 })
    expect(placed.map(({ reward }) => reward)).toEqual(placed.map(({ member }) => member))
  })

  test('leaves a group unknown of which not all conversations begin', async () => {
    const rows = await talk(groups([]), { numLanes: 4, count: 6 })
    expect(rows.map(({ reward }) => reward !== null)).toEqual([true, true, true, true, false, false])
    expect(rows[5]!.error).toBe('2 of the 4 conversations of a group that needs all of them')
  })

  test('needs a lane for each member, and one turn', async () => {
    await expect(talk(groups([]), { numLanes: 3, count: 4 })).rejects.toThrow(/numLanes: got 3, expected at least.* 4/)
    expect(() => digits({ ...groups([]), maxTurns: 2 })).toThrow(/maxTurns: got 2, expected 1/)
    const together = { size: 0, respond: () => [] }
    expect(() => digits({ together })).toThrow(/together\.size: got 0/)
    expect(() => digits({ together: { size: 2 } as never })).toThrow(/together\.respond: got undefined/)
  })
})

describe('rewards made of others', () => {
  const brief: Reward = (_, completion) => -completion.length
  const even = { even: (_: string, completion: string) => completion.length % 2 === 0 }
  const passing = { length: lengthVerifier({ minLength: 0 }) }

  type Components = Readonly<Record<string, number | null>>
  const made: [string, (judge: Reward) => Reward, (value: number | null, components: Components) => number | null][] = [
    [
      'sum',
      (judge) => composeRewards({ judge: { reward: judge, weight: 2 }, brief }),
      (value, components) => {
        expect(components.judge).toBe(value)
        return value === null ? null : 2 * value + components.brief!
      },
    ],
    ['reward behind a verifier', (judge) => applyVerifiersToReward(judge, passing), (value) => value],
    [
      'reward with a penalty',
      (judge) => applyVerifiersToReward(judge, even, -3),
      (value, components) => (components['verifier/even'] === 0 ? -3 : value),
    ],
    ['reward under a policy', (judge) => withPolicy(judge), (value) => value],
    [
      'sum of all of them',
      (judge) => composeRewards({ of: applyVerifiersToReward(composeRewards({ judge: withPolicy(judge) }), passing) }),
      (value) => value,
    ],
  ]
  test.each(made)('a %s makes one request for 32 conversations, and has its value', async (_, of, expected) => {
    const alone = await rewardModel()
    const values = (await talk(judgedBy(alone.url, null), { numLanes: 32, count: 32 })).map(({ reward }) => reward)
    expect(new Set(values).size).toBeGreaterThan(5)
    const { url, requests } = await rewardModel()
    const reward = of(remoteReward({ url, batchSize: 32, retries: 0 }))
    const rows = await talk(judgedWith(reward), { numLanes: 32, count: 32 })
    expect(requests).toEqual([32])
    expect(rows.map(({ reward }) => reward)).toEqual(rows.map(({ components }, i) => expected(values[i]!, components)))
  })

  test('compare groups where a part does: a sum over a group is a call for each of its groups', async () => {
    const calls: number[] = []
    const rank = judgesTogether((inputs) => {
      calls.push(inputs.length)
      return inputs.map(({ completion }) => inputs.filter((other) => other.completion < completion).length)
    }, 'group')
    const { url, requests } = await rewardModel()
    const sum = composeRewards({ rank, judge: { reward: remoteReward({ url, batchSize: 3, retries: 0 }), weight: 0 } })
    expect(batchSizeOf(sum)).toBe('group')
    const rows = await talk(judgedWith(sum), { numLanes: 8, count: 16 })
    expect(calls).toEqual([4, 4, 4, 4])
    expect(requests.toSorted()).toEqual([1, 1, 1, 1, 3, 3, 3, 3])
    for (const { reward, components } of rows) expect(reward).toBe(components.rank)
    expect(new Set(rows.map(({ reward }) => reward)).size).toBeGreaterThan(2)
  })

  test('leave unknown only what hangs: the others of the call keep their values, and only those without one are asked again', async () => {
    const asked: string[] = []
    const slow: Reward = (_, completion) => {
      asked.push(completion)
      return completion === 'b' ? new Promise<number>(() => {}) : 1
    }
    const batched = judgesTogether((inputs) => inputs.map(() => 10), 8)
    const judgeAll = createAsyncBatchProcessor(composeRewards({ batched, slow }), { timeoutMs: 50, retries: 1 })
    const inputs = ['a', 'b', 'c'].map((completion) => ({ prompt: '', completion, example: { prompt: '' } }))
    const judgments = await judgeAll(inputs)
    expect(judgments.map(({ value, failure }) => [value, failure])).toEqual([
      [11, undefined],
      [null, 'hung'],
      [11, undefined],
    ])
    expect(asked).toEqual(['a', 'b', 'c', 'b'])
    expect(judgeAll.counts).toMatchObject({ calls: 3, attempts: 4, failures: { hung: 2 } })
  })

  test('that is of no batch stays of none', () => {
    expect(batchSizeOf(composeRewards({ brief }))).toBeNull()
    expect(batchSizeOf(applyVerifiersToReward(brief, passing))).toBeNull()
    expect(batchSizeOf(withPolicy(brief))).toBeNull()
    const of = (size: number) => judgesTogether((inputs) => inputs.map(() => 0), size)
    expect(batchSizeOf(composeRewards({ a: of(4), brief, b: of(16) }))).toBe(16)
  })
})
