import { describe, expect, test } from 'vitest'
import {
  type Agent,
  type AgentEnvironmentOptions,
  agentEnvironment,
  makeAgent,
  registerAgent,
  type TrajectoryContext,
} from '../../src/compat/agent.ts'
import { registerEnvironment } from '../../src/compat/environment-service.ts'
import { scriptedEngine } from '../../src/engines/scripted.ts'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'

/** Tries until its environment says that it is right. */
class MultiTurnAgent implements Agent {
  readonly #turns: number
  readonly #discount: number

  constructor({ turns = 3, discount = 1 }: { turns?: number; discount?: number }) {
    this.#turns = turns
    this.#discount = discount
  }

  async collectTrajectory({ prompt, env, obsQueue, actQueue }: TrajectoryContext) {
    for (let turn = 0; turn < this.#turns; turn++) {
      const again = turn === 0 ? {} : { messages: [{ role: 'user', content: '0' }] }
      await obsQueue.put({ qid: prompt.qid, ...again })
      const { outputs } = await actQueue.get()
      const { reward } = await env.step([prompt.qid, outputs])
      if ((reward as readonly number[])[0] === 1) return { reward: this.#discount ** turn }
    }
    return { reward: 0 }
  }
}
registerAgent('multi-turn', MultiTurnAgent)
const closed: string[] = []
registerEnvironment('digits', ({ right }: { right: string }) => ({
  reset: () => ({ observation: null }),
  step: async ([qid, answers]: readonly [qid: string, answers: readonly string[]]) => {
    const rewards = answers.map((answer) => Number(answer === right.repeat(Number(qid) + 1)))
    return { observation: null, reward: rewards, terminated: true, truncated: false }
  },
  close: () => void closed.push(right),
}))

const examples = [{ prompt: '1' }, { prompt: '2' }]
const options: AgentEnvironmentOptions = {
  ...{ agent: { type: 'multi-turn', args: { discount: 0.5 } }, env: { type: 'digits', args: { right: '7' } } },
  ...{ examples, maxTurns: 3, maxTokens: 4, alphabet: '0123456789' },
}

/** Conversations whose model says a 7 more in each turn than in the one before. */
async function conversed(given: Partial<AgentEnvironmentOptions> = {}, count = 2) {
  const environment = agentEnvironment({ ...options, ...given })
  const tokenizer = byteTokenizer({ alphabet: '0123456789' })
  const [seven, end] = [tokenizer.encode('7')[0]!, tokenizer.endIds[0]!]
  const turns = new Map<number, number>()
  const engine = scriptedEngine((turn, _, step) => {
    const number = step === 0 ? (turns.get(turn.key[0]) ?? -1) + 1 : turns.get(turn.key[0])!
    turns.set(turn.key[0], number)
    return { token: step <= number ? seven : end, logprob: -1 }
  })
  return talkUntil(await talkWorld({ environment, engine, numLanes: 2, replySeconds: 20 }), count)
}

describe('an agent with queues', () => {
  test('converses until it is right, in an environment of its own', async () => {
    closed.length = 0
    const rows = await conversed()
    expect(rows.map(({ promptId, turns, reward }) => [promptId, turns, reward]).sort()).toEqual([
      [0, 1, 1],
      [1, 2, 0.5],
    ])
    for (const { lossMask } of rows) expect(lossMask.includes(0) && lossMask.includes(1)).toBe(true)
    expect(closed).toEqual(['7', '7', '7']) // One that only showed that it can be made.
  })

  test.each([
    ['throws', async () => Promise.reject(new Error('lost')), /lost/],
    ['asks about another prompt', ({ obsQueue }: TrajectoryContext) => obsQueue.put({ qid: 'x' }), /qid: got "x"/],
    [
      'waits for what it has not asked',
      ({ actQueue }: TrajectoryContext) => actQueue.get(),
      /no observation before it/,
    ],
    [
      'says something before the prompt',
      async ({ prompt: { qid }, obsQueue, actQueue }: TrajectoryContext) => {
        await obsQueue.put({ qid, messages: [{ role: 'user', content: '1' }] })
        await actQueue.get()
      },
      /messages before the first turn/,
    ],
    ['is told nothing by its environment', ({ env }: TrajectoryContext) => env.reset(), /no answer in 0.01 s/],
    ['is told an array', ({ env }: TrajectoryContext) => env.step(1), /got an array/],
  ])('that %s has no reward, and the reason', async (name, collectTrajectory, message) => {
    registerAgent(name, () => ({ collectTrajectory }) as never)
    registerEnvironment(name, () => ({ reset: () => new Promise(() => {}), step: () => [1] as never }))
    const [row] = await conversed({ agent: { type: name }, env: { type: name }, stepSeconds: 0.01 }, 1)
    expect([row!.reward, row!.error]).toEqual([null, expect.stringMatching(message)])
  })

  test('is found by its name', () => {
    expect(makeAgent({ type: 'multi-turn', args: {} })).toBeInstanceOf(MultiTurnAgent)
    expect(() => makeAgent({ type: 'multi-trun' })).toThrow(/agent: got "multi-trun".*did you mean "multi-turn"/)
    expect(() => registerAgent('multi-turn', MultiTurnAgent)).toThrow(/a second one/)
    registerAgent('none', () => ({}) as never)
    expect(() => agentEnvironment({ ...options, agent: { type: 'none' } })).toThrow(/collectTrajectory: got undefined/)
    expect(() => agentEnvironment({ ...options, env: { type: 'digit' } })).toThrow(/did you mean "digits"/)
    expect(() => agentEnvironment({ ...options, examples: [] })).toThrow(/examples: got \[\]/)
    expect(() => agentEnvironment({ ...options, turns: 3 } as never)).toThrow(/"turns"/)
  })
})
