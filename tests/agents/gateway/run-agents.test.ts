/** Agents as functions and programs, and what is learned through a gateway. */
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { realpath, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test, vi } from 'vitest'
import { grpo, Trainer as PartsTrainer } from '../../../src/entries/compat.ts'
import { type AgentRun, runAgents } from '../../../src/entries/engines.ts'
import { transformerLogprobs } from '../../../src/entries/text.ts'
import { defineTextEnvironment, type Example } from '../../../src/environments/text.ts'
import { type ConversationCohort, createTrainer, createWorld, languageModel, rl, sft } from '../../../src/index.ts'
import { TextTeam } from '../../../src/training/text/learn/team.ts'
import { opened, scriptedGateway } from '../../support/gateway.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { thorough } from '../../support/tiers.ts'

const TASKS: Example[] = [{ prompt: 'x' }, { prompt: 'y' }]
/** What a trainer's table tells of tasks; its replies are not asked for. */
const tasksEnvironment = defineTextEnvironment({
  id: 'test/tasks',
  settings: {},
  make: () => ({ numExamples: 2, example: (i) => TASKS[i]!, respond: () => ({ reward: null }) }),
})

/** Asks the model once, in OpenAI's shape. */
async function ask({ openaiUrl, apiKey, signal }: AgentRun, messages: object[], body: object = {}): Promise<string> {
  const response = await fetch(`${openaiUrl}/chat/completions`, {
    ...{ method: 'POST', signal },
    headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({ model: 'any', messages, ...body }),
  })
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
  // biome-ignore lint/suspicious/noExplicitAny: tests read what they expect.
  return ((await response.json()) as any).choices[0].message.content
}

/** How many of the answer's characters are small letters. */
async function letters(run: AgentRun) {
  const said = await ask(run, [{ role: 'user', content: String(run.task.prompt) }], { max_tokens: 6 })
  return [...said].filter((each) => /[a-z]/.test(each)).length / 6
}

const world = () =>
  createWorld({
    ...{ environment: tasksEnvironment(), numLanes: 8, groupSize: 8, seed: 1 },
    policy: languageModel({ width: 16, layers: 1, heads: 2, context: 24, anyText: true }),
  })

const digest = (weights: Float32Array) => createHash('sha256').update(weights).digest('hex')

describe('learning through a gateway', () => {
  thorough('by updates of rl: the reward rises', { timeout: 60_000 }, async () => {
    const through = await world()
    const gateway = await opened({ world: through })
    const agents = runAgents({ gateway, tasks: TASKS, run: letters })
    const settings = { updates: 20, groupsPerUpdate: 4, groupSize: 8, learningRate: 1e-2 }
    const trainer = createTrainer(through, rl({ ...settings, lossSettings: { klCoef: 0 } }), {
      collector: agents.collector,
    })
    const rewards: number[] = []
    for await (const { rl } of trainer.updates()) {
      rewards.push(rl!.reward!)
      expect([rl!.numUnknown, rl!.trajectories]).toEqual([0, 32])
    }
    expect(rewards[0]).toBeLessThan(0.4)
    expect(rewards.at(-1)).toBeGreaterThan(rewards[0]! + 0.3)
    expect(gateway.counts).toMatchObject({ calls: 640, ended: 640, retokenized: 0, open: 0 })
    trainer.close()
  })

  test('by a trainer from parts, with the same log-probabilities as its own', { timeout: 60_000 }, async () => {
    const through = await world()
    const gateway = await opened({ world: through })
    const agents = runAgents({ gateway, tasks: TASKS, run: letters, groupSize: 8 })
    const trainer = new PartsTrainer({
      ...{ model: through, advantageFn: grpo.computeAdvantages, lossFn: grpo.policyLoss },
      optimizer: { learningRate: 1e-2 },
      metricsFn: ({ logprob, oldLogprob, counted }) => ({
        most: Math.max(...logprob.map((each, t) => (counted[t] === 1 ? Math.abs(each - oldLogprob[t]!) : 0))),
      }),
    })
    const rewards: number[] = []
    for (let i = 0; i < 6; i++) {
      const rollouts = await agents.collect()
      const { version, lossMask } = rollouts.columns()
      expect(version.every((each, t) => each === (lossMask[t] === 1 ? i : -1))).toBe(true)
      const { reward, most } = await trainer.train(rollouts)
      rewards.push(reward!)
      expect(most).toBeLessThan(1e-4)
    }
    expect(agents.counts).toEqual({ ended: 96, unknown: 0, late: 0, silent: 0 })
  })
})

test('groups that the engine cannot prove are dropped, and others begin when nobody is left', async () => {
  const through = await world()
  const gateway = await opened({ world: through })
  const agents = runAgents({ gateway, tasks: TASKS, run: letters })
  const settings = { updates: 1, groupsPerUpdate: 2, groupSize: 8, lossSettings: { klCoef: 0 } }
  const trainer = createTrainer(through, rl(settings), { collector: agents.collector })
  const proofs = [false, true]
  Object.assign(through.cohort().engine, { prove: async () => proofs.shift() ?? true })
  for await (const { rl } of trainer.updates()) expect(rl!.drops).toEqual({ unproved: 2 })
  expect(agents.counts.ended).toBe(32)
  trainer.close()
})

describe('a training by agents', () => {
  const settings = { updates: 3, groupsPerUpdate: 2, groupSize: 8, learningRate: 1e-2 }

  /** Trains on agents that ask twice, with a stop string of their own. */
  async function training({ threads = 1, width = 16, maxAgents = 4, onAsked = () => {} } = {}) {
    const policy = languageModel({ width, layers: 2, heads: 2, context: 40, anyText: true })
    const through = await createWorld({ environment: tasksEnvironment(), policy, numLanes: 16, groupSize: 8, seed: 1 })
    const gateway = await opened({ world: through })
    const run = async (given: AgentRun) => {
      const messages = [{ role: 'user', content: String(given.task.prompt) }]
      const first = await ask(given, messages, { max_tokens: 5, stop: ['e', 't'] })
      onAsked()
      const second = [...messages, { role: 'assistant', content: first }, { role: 'user', content: 'z' }]
      return [...first, ...(await ask(given, second, { max_tokens: 4 }))].filter((each) => /[a-z]/.test(each)).length
    }
    const agents = runAgents({ gateway, tasks: TASKS, run, maxAgents })
    const trainer = createTrainer(through, rl({ ...settings, lossSettings: { klCoef: 0 } }), {
      ...{ collector: agents.collector, threads },
    })
    const finish = async (updates = settings.updates) => {
      let done = 0
      for await (const _ of trainer.updates()) if (++done === updates) break
      trainer.close()
      return digest(through.cohort().weights)
    }
    return { agents, gateway, trainer, finish }
  }

  test('stopped amid their sessions, saved and resumed, keeps what has ended and comes to the same bits', async () => {
    const whole = await (await training()).finish()
    const stop = new AbortController()
    let asked = 0
    const first = await training({
      onAsked: () => {
        if (++asked === 16 + 12) stop.abort() // In the second update, after agents have ended.
      },
    })
    for await (const _ of first.trainer.updates({ signal: stop.signal }));
    const folder = await temporaryFolder()
    await first.trainer.save(folder)
    first.trainer.close()
    const second = await training()
    await second.trainer.restore(folder)
    expect(second.trainer.checkpointNumber).toBe(first.trainer.checkpointNumber)
    expect(await second.finish()).toBe(whole)
    const ended = first.trainer.checkpointNumber - 1 // Agents, behind one update.
    expect([ended > 16, ended < 32]).toEqual([true, true])
    expect(second.agents.counts.ended).toBe(48 - ended)
  })

  test('waits where it asks during a step of the learner, also a supervised one by two threads, and is told which weights chose', async () => {
    const environment = defineTextEnvironment({
      id: 'test/taught',
      settings: {},
      make: () => ({
        numExamples: 1,
        example: () => ({ prompt: 'x', answer: 'yes' }),
        respond: () => ({ reward: null }),
      }),
    })
    const policy = languageModel({ width: 128, layers: 2, heads: 2, context: 40, anyText: true })
    const made = async (threads: number) => {
      const world = await createWorld({ environment: environment(), policy, numLanes: 16, seed: 1 })
      const trainer = createTrainer(world, sft({ updates: 6, batchSize: 64, learningRate: 1e-2 }), { threads })
      return { world, trainer, weights: [world.cohort().weights.slice()] }
    }
    const alone = await made(1)
    for await (const _ of alone.trainer.updates()) alone.weights.push(alone.world.cohort().weights.slice())
    const asked = await made(2)
    const gateway = await opened({ world: asked.world })
    let isOver = false
    const asking = async () => {
      const sessions = []
      while (!isOver) {
        const session = gateway.openSession()
        const run = { openaiUrl: session.openaiUrl, apiKey: session.key, signal: new AbortController().signal }
        await ask(run as AgentRun, [{ role: 'user', content: 'x' }], { max_tokens: 16 })
        sessions.push(session)
      }
      return sessions.flatMap((session) => session.end({ reward: 1 }).rows)
    }
    const all = Array.from({ length: 16 }, asking)
    await expect.poll(() => gateway.counts.calls).toBeGreaterThan(0)
    for await (const _ of asked.trainer.updates()) asked.weights.push(asked.world.cohort().weights.slice())
    isOver = true
    const rows = (await Promise.all(all)).flat()
    expect(asked.weights.map(digest)).toEqual(alone.weights.map(digest))
    const chosen = rows.map(({ token, lossMask, logprob, version }) => ({
      ids: Array.from(token),
      told: Array.from(token, (_, t) => ({ t, logprob: logprob[t]!, version: version[t]! })).filter(
        ({ t }) => lossMask[t] === 1,
      ),
    }))
    const versions = new Set(chosen.flatMap(({ told }) => told.map(({ version }) => version)))
    expect(versions.size).toBeGreaterThan(2)
    const { model } = asked.world.cohort()
    for (const version of versions) {
      // Of answers that one version chose from their first token to their last.
      const whole = chosen.filter(({ told }) => told.every((each) => each.version === version))
      const own = await transformerLogprobs({ model, weights: alone.weights[version]! }).logprobs(
        whole.map(({ ids }) => ids),
      )
      for (const [r, { told }] of whole.entries()) {
        for (const { t, logprob } of told) expect(logprob).toBeCloseTo(own[r]![t - 1]!, 4)
      }
    }
    await asked.trainer.close()
  }, 60_000)

  test('comes to the same bits by two threads, also where agents ask for stop strings', async () => {
    const begun: number[] = []
    const bits = []
    for (const threads of [1, 2]) {
      const { finish } = await training({ threads, width: 128, maxAgents: 16 })
      const together = vi.spyOn(TextTeam.prototype, 'begin')
      bits.push(await finish(2))
      begun.push(together.mock.calls.length)
      together.mockRestore()
    }
    expect(begun[0]).toBe(0)
    expect(begun[1]).toBeGreaterThan(4)
    expect(bits[1]).toBe(bits[0])
  })
})

describe('an agent of a training that', () => {
  /** One update on two groups of two agents, as `run` has them. */
  async function trained(
    run: (given: AgentRun, number: number, cohort: ConversationCohort) => Promise<number>,
    failure: 'keep' | 'drop' | 'throw',
  ) {
    const policy = languageModel({ width: 16, layers: 1, heads: 2, context: 24, anyText: true })
    const through = await createWorld({ environment: tasksEnvironment(), policy, numLanes: 4, groupSize: 2, seed: 1 })
    const gateway = await opened({ world: through })
    let begun = 0
    const agents = runAgents({
      gateway,
      tasks: TASKS,
      maxAgents: 4,
      run: (given) => run(given, begun++, through.cohort() as ConversationCohort),
    })
    const settings = { updates: 1, groupsPerUpdate: 2, groupSize: 2, failure, lossSettings: { klCoef: 0 } }
    const trainer = createTrainer(through, rl(settings), { collector: agents.collector })
    try {
      const lines = []
      for await (const { rl } of trainer.updates()) lines.push(rl!)
      return { line: lines[0]!, agents }
    } finally {
      trainer.close()
    }
  }
  /** Agents 0 and 1 have the task x, 2 and 3 the task y; number 3 asks nothing, once number 2 has ended. */
  const silentLast = () => {
    let end = () => {}
    const ended = new Promise<void>((resolve) => {
      end = resolve
    })
    return async (given: AgentRun, number: number) => {
      if (number === 3) await ended
      if (number === 3) return 1
      const reward = await letters(given)
      if (number === 2) setImmediate(end)
      return reward
    }
  }

  test('asks nothing costs its group a member where groups are kept', async () => {
    const { line } = await trained(silentLast(), 'keep')
    expect(line).toMatchObject({ drops: {}, trajectories: 3, numUnknown: 0 })
  })

  test('asks nothing costs its group, whose rows make room, where groups are dropped', async () => {
    const run = silentLast()
    let others: number[] = []
    const { line, agents } = await trained(async (given, number, { trajectories }) => {
      if (number === 4) others = Array.from(trajectories.columns().group)
      return run(given, number)
    }, 'drop')
    expect(line).toMatchObject({ drops: { failed: 1 }, trajectories: 4, numUnknown: 0 })
    expect(others).not.toContain(1)
    expect(agents.counts).toMatchObject({ ended: 6, silent: 1 })
  })

  test('is of a group that is dropped is ended', async () => {
    let why = ''
    const { line } = await trained(async (given, number) => {
      if (number === 2) return 1 // It asks nothing.
      if (number === 3) {
        await new Promise<void>((resolve) => given.signal.addEventListener('abort', () => resolve()))
        why = 'ended'
      }
      return letters(given)
    }, 'drop')
    expect([line.drops, line.trajectories, why]).toEqual([{ failed: 1 }, 4, 'ended'])
  })

  test('asks nothing ends the training where that was chosen', async () => {
    await expect(trained(silentLast(), 'throw')).rejects.toThrow(
      'group 1, member 1: got the agent did not ask the model, expected conversations that succeed, or rl.failure keep or drop',
    )
  })

  test('asks for more rows than the log has room for ends the training', async () => {
    await expect(
      trained(async (given) => {
        for (let i = 0; i < 40; i++) await ask(given, [{ role: 'user', content: `${i}` }], { max_tokens: 10 })
        return 1
      }, 'keep'),
    ).rejects.toThrow(/got conversations whose rows do not fit the log, which holds \d+ tokens, expected fewer rows/)
  })
})

describe('agents', () => {
  test('that are programs find their session and task in the environment, and tell their reward last', async () => {
    const folder = await temporaryFolder()
    const program = `
const { OPENAI_BASE_URL: url, OPENAI_API_KEY: key, COLONNADE_TASK: task, ANTHROPIC_BASE_URL: other } = process.env
const headers = { 'content-type': 'application/json', authorization: 'Bearer ' + key }
const body = { model: 'm', messages: [{ role: 'user', content: JSON.parse(task).prompt }] }
const answer = await fetch(url + '/chat/completions', { method: 'POST', headers, body: JSON.stringify(body) })
const { choices } = await answer.json()
console.log('some words')
console.log(JSON.stringify({ reward: choices[0].message.content === 'said x' ? 1 : 0, components: { other: other.length } }))
if (process.env.COLONNADE_GATEWAY_KEY) process.exit(9)
`
    await writeFile(join(folder, 'agent.mjs'), program)
    process.env.COLONNADE_GATEWAY_KEY = 'the operator’s own'
    const { gateway } = await scriptedGateway((prompt) => `said ${/user: (.)/.exec(prompt)![1]}`)
    const command = [process.execPath, join(folder, 'agent.mjs')]
    const agents = runAgents({ gateway, tasks: TASKS, command })
    const rows = await agents.collect()
    delete process.env.COLONNADE_GATEWAY_KEY
    expect([0, 1].map((i) => rows.row(i).reward)).toEqual([1, 0])
    expect(rows.row(0).components.other).toBeGreaterThan(20)
  })

  test('that fail, hang, say no number or ask nothing have no reward, and the reason', async () => {
    const { gateway } = await scriptedGateway(() => 'x')
    const ends: Record<string, (run: AgentRun) => Promise<number | undefined>> = {
      throws: async () => Promise.reject(new Error('broken')),
      hangs: async ({ signal }) => {
        await sleep(60_000, undefined, { signal }).catch(() => {})
        return 1
      },
      nan: async () => Number.NaN,
      nothing: async () => undefined,
    }
    const tasks = Object.keys(ends).map((prompt) => ({ prompt }))
    const agents = runAgents({
      ...{ gateway, tasks, deadline: 2 },
      async run(run) {
        await ask(run, [{ role: 'user', content: 'hi' }])
        return ends[String(run.task.prompt)]!(run)
      },
    })
    const rows = await agents.collect()
    expect(rows.count).toBe(4)
    const errors = Array.from({ length: 4 }, (_, i) => [rows.row(i).reward, rows.row(i).error])
    expect(errors).toEqual([
      [null, 'broken'],
      [null, 'not finished after 2 s'],
      [null, expect.stringContaining('reward: got NaN, expected a finite number')],
      [null, 'the agent gave no reward'],
    ])
    expect(agents.counts).toEqual({ ended: 4, unknown: 4, late: 1, silent: 0 })
    const silent = runAgents({ gateway, tasks, run: () => 1 })
    expect([(await silent.collect()).count, silent.counts.silent]).toEqual([0, 4])
  })

  test('that are programs are ended with all that they began, and their exit codes are told', async () => {
    const { gateway } = await scriptedGateway(() => 'x')
    // The program and its child hold a line to this process each, which breaks when they end.
    const lines: Promise<unknown>[] = []
    const late = new AbortController()
    const server = createServer((socket) => {
      lines.push(
        once(
          socket.on('error', () => {}),
          'close',
        ),
      )
      if (lines.length === 2) late.abort()
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const hold = `require('net').connect(${(server.address() as AddressInfo).port}, '127.0.0.1').on('error', () => {})`
    const child = `require('child_process').spawn(process.execPath, ['-e', ${JSON.stringify(hold)}], { stdio: 'inherit' })`
    const command = [process.execPath, '-e', `${hold}; ${child}`]
    const timeout = vi.spyOn(AbortSignal, 'timeout').mockReturnValue(late.signal)
    const agents = runAgents({ gateway, tasks: [{ prompt: 'x' }], command, deadline: 7 })
    await agents.collect()
    expect([agents.counts.late, timeout.mock.calls]).toEqual([1, [[7000]]])
    timeout.mockRestore()
    await Promise.all(lines)
    server.close()
    for (const [command, why] of [
      [[process.execPath, '-e', 'console.error("no way"); process.exit(3)'], /ended with code 3: no way$/],
      [['no-such-program'], /no-such-program: spawn no-such-program ENOENT/],
    ] as const) {
      const errors: (string | null)[] = []
      const held = {
        ...gateway,
        openSession: (place = {}) => {
          const session = gateway.openSession(place)
          return {
            ...session,
            said: null,
            completion: null,
            end: (worth: Parameters<typeof session.end>[0]) => {
              errors.push(worth.error ?? null)
              return session.end(worth)
            },
          }
        },
      }
      await runAgents({ gateway: held, tasks: [{ prompt: 'x' }], command }).collect()
      expect(errors).toEqual([expect.stringMatching(why)])
    }
  })

  test('that are programs have the folder and the variables that were said', async () => {
    const { gateway } = await scriptedGateway(() => 'x')
    const ends: unknown[] = []
    const spied = {
      ...gateway,
      openSession: (place = {}) => {
        const session = gateway.openSession(place)
        const end: typeof session.end = (worth) => {
          ends.push(worth)
          return session.end(worth)
        }
        return Object.assign(Object.create(session) as typeof session, { end })
      },
    }
    const cwd = await realpath(await temporaryFolder())
    const program = (words: string) => [process.execPath, '-e', words]
    const told = 'console.log(JSON.stringify({ reward: 1, error: process.cwd() + process.env.OWN }))'
    const tasks = [{ prompt: 'x' }]
    await runAgents({ gateway: spied, tasks, command: program(told), cwd, env: { OWN: '!' } }).collect()
    await runAgents({ gateway: spied, tasks, command: program(told) }).collect()
    for (const words of [
      'console.log(1)',
      'console.log("{}")',
      'console.log(JSON.stringify({ reward: 1 })); console.log("bye")',
    ])
      await runAgents({ gateway: spied, tasks, command: program(words) }).collect()
    const untold = { reward: null, error: 'the agent gave no reward' }
    expect(ends).toEqual([
      { reward: 1, error: `${cwd}!` },
      { reward: 1, error: `${process.cwd()}undefined` },
      ...[untold, untold, untold],
    ])
  })

  test('that throw what is no error have it as the reason', async () => {
    const { gateway } = await scriptedGateway(() => 'x')
    const run = async (given: AgentRun) => {
      await ask(given, [{ role: 'user', content: 'hi' }])
      throw 'enough'
    }
    const rows = await runAgents({ gateway, tasks: [{ prompt: 'x' }], run }).collect()
    expect([rows.row(0).reward, rows.row(0).error]).toEqual([null, 'enough'])
  })

  test('are judged by the last answer in words, and by the last of what was asked', async () => {
    const { gateway } = await scriptedGateway(() => 'fourty')
    const judged: unknown[] = []
    const prompt = [
      { role: 'system', content: 'brief' },
      { role: 'user', content: 'six' },
    ]
    const called = [...prompt, { role: 'assistant', content: null, tool_calls: [{}] }]
    const agents = runAgents({
      ...{ gateway, tasks: [{ prompt }, { prompt: called }, { prompt: 'silent' }, { prompt: 'bad' }] },
      run: async (given) => {
        if (given.task.prompt !== 'silent') await ask(given, [{ role: 'user', content: 'hi' }])
        return 3
      },
      reward: (words, completion) => {
        judged.push([words, completion])
        if (words === 'bad') throw new Error('no judge')
        return 1
      },
    })
    const rows = await agents.collect()
    expect(judged).toEqual([
      ['six', 'fourty'],
      ['', 'fourty'],
      ['bad', 'fourty'],
    ])
    expect([0, 1, 2].map((i) => rows.row(i).reward)).toEqual([1, 1, null])
    expect(rows.row(2).error).toContain('no judge')
    expect(agents.counts).toEqual({ ended: 4, unknown: 2, late: 0, silent: 1 })
  })

  test('are judged by a reward, whatever they say', async () => {
    const { gateway } = await scriptedGateway(() => '42')
    const run = async (given: AgentRun) => {
      await ask(given, [{ role: 'user', content: 'hi' }])
      return 100
    }
    const reward = (prompt: string, completion: string, { answer }: Example) => ({
      value: completion === answer ? 1 : 0,
      components: { length: prompt.length },
    })
    const agents = runAgents({ gateway, tasks: [{ prompt: 'six', answer: '42' }], run, reward })
    const { reward: value, components } = (await agents.collect()).row(0)
    expect([value, components]).toEqual([1, { length: 3 }])
  })

  test('are refused where their options do not fit', async () => {
    const { gateway } = await scriptedGateway(() => 'x')
    const run = () => 1
    expect(() => runAgents({ gateway, tasks: [], run })).toThrow('tasks: got [], expected at least one')
    expect(() => runAgents({ gateway, tasks: TASKS })).toThrow('runAgents: got neither run nor command')
    expect(() => runAgents({ gateway, tasks: TASKS, run, deadline: 0 })).toThrow('deadline: got 0')
    for (const deadline of [2 ** 31 / 1000, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(() => runAgents({ gateway, tasks: TASKS, run, deadline })).toThrow('expected seconds above 0') // A timer's most.
    }
    runAgents({ gateway, tasks: TASKS, run, deadline: 2e6 })
    for (const name of ['groupSize', 'groups', 'maxAgents']) {
      expect(() => runAgents({ gateway, tasks: TASKS, run, [name]: 0 })).toThrow(
        `${name}: got 0, expected a whole number`,
      )
    }
    expect(() => runAgents({ gateway, tasks: TASKS, command: [] })).toThrow('command: got []')
    expect(() => runAgents({ gateway, tasks: TASKS, command: ['ls', 3] as never })).toThrow('command: got ["ls",3]')
    expect(() => runAgents({ gateway: {} as never, tasks: TASKS, run })).toThrow(
      'gateway: got {}, expected an open gateway',
    )
    expect(() => runAgents({ gateway: undefined as never, tasks: TASKS, run })).toThrow('gateway: got undefined')
    expect(() => runAgents({ gateway, tasks: {} as never, run })).toThrow('tasks: got {}, expected at least one')
    expect(() => runAgents({ gateway, tasks: TASKS, run, reward: 1 as never })).toThrow('reward: got 1')
    expect(() => runAgents({ gateway, tasks: TASKS, run: 1 as never })).toThrow('run: got 1')
    expect(() => runAgents({ gateway, tasks: TASKS, run, command: ['ls'] })).toThrow('runAgents: got both')
    expect(() => runAgents({ gateway, tasks: TASKS, run, group: 3 } as never)).toThrow(/group.*did you mean/)
    const other = await world()
    const rollouts = rl({ updates: 1 })
    expect(() => createTrainer(other, rollouts, { collector: 'agents' as never })).toThrow('createTrainer, collector')
  })
})
