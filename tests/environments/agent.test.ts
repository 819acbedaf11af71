import { describe, expect, test } from 'vitest'
import { type AgentModel, defineAgent } from '../../src/environments/agent.ts'
import { mathMultiTurn } from '../../src/environments/tasks/math-multi-turn.ts'
import type { Message, Reply, TextEnvironmentDefinition, Turn } from '../../src/environments/text.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'

const user = (content: string): Message => ({ role: 'user', content })

/** An agent on digits. */
function agent(run: AgentModel['run'], model: Partial<AgentModel> = {}): TextEnvironmentDefinition {
  return defineAgent({
    id: 'text/agent',
    settings: {},
    make: () => ({
      numExamples: 5,
      maxTurns: 4,
      maxTokens: 3,
      alphabet: '0123456789',
      example: (index) => ({ prompt: String(index), answer: String(index + 1) }),
      run,
      ...model,
    }),
  })()
}

/** Talks with an environment as a cohort does; each answer is a turn. Returns its replies. */
async function talk(environment: TextEnvironmentDefinition, answers: readonly string[], index = 0): Promise<Reply[]> {
  const example = environment.example(index)
  let messages: readonly Message[] = [user(example.prompt as string)]
  const replies: Reply[] = []
  for (const [turn, completion] of answers.entries()) {
    const reply = await environment.respond(turnOf(environment, index, messages, completion, turn), SIGNAL)
    replies.push(reply)
    messages = [...messages, { role: 'assistant', content: completion }, ...(reply.messages ?? [])]
  }
  return replies
}

const SIGNAL = new AbortController().signal

function turnOf(
  environment: TextEnvironmentDefinition,
  exampleIndex: number,
  messages: readonly Message[],
  completion: string,
  turn: number,
): Turn {
  const example = environment.example(exampleIndex)
  return { example, exampleIndex, messages, completion, raw: completion, turn, stopReason: 'stop' }
}

/** Says how often it was called, in all, and ends when the answer is 9. */
const counting: AgentModel['run'] = async ({ generate }) => {
  let turn = await generate()
  const heard = [turn.completion]
  while (turn.completion !== '9') {
    turn = await generate({ messages: [user(String(heard.length))], reward: heard.length / 10 })
    heard.push(turn.completion)
  }
  return { reward: heard.length, components: { sum: heard.reduce((sum, each) => sum + Number(each), 0) } }
}

describe('An agent', () => {
  test('converses by calling the model, and says what came of it', async () => {
    expect(await talk(agent(counting), ['4', '7', '9'])).toEqual([
      { reward: 0.1, messages: [user('1')] },
      { reward: 0.2, messages: [user('2')] },
      { reward: 3, components: { sum: 20 } },
    ])
  })

  test('does not hear of others who talk at the same time', async () => {
    const environment = agent(counting)
    const [one, two] = await Promise.all([
      talk(environment, ['1', '9']),
      talk(environment, ['2', '3', '9'], 1),
      talk(environment, ['5']),
    ])
    expect(one.at(-1)).toEqual({ reward: 2, components: { sum: 10 } })
    expect(two.at(-1)).toEqual({ reward: 3, components: { sum: 14 } })
  })

  test('is begun again with the answers that it had, where nobody remembers it', async () => {
    const first = agent(counting)
    const heard = await talk(first, ['4', '7'])
    const before = [user('0'), { role: 'assistant', content: '4' }, ...heard[0]!.messages!]
    const all = [...before, { role: 'assistant', content: '7' }, ...heard[1]!.messages!]
    const saved = JSON.parse(JSON.stringify(all)) as Message[]
    const resumed = agent(counting)
    expect(await resumed.respond(turnOf(resumed, 0, saved, '9', 2), SIGNAL)).toEqual({
      reward: 3,
      components: { sum: 20 },
    })
    const other = agent(async ({ generate }) => ({ reward: Number((await generate()).completion) }))
    await expect(other.respond(turnOf(other, 0, saved, '9', 2), SIGNAL)).rejects.toThrow(
      'agent text/agent: got an agent that ended after turn 0 when it was begun again, expected one that does the same again',
    )
  })

  test('fails with what it throws, before a turn and after one', async () => {
    const early = agent(async () => {
      throw new Error('no tool')
    })
    await expect(talk(early, ['1'])).rejects.toThrow('no tool')
    const late = agent(async ({ generate }) => {
      await generate()
      await generate({ messages: [user('1')] })
      throw new Error('the tool is gone')
    })
    await expect(talk(late, ['1', '2'])).rejects.toThrow('the tool is gone')
  })

  test.each<[string, AgentModel['run'], string]>([
    [
      'words before the first turn',
      async ({ generate }) => ({ reward: (await generate({ messages: [user('1')] })).turn }),
      'generate of agent text/agent: got messages before the first turn, expected none: it answers the prompt',
    ],
    [
      'a later turn without words',
      async ({ generate }) => {
        await generate()
        return { reward: (await generate()).turn }
      },
      'generate of agent text/agent: got no message, expected at least one that the model answers',
    ],
    [
      'two calls at once',
      async ({ generate }) => {
        await generate()
        await Promise.all([generate({ messages: [user('1')] }), generate({ messages: [user('2')] })])
        return { reward: 0 }
      },
      'generate of agent text/agent: got a call before the last one has settled, expected one after another',
    ],
  ])('is told of %s', async (_, run, message) => {
    const said: unknown[] = []
    const environment = agent(async (context) => {
      try {
        return await run(context)
      } catch (error) {
        said.push((error as Error).message)
        throw error
      }
    })
    await Promise.race([
      talk(environment, ['1', '2']).catch(() => {}),
      new Promise((resolve) => setTimeout(resolve, 20)),
    ])
    expect(said).toEqual([message])
  })
})

describe('Agents in a world', () => {
  /** Waits for a while between turns, each for one of its own, and rewards long answers. */
  const waiting: AgentModel['run'] = async ({ exampleIndex, generate }) => {
    let turn = await generate()
    let length = turn.completion.length
    for (let i = 0; i < 2; i++) {
      await new Promise((resolve) => setTimeout(resolve, ((7 * exampleIndex + 3 * i) % 5) + (i === 0 ? 1 : 0)))
      turn = await generate({ messages: [user(String(i))] })
      length += turn.completion.length
    }
    return { reward: length }
  }

  const talkOf = async (numLanes: number, count: number) => {
    const environment = agent(waiting, { numExamples: 50 })
    const world = await talkWorld({ environment, numLanes, cutTurn: 'continue' })
    return { rows: await talkUntil(world, count), world }
  }

  test('are as many as there are lanes, each with its own pace, and converse as they would one at a time', async () => {
    const together = await talkOf(64, 64)
    const alone = await talkOf(1, 64)
    expect(together.rows).toEqual(alone.rows)
    expect(new Set(together.rows.map(({ turns }) => turns))).toEqual(new Set([3]))
    for (const { reward, lossMask, token } of together.rows) {
      expect(reward).toBeGreaterThanOrEqual(0)
      expect(lossMask.reduce((sum, flag) => sum + flag, 0)).toBeLessThan(token.length)
    }
  })

  test('that fail leave a reward that is unknown, and why; others go on', async () => {
    const environment = agent(async ({ exampleIndex, generate }) => {
      await generate()
      if (exampleIndex === 1) throw new Error('no such tool')
      return { reward: exampleIndex }
    })
    const world = await talkWorld({ environment, cutTurn: 'continue' })
    const rows = await talkUntil(world, 10)
    for (const { promptId, reward, error } of rows) {
      expect([reward, error]).toEqual(promptId === 1 ? [null, 'no such tool'] : [promptId, null])
    }
  })
})

describe('text/math-multi-turn', () => {
  const environment = mathMultiTurn({ attempts: 2, turnDiscount: 0.5 })
  const { answer } = environment.example(0)

  test('stops at the right answer, which is worth less after wrong ones', async () => {
    expect(await talk(environment, [answer!])).toEqual([{ reward: 1, components: { right: 1, turns: 1 } }])
    expect((await talk(environment, ['x', answer!])).at(-1)).toEqual({
      reward: 0.5,
      components: { right: 1, turns: 2 },
    })
    expect((await talk(mathMultiTurn(), ['x', 'y', answer!])).at(-1)!.reward).toBeCloseTo(0.8 ** 2, 12)
  })

  test('hears that it is wrong, and is worth nothing after its last attempt', async () => {
    const replies = await talk(environment, ['x', 'y'])
    expect(replies.map(({ messages }) => messages)).toEqual([[user('?')], undefined])
    expect(replies.at(-1)).toEqual({ reward: 0, components: { right: 0, turns: 2 } })
  })
})
