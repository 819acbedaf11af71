/** Turns that are drawn, or ended, in a way of their own: what the engine is told, what is recorded and what is learned. */
import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { rl } from '../../src/algorithms/tokens/rl.ts'
import { defineEngine } from '../../src/engines/define-engine.ts'
import type { TurnRequest } from '../../src/engines/engine.ts'
import type { TurnSampling } from '../../src/environments/text.ts'
import { type AgentModel, defineAgent } from '../../src/environments/tools/agent.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { createTrainer } from '../../src/training/loop/trainer.ts'
import { evaluateText } from '../../src/training/text/evaluate/evaluate.ts'
import { createWorld } from '../../src/world/world.ts'
import { digits, talkUntil, talkWorld } from '../support/conversations.ts'
import { temporaryFolder } from '../support/temporary.ts'

const more = [{ role: 'user', content: '5' }]

/** An agent of two turns: of the first the example says how it is drawn, of the second the agent. */
function agent(first: TurnSampling | undefined, second: TurnSampling, model: Partial<AgentModel> = {}) {
  return defineAgent({
    id: 'text/agent',
    settings: {},
    make: () => ({
      numExamples: 5,
      maxTurns: 3,
      maxTokens: 4,
      alphabet: '0123456789',
      example: (index) => ({ prompt: String(index), ...(first === undefined ? {} : { sampling: first }) }),
      async run({ generate }) {
        await generate()
        const { ids } = await generate({ messages: more, ...second })
        return { reward: ids.filter((id) => id % 2 === 0).length }
      },
      ...model,
    }),
  })()
}

describe('the engine', () => {
  const seen: Pick<TurnRequest, 'sampling' | 'stopStrings'>[] = []
  const engine = defineEngine('watched', ({ tokenizer }) => ({
    logprobs: 'candidates',
    advance(turns) {
      for (const turn of [...turns]) {
        const { sampling, stopStrings } = turn.request
        seen.push({ sampling, stopStrings })
        turn.add(tokenizer.endIds[0]!, -0.5)
      }
    },
  }))
  const own = { temperature: 0.9, topK: 0, topP: 1, minP: 0 }

  test('is told of each turn how it is drawn, and of others what the cohort says', async () => {
    seen.length = 0
    const environment = agent(
      { topP: 0.5 },
      { temperature: 0.25, topK: 3, minP: 0.1, stopStrings: ['7'] },
      {
        async run({ generate, generateSeveral }) {
          await generate()
          await generate({ messages: more, temperature: 0.25, topK: 3, minP: 0.1, stopStrings: ['7'] })
          await generateSeveral(1, { messages: more })
          return { reward: 1 }
        },
      },
    )
    const options = { environment, engine, numLanes: 1, sampling: { temperature: 0.9 }, stopStrings: ['9'] }
    await talkUntil(await talkWorld(options), 1)
    expect(seen).toEqual([
      { sampling: { ...own, topP: 0.5 }, stopStrings: ['9'] },
      { sampling: { temperature: 0.25, topK: 3, topP: 1, minP: 0.1 }, stopStrings: ['7'] },
      { sampling: own, stopStrings: ['9'] },
    ])
  })

  test('is asked for every answer of one call as the call says', async () => {
    seen.length = 0
    const environment = agent(
      undefined,
      {},
      {
        answersAgain: true,
        async run({ generate, generateSeveral }) {
          await generate()
          await generateSeveral(2, { messages: more, temperature: 2 })
          return { reward: 1 }
        },
      },
    )
    await talkUntil(await talkWorld({ environment, engine, numLanes: 1 }), 1)
    expect(seen.map(({ sampling }) => sampling.temperature)).toEqual([1, 2, 2])
  })
})

test('a turn of another distribution is recorded with its log-probabilities and versions, and is not to be learned', async () => {
  // With topK 1 each token is certain; of the hot turn nothing is left out.
  const environment = agent({ topK: 1 }, { temperature: 3 })
  const world = await talkWorld({ environment, numLanes: 1, cutTurn: 'continue' })
  const [row] = await talkUntil(world, 1)
  const { token, lossMask, logprob, version, turn, candidateCount } = row!
  expect(lossMask.every((each) => each === 0)).toBe(true)
  const said = token.map((_, t) => version[t] !== -1)
  const ofTurn = (number: number) => token.flatMap((_, t) => (said[t] && turn[t] === number ? [t] : []))
  expect(ofTurn(0).length).toBeGreaterThan(0)
  expect(ofTurn(1).length).toBeGreaterThan(0)
  for (const t of ofTurn(0)) expect([logprob[t], candidateCount[t]]).toEqual([0, -1])
  for (const t of ofTurn(1)) {
    expect(logprob[t]).toBeLessThan(0)
    expect(candidateCount[t] ?? 0).toBe(0)
  }
  // The prompt, and what the agent says, have neither.
  for (const [t, isSaid] of said.entries()) if (!isSaid) expect(logprob[t]).toBeNaN()
})

test('a turn that only ends otherwise, or asks for what the cohort has, is learned', async () => {
  const environment = agent({ temperature: 1 }, { stopStrings: ['0', '1', '2', '3', '4'] })
  const rows = await talkUntil(await talkWorld({ environment, numLanes: 4 }), 12)
  for (const { lossMask, version } of rows) {
    expect(lossMask).toEqual(version.map((each) => (each === -1 ? 0 : 1)))
  }
})

test('an agent hears its turn whole, also one that is not learned, and why each ended', async () => {
  const heard: unknown[] = []
  const environment = agent(
    { temperature: 2, stopStrings: ['1', '3', '5', '7', '9'] },
    {},
    {
      async run({ generate }) {
        const first = await generate()
        const second = await generate({ messages: more })
        heard.push([first.ids.length, first.logprobs.length, second.ids.length > 0])
        const isOdd = /[13579]/.test(first.raw)
        expect(first.stopReason).toBe(isOdd || first.ids.length < 4 ? 'stop' : 'length')
        return { reward: 1 }
      },
    },
  )
  await talkUntil(await talkWorld({ environment, numLanes: 8, cutTurn: 'continue' }), 30)
  expect(heard.length).toBeGreaterThan(10)
  for (const [ids, logprobs, isSaid] of heard as [number, number, boolean][]) {
    expect(ids).toBeGreaterThan(0)
    expect(logprobs).toBe(ids)
    expect(isSaid).toBe(true)
  }
})

describe('a training', () => {
  const policy = languageModel({ width: 64, layers: 2 }) // So large that threads share the tokens of a tick.
  const settings = { updates: 3, groupsPerUpdate: 4, groupSize: 8, learningRate: 1e-2 } as const

  async function train(environment: ReturnType<typeof agent>, threads = 1) {
    const options = { environment, policy, numLanes: 32, seed: 2, groupSize: 8, cutTurn: 'continue' } as const
    const world = await createWorld(options)
    const trainer = createTrainer(world, rl({ ...settings }), { threads })
    const figures = []
    for await (const { rl: told } of trainer.updates()) {
      figures.push({ untrained: told!.untrainedTokens, sampled: told!.sampledTokens })
    }
    const weights = createHash('sha256').update(world.cohort().weights).digest('hex')
    trainer.close()
    return { figures, weights }
  }

  test('counts the tokens that it does not learn, and any number of threads leaves the same bits', async () => {
    const hot = await train(agent(undefined, { temperature: 2 }))
    for (const { untrained, sampled } of hot.figures) {
      expect(untrained).toBeGreaterThan(0)
      expect(untrained).toBeLessThan(sampled)
    }
    expect(await train(agent(undefined, { temperature: 2 }), 2)).toEqual(hot)
    const plain = await train(agent(undefined, {}))
    expect(plain.figures.every(({ untrained }) => untrained === 0)).toBe(true)
    expect(plain.weights).not.toBe(hot.weights)
  })

  test('of which no token is to be learned is an error', async () => {
    await expect(train(agent({ temperature: 2 }, { temperature: 2 }))).rejects.toThrow(
      /text\/agent, update 1: got \d+ tokens, all of turns sampled from another distribution than the trained one, expected some tokens from the trained distribution/,
    )
  })

  test('goes on to the same bits from a checkpoint amid such a turn', async () => {
    const begin = async () => {
      const environment = agent({ topK: 2 }, { temperature: 2, stopStrings: ['3', '4'] }, { maxTokens: 8 })
      const mixed = {
        ...environment,
        example: (index: number) => ({ prompt: String(index), ...(index % 2 === 0 ? { sampling: { topK: 2 } } : {}) }),
      }
      const options = { environment: mixed, policy, numLanes: 6, seed: 2, groupSize: 8, cutTurn: 'continue' } as const
      return createTrainer(await createWorld(options), rl({ ...settings }))
    }
    const finish = async (trainer: Awaited<ReturnType<typeof begin>>) => {
      for await (const _ of trainer.updates());
      const weights = createHash('sha256').update(trainer.world.cohort().weights).digest('hex')
      trainer.close()
      return weights
    }
    const whole = await finish(await begin())
    const folder = await temporaryFolder()
    const first = await begin()
    const stop = new AbortController()
    Object.defineProperty(stop.signal, 'aborted', { get: () => first.checkpointNumber >= 17 })
    for await (const _ of first.updates({ signal: stop.signal }));
    const open = first.world.cohort().drawings.filter((ofLane) => ofLane.size > 0)
    expect(open.length).toBeGreaterThan(0)
    await first.save(folder)
    first.close()
    const second = await begin()
    await second.restore(folder)
    expect(await finish(second)).toBe(whole)
  })
})

describe('what is no sampling', () => {
  test('of an example is an error before the first conversation', async () => {
    for (const [sampling, message] of [
      [{ temperature: 0 }, 'temperature: got 0, expected a number above 0'],
      [{ heat: 1 }, 'sampling: got "heat", expected one of temperature, topK, topP, minP'],
      ['hot', 'sampling of a turn: got "hot", expected an object'],
      [{ stopStrings: [''] }, 'stop string: got ""'],
    ] as const) {
      const world = talkWorld({ environment: agent(sampling as never, {}), tooLong: 'error' })
      await expect(world.then((made) => talkUntil(made, 1))).rejects.toThrow(message)
    }
  })

  test('of a reply is a reward that is unknown, with the reason', async () => {
    const environment = digits({
      maxTurns: 2,
      respond: () => ({ reward: 1, messages: more, sampling: { temperature: -1 } }),
    })
    const [row] = await talkUntil(await talkWorld({ environment, cutTurn: 'continue' }), 1)
    expect(row).toMatchObject({ reward: null, error: 'temperature: got -1, expected a number above 0' })
  })

  test('is refused in the first call of an agent, where its turn has been drawn', async () => {
    const environment = agent(
      undefined,
      {},
      {
        async run({ generate }) {
          await generate({ temperature: 0.5 })
          return { reward: 1 }
        },
      },
    )
    const { firstError } = await evaluateText({
      environment,
      policy: languageModel({ width: 8, layers: 1 }),
      episodes: 1,
    })
    expect(firstError).toBe(
      'generate of agent text/agent: got {"temperature":0.5} of the first turn, expected the example\'s sampling',
    )
  })
})
