import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { a2c, cartPole, createTrainer, createWorld, mlp, ppo } from '../../src/index.ts'
import { configureRun, resumeRun, startRun } from '../../src/training/run/run.ts'
import { editManifest, smallRun } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** What a clock has a part in. */
const TIMED = [
  'seconds',
  'stepsPerSecond',
  'rolloutSeconds',
  'updateSeconds',
  'phaseSeconds',
  'rolloutAgeSeconds',
  'lanesIdleSeconds',
]

async function linesOf(folder: string): Promise<Record<string, unknown>[]> {
  const lines = (await readFile(join(folder, 'metrics.jsonl'), 'utf8')).trimEnd().split('\n')
  return lines.map((line) =>
    Object.fromEntries(Object.entries(JSON.parse(line)).filter(([key]) => !TIMED.includes(key))),
  )
}

/** Takes the newest checkpoint away, as if the run had been killed after the one before. Returns how many are left. */
async function loseNewest(folder: string): Promise<number> {
  const checkpoints = join(folder, 'checkpoints')
  const names = (await readdir(checkpoints)).filter((name) => /^\d+$/.test(name)).sort()
  await rm(join(checkpoints, names.at(-1)!), { recursive: true })
  return names.length - 1
}

test('a run that goes on from a checkpoint keeps the lines up to it, drops the younger, and ends with each once', async () => {
  const folder = join(await temporaryFolder(), 'run')
  const definition = await smallRun('checkpointEvery=3', 'checkpointsKept=9', 'threads=1')
  await (await startRun(definition, folder)).train()
  const whole = await linesOf(folder)
  expect(whole.map(({ update }) => update)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  expect(await loseNewest(folder)).toBe(2)
  const run = await resumeRun(folder)
  expect(await linesOf(folder)).toEqual(whole.slice(0, 6))
  await run.train()
  expect(await linesOf(folder)).toEqual(whole)
})

test('so does one of a language model, across its phases', async () => {
  const folder = join(await temporaryFolder(), 'run')
  const settings = {
    checkpointEvery: 2,
    checkpointsKept: 9,
    numLanes: 4,
    threads: 1,
    'sft.updates': 3,
    'rl.updates': 4,
  }
  const small = { 'sft.batchSize': 2, 'rl.groupsPerUpdate': 2, 'rl.groupSize': 2, 'languageModel.width': 8 }
  const texts = {
    ...settings,
    ...small,
    'languageModel.heads': 2,
    'languageModel.layers': 1,
    'environment.maxLength': 2,
  }
  const definition = await configureRun(
    'text/copy',
    Object.fromEntries(Object.entries(texts).map(([key, value]) => [key, String(value)])),
  )
  await (await startRun(definition, folder)).train()
  const whole = await linesOf(folder)
  expect(whole.map(({ phase, step }) => `${phase} ${step}`)).toEqual([
    ...['sft 1', 'sft 2', 'sft 3'],
    ...['rl 1', 'rl 2', 'rl 3', 'rl 4'],
  ])
  expect(await loseNewest(folder)).toBe(3)
  const run = await resumeRun(folder)
  expect(await linesOf(folder)).toEqual(whole.slice(0, 6))
  await run.train()
  expect(await linesOf(folder)).toEqual(whole)
})

test.each(['ppo', 'a2c'])(
  'a run by %s that is older than the settings of staleness goes on as one without any',
  async (algorithm) => {
    const folder = join(await temporaryFolder(), 'run')
    const sizes = { totalSteps: '512', numLanes: '4', 'mlp.hidden': '8', [`${algorithm}.numSteps`]: '16' }
    const small = { ...sizes, algorithm, checkpointEvery: '3', checkpointsKept: '9', threads: '1' }
    await (await startRun(await configureRun('CartPole-v1', small), folder)).train()
    const whole = await linesOf(folder)
    await loseNewest(folder)
    /** Takes the settings of staleness out of what an algorithm was told. */
    const older = ({ algorithm: told }: { algorithm: { parameters: Record<string, unknown> } }) => {
      for (const name of ['maxStaleness', 'correction', 'rhoMax', 'cMax']) delete told.parameters[name]
    }
    const config = join(folder, 'config.json')
    const kept = JSON.parse(await readFile(config, 'utf8'))
    older(kept)
    await writeFile(config, JSON.stringify(kept))
    for (const name of await readdir(join(folder, 'checkpoints'))) {
      await editManifest(join(folder, 'checkpoints', name, 'manifest.json'), (manifest) => {
        older(manifest.cohorts.mlp as never)
        return manifest
      })
    }
    // A training that wants stale rollouts is another one.
    const given = { environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4, seed: 1 }
    const stale = createTrainer(
      await createWorld(given),
      (algorithm === 'ppo' ? ppo : a2c)({ numSteps: 16, maxStaleness: 1 }),
    )
    await expect(stale.restore(folder)).rejects.toThrow(
      /algorithm, maxStaleness: got 0, expected 1, as in this training/,
    )
    stale.close()
    await (await resumeRun(folder)).train()
    expect(await linesOf(folder)).toEqual(whole)
  },
)
