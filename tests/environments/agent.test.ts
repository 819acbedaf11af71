import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { rl } from '../../src/algorithms/tokens/rl.ts'
import { scriptedEngine } from '../../src/engines/scripted.ts'
import { mathMultiTurn } from '../../src/environments/tasks/math-multi-turn.ts'
import type { Message, Reply, TextEnvironmentDefinition, Turn } from '../../src/environments/text.ts'
import { type AgentModel, defineAgent, type ModelAnswer } from '../../src/environments/tools/agent.ts'
import { callTool, defineTool } from '../../src/environments/tools/tool.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { tick } from '../../src/systems/tick.ts'
import { createTrainer } from '../../src/training/loop/trainer.ts'
import { evaluateText } from '../../src/training/text/evaluate/evaluate.ts'
import { cancelReplies } from '../../src/world/conversations/cohort.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'
import { temporaryFolder } from '../support/temporary.ts'

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
    const reply = await environment.respond(turnOf(environment, index, messages, completion, turn), signal())
    replies.push(reply)
    messages = [...messages, { role: 'assistant', content: completion }, ...(reply.messages ?? [])]
  }
  return replies
}

const signal = () => new AbortController().signal

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
    const past = (turn = 2) => {
      const completion = ['4', '7', '9'][turn]!
      return { completion, raw: completion, stopReason: 'stop' as const, ids: [], logprobs: [], versions: [] }
    }
    const last = { ...turnOf(resumed, 0, saved, '9', 2), past }
    expect(await resumed.respond(last, signal())).toEqual({
      reward: 3,
      components: { sum: 20 },
    })
    const other = agent(async ({ generate }) => ({ reward: Number((await generate()).completion) }))
    await expect(resumed.respond(turnOf(resumed, 0, saved.slice(0, -1), '9', 2), signal())).rejects.toThrow(
      'agent text/agent: got turn 2 without the earlier turns, expected a turn with past',
    )
    await expect(other.respond(last, signal())).rejects.toThrow(
      'agent text/agent: got an agent that ended after turn 0 when it was begun again, expected the same calls as before',
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
      'generate of agent text/agent: got a call before the last one has settled, expected one call at a time',
    ],
    [
      'another answer before the first',
      async ({ generate }) => ({ reward: (await generate({ again: true })).turn }),
      'generate of agent text/agent: got again before the first turn, expected a turn that answers the prompt',
    ],
    [
      'a budget of the first turn, which is over when the agent begins',
      async ({ generate }) => ({ reward: (await generate({ maxTokens: 2 })).turn }),
      "generate of agent text/agent: got maxTokens of the first turn, expected the example's maxTokens",
    ],
    [
      'an answer that stands before there is one',
      async ({ generate }) => ({ reward: (await generate({ stands: 0 })).turn }),
      'generate of agent text/agent: got stands before the first turn, expected a turn that answers the prompt',
    ],
    [
      'a reward of a turn before the first',
      async ({ generate }) => ({ reward: (await generate({ reward: 1 })).turn }),
      'generate of agent text/agent: got a reward before the first turn, expected a reward after the first turn',
    ],
    [
      'another answer, to one that stands',
      async ({ generate }) => {
        await generate()
        return { reward: (await generate({ stands: 0, again: true })).turn }
      },
      'generate of agent text/agent: got stands and again, expected one of them',
    ],
    [
      'words and another answer to the ones before',
      async ({ generate }) => {
        await generate()
        return { reward: (await generate({ messages: [user('1')], again: true })).turn }
      },
      'generate of agent text/agent: got messages and again, expected one of them',
    ],
    [
      'no answers',
      async ({ generateSeveral }) => ({ reward: (await generateSeveral(0)).length }),
      'generateSeveral of agent text/agent: got 0, expected a whole number ≥ 1',
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

describe('Agents that go wrong in a world', () => {
  /** What becomes of five conversations of such an agent, by prompt. */
  const talkWrong = async (run: AgentModel['run'], options: object = {}) => {
    const world = await talkWorld({ environment: agent(run), cutTurn: 'continue', replySeconds: 0.05, ...options })
    const rows = await talkUntil(world, 5)
    return rows.toSorted((a, b) => a.promptId - b.promptId).map(({ reward, error }) => reward ?? error)
  }

  test('because one never returns: its reply is late, it is told so, and others go on', async () => {
    const stopped: number[] = []
    const run: AgentModel['run'] = async ({ exampleIndex, generate, signal }) => {
      await generate()
      if (exampleIndex === 2) {
        signal.addEventListener('abort', () => stopped.push(exampleIndex))
        await new Promise(() => {})
      }
      return { reward: exampleIndex }
    }
    expect(await talkWrong(run)).toEqual([0, 1, 'no reply within 0.05 s', 3, 4])
    expect(stopped).toEqual([2])
  })

  test('because one throws before its first call, or after one', async () => {
    const run: AgentModel['run'] = async ({ exampleIndex, generate }) => {
      if (exampleIndex === 0) throw new Error('no prompt')
      await generate()
      if (exampleIndex === 1) throw new Error('no tool')
      return { reward: exampleIndex }
    }
    expect(await talkWrong(run)).toEqual(['no prompt', 'no tool', 2, 3, 4])
  })

  test('because one calls twice at once, or says what is no message, or returns what is no result', async () => {
    const run: AgentModel['run'] = async ({ exampleIndex, generate }) => {
      await generate()
      if (exampleIndex === 0) {
        await Promise.all([generate({ messages: [user('1')] }), generate({ messages: [user('2')] })])
      }
      if (exampleIndex === 1) await generate({ messages: [{ role: 'user', content: 3 as never }] })
      if (exampleIndex === 2) await generate({ messages: [user('1')], maxTokens: 0 })
      return exampleIndex === 3 ? ('right' as never) : { reward: exampleIndex }
    }
    const told = await talkWrong(run)
    expect(told.slice(3)).toEqual(['got reply right, expected an object', 4])
    expect(told[0]).toContain('got a call before the last one has settled')
    expect(told[1]).toContain('expected a list of { role, content }')
    expect(told[2]).toBe('got maxTokens 0, expected a whole number ≥ 1')
  })
})

describe("An agent's calls in a world", () => {
  test('give the ids that were sampled, their log-probabilities and the version of the weights', async () => {
    const answers: ModelAnswer[][] = []
    const environment = agent(async ({ exampleIndex, generate }) => {
      const said = [await generate()]
      said.push(await generate({ messages: [user('0')] }))
      answers[exampleIndex] = said
      return { reward: 0 }
    })
    const rows = await talkUntil(await talkWorld({ environment, cutTurn: 'continue' }), 5)
    for (const { promptId, token, lossMask, logprob, version, turn } of rows) {
      for (const [number, { ids, logprobs, versions }] of answers[promptId]!.entries()) {
        const ofTurn = <T>(column: readonly T[]) => column.filter((_, t) => turn[t] === number && lossMask[t] === 1)
        expect(ids.length).toBeGreaterThan(0)
        expect([ids, logprobs, versions]).toEqual([ofTurn(token), ofTurn(logprob), ofTurn(version)])
      }
    }
  })

  test('go on from an answer that stands to several others, which have its budget and not its reward', async () => {
    const said: number[][] = []
    const environment = agent(
      async ({ exampleIndex, generateSeveral }) => {
        const [first] = await generateSeveral(2)
        const call = { messages: [user('5')], stands: first!.turn, reward: 3, maxTokens: 1 }
        const others = await generateSeveral(2, call)
        said[exampleIndex] = others.map(({ ids }) => ids.length)
        return { reward: 1 }
      },
      { answersAgain: true },
    )
    const world = await talkWorld({ environment, cutTurn: 'continue', rewardReduction: 'sum' })
    const rows = (await talkUntil(world, 5)).filter(({ segment }) => segment === 0)
    for (const { turnReward, reward } of rows) expect([Array.from(turnReward!), reward]).toEqual([[0, 3, 0, 1], 4])
    expect(said).toEqual(Array(5).fill([1, 1]))
  })

  test('say why a turn ended: its budget, or the context', async () => {
    const reasons: string[] = []
    const environment = agent(
      async ({ generate }) => {
        const { stopReason } = await generate()
        reasons.push(stopReason)
        return { reward: 0 }
      },
      { maxTokens: 60 },
    )
    const engine = scriptedEngine(() => ({ token: 1, logprob: -1 }))
    await talkUntil(await talkWorld({ environment, engine, numLanes: 1 }), 1)
    const policy = languageModel({ width: 8, layers: 1, heads: 2, context: 8 })
    await talkUntil(await talkWorld({ environment, engine, policy, numLanes: 1 }), 1)
    expect(reasons).toEqual(['length', 'context'])
  })

  test('have a budget each', async () => {
    const environment = agent(
      async ({ generate }) => {
        await generate()
        await generate({ messages: [user('0')], maxTokens: 7 })
        const { ids } = await generate({ messages: [user('1')] })
        return { reward: ids.length }
      },
      { example: (index) => ({ prompt: String(index), maxTokens: 2 }) },
    )
    const rows = await talkUntil(await talkWorld({ environment, cutTurn: 'continue' }), 20)
    const lengths = [0, 1, 2].map((number) =>
      Math.max(...rows.map(({ turn, lossMask }) => turn.filter((each, t) => each === number && lossMask[t]).length)),
    )
    expect(lengths).toEqual([2, 7, 2])
  })

  let begun = 0
  /** Takes three answers, goes on from the second one, and rewards its length and how much was said before the turns after it. */
  const choosing: AgentModel['run'] = async ({ generate, generateSeveral }) => {
    begun++
    const answers = await generateSeveral(3)
    const chosen = answers[1]!
    const last = await generate({ messages: [user('5')], stands: chosen.turn })
    const end = await generate({ messages: [user('6')] })
    return { reward: chosen.ids.length + last.messages.length / 100 + end.messages.length / 1000 }
  }

  test('may have several answers: each is a row, and the one that stands is gone on from', async () => {
    begun = 0
    const environment = agent(choosing, { answersAgain: true, maxTurns: 5 })
    const world = await talkWorld({ environment, cutTurn: 'continue', numLanes: 3 })
    const rows = await talkUntil(world, 6)
    const { tokenizer } = world.cohort()
    const conversations = rows.filter(({ segment }) => segment === 0)
    expect(conversations).toHaveLength(6)
    expect(begun).toBe(6)
    for (const { group } of conversations) {
      const all = rows.filter((row) => row.group === group)
      expect(all.map(({ turns }) => turns)).toEqual([1, 1, 1, 2])
      expect(all.map(({ segment }) => segment)).toEqual([0, 1, 2, 3])
      const [first, second, , last] = all
      const said = ({ token, lossMask }: (typeof all)[number]) => token.filter((_, t) => lossMask[t] === 1)
      const heard = ({ token, lossMask }: (typeof all)[number]) => token.filter((_, t) => lossMask[t] === 0)
      for (const row of all.slice(0, 3)) expect(heard(row)).toEqual(heard(first!))
      const before = [...second!.token, ...tokenizer.encode('5')]
      expect(last!.token.slice(0, before.length)).toEqual(before)
      expect(heard(last!)).toEqual([...before, ...tokenizer.encode('6')])
      expect(last!.reward).toBeCloseTo(said(second!).length + 0.03 + 0.005, 12)
      expect(new Set(all.map(({ reward }) => reward)).size).toBe(1)
    }
    const answers = new Set(rows.map(({ token }) => token.join()))
    expect(answers.size).toBeGreaterThan(conversations.length * 2) // Each draws numbers of its own.
  })

  test('are refused where the answer that is to stand answers something else', async () => {
    const environment = agent(async ({ generate }) => {
      await generate()
      await generate({ messages: [user('5')] })
      await generate({ messages: [user('6')], stands: 0 })
      return { reward: 1 }
    })
    const [row] = await talkUntil(await talkWorld({ environment, cutTurn: 'continue' }), 1)
    expect([row!.reward, row!.error]).toEqual([null, 'turn 0, which answers another prompt than the last turn'])
    // The first answer is longer than all that stands when the second is gone on from.
    const engine = scriptedEngine((turn, ids) => {
      const isFirst = turn.ids.length === 1 && turn.key[2] === 0
      return { token: ids.length < (isFirst ? 8 : turn.ids.length + 1) ? 1 : 10, logprob: -1 }
    })
    const stale = agent(
      async ({ generate, generateSeveral }) => {
        await generateSeveral(2)
        await generate({ messages: [user('5')] })
        return { reward: (await generate({ messages: [user('6')], stands: 0 })).turn }
      },
      { answersAgain: true, maxTokens: 9 },
    )
    const [third] = await talkUntil(await talkWorld({ environment: stale, engine, numLanes: 1 }), 1)
    expect([third!.reward, third!.error]).toEqual([null, 'turn 0, which answers another prompt than the last turn'])
    const undeclared = agent(choosing)
    const [other] = await talkUntil(await talkWorld({ environment: undeclared, cutTurn: 'continue' }), 1)
    expect([other!.reward, other!.error]).toEqual([null, 'again, which requires answersAgain of text/agent'])
  })

  test('are rows of their own where a cohort branches, and say the same whether or not', async () => {
    const environment = agent(async ({ generate }) => {
      await generate()
      await generate({ messages: [user('5')] })
      await generate({ messages: [user('6')] })
      return { reward: 1 }
    })
    const talk = async (segmentation: 'interleaved' | 'branching') =>
      talkUntil(await talkWorld({ environment, cutTurn: 'continue', explore: false, segmentation }), 5)
    const [one, many] = [await talk('interleaved'), await talk('branching')]
    expect(many).toHaveLength(15)
    for (const [i, { token, lossMask, logprob, turn, turns }] of one.entries()) {
      expect(turns).toBe(3)
      for (const row of many.slice(3 * i, 3 * i + 3)) {
        const number = row.segment!
        const end = turn.lastIndexOf(number) + 1
        expect(row.token).toEqual(token.slice(0, end))
        expect(row.lossMask).toEqual(lossMask.slice(0, end).map((flag, t) => (turn[t] === number ? flag : 0)))
        for (const [t, flag] of row.lossMask.entries())
          if (flag === 1) expect(row.logprob[t]).toBeCloseTo(logprob[t]!, 4)
      }
    }
  })

  test("are learned from as rows of their own, where a cohort branches: each has its conversation's advantage", async () => {
    const environment = agent(async ({ exampleIndex, generate }) => {
      await generate()
      await generate({ messages: [user('5')] })
      const { completion } = await generate({ messages: [user('6')] })
      return { reward: completion.length + exampleIndex / 10 }
    })
    const options = { environment, cutTurn: 'continue' as const, groupSize: 4, segmentation: 'branching' as const }
    const world = await talkWorld(options)
    const trainer = createTrainer(world, rl({ updates: 2, groupsPerUpdate: 3, groupSize: 4 }))
    const before = Float32Array.from(world.cohort().weights)
    for await (const { rl } of trainer.updates()) {
      expect([rl!.trajectories, rl!.rewrites]).toEqual([12, 24])
      expect(world.cohort().trajectories.count).toBe(36)
    }
    expect(world.cohort().weights).not.toEqual(before)
  })

  test('are begun anew where nobody waited for them for a while', async () => {
    const tool = defineTool({
      name: 'wait',
      description: '',
      parameters: { type: 'object' },
      run: () => new Promise((resolve) => setTimeout(resolve, 20)),
    })
    const environment = agent(async ({ exampleIndex, generate, signal }) => {
      await generate()
      const { turn } = await generate({ messages: [user('5')] })
      const { isError } = await callTool([tool], { name: 'wait', arguments: {} }, signal)
      return { reward: isError ? -1 : exampleIndex + turn }
    })
    const world = await talkWorld({ environment, cutTurn: 'continue' })
    const cohort = world.cohort()
    const isSecond = (reply: unknown, n: number) => reply !== null && cohort.conversation.turn[n] === 1
    while (!cohort.pending.some(isSecond)) await tick(world)
    cancelReplies(cohort)
    for (const { promptId, reward } of await talkUntil(world, 5)) expect(reward).toBe(promptId + 1)
  })

  test('leave nothing open: what an environment holds is given back when its world is closed', async () => {
    const open: string[] = []
    const environment = agent(async ({ generate }) => ({ reward: (await generate()).turn }), {
      async open() {
        open.push('server')
        const example = () => ({ prompt: '1', answer: '2' })
        return { numExamples: 1, example, close: () => void open.pop() }
      },
    })
    const world = await talkWorld({ environment })
    await talkUntil(world, 2)
    expect(open).toEqual(['server'])
    world.close()
    expect(open).toEqual([])
    await evaluateText({ environment, policy: languageModel({ width: 8, layers: 1, heads: 2 }), episodes: 2 })
    expect(open).toEqual([])
  })

  test('go on where a run is resumed amid several answers', async () => {
    const environment = agent(choosing, { answersAgain: true, maxTurns: 5 })
    const options = { cutTurn: 'continue' as const, numLanes: 3, groupSize: 3, environment }
    const trainerOf = async () =>
      createTrainer(await talkWorld(options), rl({ updates: 1, groupsPerUpdate: 2, groupSize: 3 }))
    const whole = await trainerOf()
    for await (const _ of whole.updates());
    begun = 0
    const folder = await temporaryFolder()
    let trainer = await trainerOf()
    for (let stops = 0; trainer.progress().rlUpdates < 1; stops++) {
      const stop = new AbortController()
      const { conversation } = trainer.world.cohort()
      const turns = conversation.turn.reduce((sum, turn) => sum + turn, 0)
      for await (const _ of trainer.updates({
        signal: stopWhen(stop, () => conversation.turn.reduce((sum, turn) => sum + turn, 0) !== turns),
      }));
      if (trainer.progress().rlUpdates === 1) break
      await trainer.save(join(folder, String(stops)))
      trainer.world.close()
      trainer = await trainerOf()
      await trainer.restore(join(folder, String(stops)))
    }
    expect(begun).toBeGreaterThan(8) // Six, and those that were begun again.
    const rewardsOf = ({ world }: typeof whole) => {
      const { trajectories } = world.cohort()
      return Array.from(trajectories.order(), (i) => trajectories.row(i).reward)
    }
    expect(rewardsOf(trainer)).toEqual(rewardsOf(whole))
    expect(trainer.world.cohort().weights).toEqual(whole.world.cohort().weights)
  })
})

/** A signal that is aborted when something has become true: a trainer asks after each tick. */
function stopWhen(stop: AbortController, isTime: () => boolean): AbortSignal {
  return new Proxy(stop.signal, { get: (signal, name) => (name === 'aborted' ? isTime() : Reflect.get(signal, name)) })
}

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
