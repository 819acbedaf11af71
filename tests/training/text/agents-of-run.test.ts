/** Runs whose conversations are agents': programs that ask the model through a gateway. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { configureRun, resumeRun, runTrainer, startRun } from '../../../src/index.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const ASK = `
  const { prompt } = JSON.parse(process.env.COLONNADE_TASK)
  const answer = await fetch(process.env.OPENAI_BASE_URL + '/chat/completions', {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer ' + process.env.OPENAI_API_KEY },
    body: JSON.stringify({ model: 'any', messages: [{ role: 'user', content: prompt }], max_tokens: 4 }),
  })
  const said = (await answer.json()).choices[0].message.content
`
/** Rewards an answer by its length and the task's number. */
const REWARD = `
  const judged = (prompt, completion, example) => completion.length + 100 * example.answer.length
  export const lengths = Object.assign(() => judged, { id: 'lengths', settings: {} })
`

/** A folder with two tasks, a reward, an agent that leaves it to the environment, and one that rewards itself. */
async function place() {
  const folder = await temporaryFolder()
  const files = {
    'tasks.jsonl': '{"prompt":"x","answer":"a"}\n{"prompt":"y","answer":"bb"}\n',
    'reward.mjs': REWARD,
    'agent.mjs': ASK,
    'judge.mjs': `${ASK}\nconsole.log('done')\nconsole.log(JSON.stringify({ reward: said.length + Number(process.argv[2]) }))`,
  }
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text)
  const configure = (given: Record<string, string>) =>
    configureRun('text/dataset', {
      ...{ mode: 'rl', threads: '1', kernels: 'plain', numLanes: '4', seed: '3' },
      ...{ 'environment.path': join(folder, 'tasks.jsonl'), 'environment.reward': join(folder, 'reward.mjs') },
      ...{ 'rl.updates': '1', 'rl.groupsPerUpdate': '2', 'rl.groupSize': '2', maxAgents: '4' },
      ...{ 'languageModel.width': '8', 'languageModel.layers': '1', 'languageModel.heads': '1' },
      ...{ 'languageModel.context': '24', 'languageModel.anyText': 'true', ...given },
    })
  return { folder, out: join(folder, 'run'), configure }
}

/** An update's line of metrics. */
async function lineOf(folder: string, update: number) {
  const lines = (await readFile(join(folder, 'metrics.jsonl'), 'utf8')).trim().split('\n')
  return JSON.parse(lines[update]!) as {
    reward: number
    numUnknown: number
    firstError: string | null
    trajectories: number
  }
}

test('agents are trained by the environment’s reward of their last answer, and a resumed run needs their program again', async () => {
  const { folder, out, configure } = await place()
  const agent = join(folder, 'agent.mjs')
  const run = await startRun(await configure({ agent }), out)
  const rewards: [number, number][] = []
  await run.train({
    onUpdate() {
      const { trajectories, tokenizer } = run.trainer.world.cohort()
      const { token, lossMask, offsets, reward, promptId } = trajectories.columns()
      for (const row of trajectories.order()) {
        const places = Array.from({ length: offsets[row + 1]! - offsets[row]! }, (_, i) => offsets[row]! + i)
        const ids = places.filter((place) => lossMask[place] === 1).map((place) => token[place]!)
        const expected = tokenizer.decode(ids, { skipSpecial: true }).length + 100 * (promptId[row]! + 1)
        rewards.push([reward[row]!, expected])
      }
    },
  })
  const first = await lineOf(out, 0)
  expect(first).toMatchObject({ numUnknown: 0, trajectories: 4 })
  expect(rewards.map(([reward]) => reward)).toEqual(rewards.map(([, expected]) => expected))
  expect(first.reward).toBeCloseTo(rewards.reduce((sum, [reward]) => sum + reward, 0) / 4, 9)

  const settings = { 'rl.updates': '2' }
  await expect(resumeRun(out, { settings, allowModule: () => true })).rejects.toThrow(
    `agent of ${out}: got ${agent} from its config.json only`,
  )
  const command = `node ${join(folder, 'judge.mjs')} 1000 | cat`
  const servers = () => process.getActiveResourcesInfo().filter((each) => each === 'TCPServerWrap')
  const before = servers()
  const missing = { from: 99, settings: { ...settings, agent: command }, allowModule: () => true }
  await expect(resumeRun(out, missing)).rejects.toThrow('99')
  await expect(startRun(await configure({ agent }), '/dev/null/run')).rejects.toThrow('a writable path')
  await expect.poll(servers).toEqual(before)
  await (await resumeRun(out, { settings: { ...settings, agent: command }, allowModule: () => true })).train()
  const second = await lineOf(out, 1)
  expect(second).toMatchObject({ numUnknown: 0, trajectories: 4 })
  expect(second.reward).toBeGreaterThanOrEqual(1000)
  expect(second.reward).toBeLessThanOrEqual(1004)
})

test('agents that cannot run end a training with the reason', async () => {
  const { out, folder, configure } = await place()
  const run = await startRun(await configure({ agent: 'exit 3' }), out)
  await expect(run.train()).rejects.toThrow('no request to the model by the first 32: /bin/sh ended with code 3')
  await expect(startRun(await configure({ agent: join(folder, 'none.mjs') }))).rejects.toThrow('an existing file')
  await expect(configure({ mode: 'sft', maxAgents: '2', agent: 'x' })).rejects.toThrow('expected rl or sft+rl')
  await expect(runTrainer(await configure({ agent: 'x' }))).rejects.toThrow('startRun, which also ends the gateway')
})

test('agents run for at most agentSeconds, and at most maxAgents of them at the same time', async () => {
  const { folder, configure } = await place()
  let runs = 0
  const failure = async (given: Record<string, string>) => {
    const run = await startRun(await configure(given), join(folder, `run-${++runs}`))
    return run.train().then(
      () => 'no failure',
      (error: Error) => error.message,
    )
  }
  expect(await failure({ agent: 'sleep 60', agentSeconds: '0.05', maxAgents: '32' })).toContain(
    'not finished after 0.05 s',
  )
  const mostAtOnce = async (maxAgents: string, work: string) => {
    const file = join(folder, `began-${maxAgents}`)
    const agent = `echo begin >> ${file}; ${work}; echo end >> ${file}; exit 3`
    expect(await failure({ agent, maxAgents })).toContain('code 3')
    let [now, most] = [0, 0]
    for (const line of (await readFile(file, 'utf8')).trim().split('\n')) {
      now += line === 'begin' ? 1 : -1
      most = Math.max(most, now)
    }
    return most
  }
  expect(await mostAtOnce('1', 'sleep 0.02')).toBe(1)
  const several = await mostAtOnce('3', 'sleep 0.1')
  expect(several).toBeGreaterThan(1)
  expect(several).toBeLessThanOrEqual(3)
})

test('an agent without a reward has an unknown one where the environment rewards no single answer', async () => {
  const { folder, out } = await place()
  const game = await configureRun('text/guess-number', {
    ...{ mode: 'rl', threads: '1', kernels: 'plain', numLanes: '4', 'rl.updates': '1', 'rl.groupsPerUpdate': '1' },
    ...{ 'rl.groupSize': '2', 'languageModel.width': '8', 'languageModel.layers': '1', 'languageModel.heads': '1' },
    ...{ 'languageModel.context': '64', 'languageModel.anyText': 'true', heldOutFraction: '0' },
    agent: join(folder, 'agent.mjs'),
  })
  const expected = 'the agent gave no reward, and text/guess-number rewards several turns'
  await expect((await startRun(game, out)).train()).rejects.toThrow(expected)
})
