import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, expect, test } from 'vitest'
import { measureRun } from '../../../src/entries/text.ts'
import { simulate } from '../../../src/fleet/simulation.ts'
import { readTrajectories } from '../../../src/tables/trajectories/trajectory-table.ts'
import { configureRun, startRun } from '../../../src/training/run/run.ts'
import { inProcess } from '../../support/command.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const KEYS = {
  ...{ 'sft.updates': '1', 'sft.batchSize': '2', 'rl.updates': '2', 'rl.groupsPerUpdate': '3', 'rl.groupSize': '2' },
  ...{ 'languageModel.width': '8', 'languageModel.layers': '1', trajectories: 'all', numLanes: '4', threads: '1' },
}
let folder: string
/** The lines of its updates with figures that are easily reckoned with. */
const LINES = [
  { sampledTokens: 30, rolloutSeconds: 3, updateSeconds: 1, lanesIdleSeconds: 0.5, trajectories: 6, drops: {} },
  {
    ...{ sampledTokens: 50, rolloutSeconds: 4, updateSeconds: 3, lanesIdleSeconds: 1.5 },
    ...{ trajectories: 6, drops: { filter: 1, stale: 1 } },
  },
]

async function begin(keys: Readonly<Record<string, string>> = {}): Promise<string> {
  const path = join(await temporaryFolder(), 'run')
  await (await startRun(await configureRun('text/reverse', { ...KEYS, ...keys }), path)).train()
  return path
}

beforeAll(async () => {
  folder = await begin()
  const path = join(folder, 'metrics.jsonl')
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n')
  const told = lines.map((line, i) => JSON.stringify({ ...JSON.parse(line), ...(i === 0 ? {} : LINES[i - 1]) }))
  writeFileSync(path, `${told.join('\n')}\n`)
})

test('speeds and sizes are those that the run tells, and lengths those of its conversations', async () => {
  const { settings, lengths } = await measureRun(folder)
  // 80 tokens of 6 groups, and of 2 that were dropped; four lanes had 8 s less 2 in which they were idle.
  const tokensPerSecond = (80 * 8) / 6 / (4 * 6)
  expect(settings).toEqual({
    ...{ slots: 4, tokensPerSecond, engineTokensPerSecond: 4 * tokensPerSecond },
    ...{ groupSize: 2, groupsPerBatch: 3, overSampling: 1, order: 'number', dropFraction: 2 / 8 },
    ...{ learnerTokensPerSecond: 80 / 4, updateSeconds: 0, deliverySeconds: 0 },
  })
  const files = ['00000001', '00000002'].map((name) => join(folder, 'trajectories', `${name}.arrow`))
  const { trajectories } = await readTrajectories(...files)
  const rows = Array.from({ length: trajectories.count }, (_, i) => trajectories.row(i))
  const answers = rows.map(({ lossMask }) => Array.from(lossMask).filter((mask) => mask === 1).length)
  expect(lengths.toSorted()).toEqual(answers.toSorted())
  expect(lengths).toHaveLength(12)
})

test('the command simulates by them, and by what is given in their place', async () => {
  const { settings, lengths } = await measureRun(folder)
  const words = ['simulate', `from=${folder}`, 'engines=1,2', 'maxStaleness=0,1', 'updates=3', 'groupSize=4']
  const { stdout } = await inProcess([...words, '--json'])
  const document = JSON.parse(stdout)
  expect(document).toMatchObject({ from: folder, lengths: { count: 12 } })
  for (const { engines, maxStaleness, simulation } of document.simulations) {
    const given = { ...settings, updates: 3, groupSize: 4, engines, maxStaleness }
    expect(simulation).toEqual(await simulate(given, lengths))
  }
  const told = await inProcess(words)
  expect(told.stdout).toContain(`${folder}: 12 answers of`)
  expect(told.stdout).toContain('4.4 tokens/s in each of 4 lanes, 20 tokens/s learned')
})

test('each answer has one of the lengths that were measured', async () => {
  const few = { groupSize: 1, groupsPerBatch: 40, updates: 2, tokensPerSecond: 1, engineTokensPerSecond: 1000 }
  // With one place for each answer a batch takes as long as its longest; nothing else is between 3 and 7 tokens.
  const { sampledTokens, seconds } = await simulate({ ...few, updateSeconds: 0, deliverySeconds: 0 }, [3, 7])
  expect(seconds).toBeCloseTo(2 * 7, 1)
  expect(sampledTokens).toBeGreaterThan(80 * 3)
  expect(sampledTokens).toBeLessThan(80 * 7)
  for (const [given, lengths, message] of [
    [{}, [], 'lengths: got none, expected tokens of at least one answer'],
    [{}, [1, 0], 'lengths: got 0, expected whole numbers ≥ 1'],
    [{ lengthMedian: 9 }, [1], 'lengthMedian: got 9, expected no such setting with measured lengths'],
  ] as const) {
    await expect(simulate(given, lengths)).rejects.toThrow(message)
  }
})

test('a run that lacks what is needed is refused', async () => {
  const { 'rl.updates': _, 'rl.groupsPerUpdate': __, 'rl.groupSize': ___, ...others } = KEYS
  const supervised = join(await temporaryFolder(), 'run')
  await (await startRun(await configureRun('text/reverse', { ...others, mode: 'sft' }), supervised)).train()
  await expect(measureRun(supervised)).rejects.toThrow(
    `run ${supervised}: got no reinforcement learning of a language model, expected a run with mode=rl or sft+rl`,
  )
  const bare = await begin({ trajectories: 'none', 'rl.updates': '1' })
  await expect(measureRun(bare)).rejects.toThrow(`trajectories of ${bare}: got none, expected a run that kept some`)
  const path = join(bare, 'metrics.jsonl')
  const lines = readFileSync(path, 'utf8').trimEnd().split('\n')
  writeFileSync(path, `${lines[1]!.replace('"lanesIdleSeconds"', '"idle"')}\n`)
  await expect(measureRun(bare)).rejects.toThrow(
    `metrics.jsonl of ${bare}, update 1, lanesIdleSeconds: got undefined, expected a number`,
  )
  rmSync(path)
  await expect(measureRun(bare)).rejects.toThrow(`metrics.jsonl of ${bare}: got no update, expected at least one`)
  await expect(measureRun('nowhere')).rejects.toThrow('nowhere: got no such folder, expected a run folder')
})

test('a probe measures the engine with the prompts and the model of the run', async () => {
  const words = ['simulate', `from=${folder}`, 'probe=local', 'engines=1,2', 'maxStaleness=0', 'updates=3']
  const { speeds, settings, simulations } = JSON.parse((await inProcess([...words, '--json'])).stdout)
  expect(speeds.map(({ answers }: { answers: number }) => answers)).toEqual([1, 2, 4])
  expect([settings.tokensPerSecond, settings.slots]).toEqual([undefined, 4])
  const { lengths } = await measureRun(folder)
  for (const { engines, maxStaleness, simulation } of simulations) {
    expect(simulation).toEqual(await simulate({ ...settings, engines, maxStaleness }, lengths, speeds))
  }
  const { stdout } = await inProcess(words)
  expect(stdout).toMatch(/local: tokens\/s by answers at the same time: \d+ with 1, \d+ with 2, \d+ with 4/)
})
