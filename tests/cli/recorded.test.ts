/** Runs that learn from a file of rollouts in place of what their lanes collect. */
import { copyFile, readFile, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { recordedUpdates } from '../../dist/src/entries/data.js'
import * as built from '../../dist/src/index.js'
import { inProcess, SMALL } from '../support/command.ts'
import { untimedMetrics } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

/** Eight rollouts of 32 steps of 8 lanes. */
let rollouts: string
let here: string
beforeAll(async () => {
  const folder = await temporaryFolder()
  rollouts = join(folder, 'rollouts.arrow')
  await run(['train', 'CartPole-v1', 'out=teacher', 'rollouts=all', 'seed=4', ...SMALL], folder)
  await run(['export', 'teacher', 'out=rollouts.arrow'], folder)
})
beforeEach(async () => {
  here = await temporaryFolder()
})

/** Rollouts of the length that the file names. */
const cloning = ['algorithm=bc', 'mlp.hidden=8']

async function run(words: readonly string[], folder = here) {
  const ended = await inProcess(words, folder)
  expect(ended.code, ended.stderr).toBe(0)
  return ended
}

const json = async (...path: string[]) => JSON.parse(await readFile(join(here, ...path), 'utf8'))
const metrics = async (folder: string) =>
  (await readFile(join(here, folder, 'metrics.jsonl'), 'utf8'))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
const weights = async (folder: string) => (await built.loadPolicy(join(here, folder))).weights

describe('train from=FILE', () => {
  test('with several seeds has no return of episodes and no steps per second, which it does not know', async () => {
    const { stdout } = await run(['train', 'CartPole-v1', `from=${rollouts}`, ...cloning, 'seeds=1..2', 'out=two'])
    expect(stdout).not.toContain('NaN')
    const { figures } = await json('two', 'summary.json')
    expect(Object.keys(figures)).toEqual(['seconds'])
  })

  test('learns what trainer.learn does of the same file, with the lanes that the file names, and can be judged', async () => {
    const { stdout, stderr } = await run([
      'train',
      'CartPole-v1',
      `from=${rollouts}`,
      'epochs=3',
      ...cloning,
      'out=run',
    ])
    expect(stderr).toContain(`3 passes over 2,048 rows of ${rollouts}, 8 lanes, 1 thread, seed 1\n`)
    expect(stdout).toContain('complete: 24 updates in ')
    expect(stdout).toContain('colonnade evaluate run')
    const summary = await json('run', 'summary.json')
    expect(summary).toMatchObject({ from: rollouts, updates: 24, totalSteps: 0, status: 'complete', numLanes: 8 })
    expect(summary.files).not.toHaveProperty('rollouts')
    const { settings, recorded } = await json('run', 'config.json')
    expect(settings).toMatchObject({ from: rollouts, epochs: 3, numLanes: 8 })
    expect(recorded).toEqual({
      id: 'rollouts',
      parameters: { sha256: expect.stringMatching(/^[0-9a-f]{64}$/), rows: 2048 },
    })
    const { algorithm } = await built.loadPolicy(join(here, 'run'))
    expect(algorithm.parameters).toMatchObject({ numSteps: 32 })
    await run(['train', 'CartPole-v1', `from=${rollouts}`, 'bc.numSteps=128', ...cloning, 'out=longer'])
    expect(await json('longer', 'summary.json')).toMatchObject({ updates: 2 })
    expect(recordedUpdates(await built.loadPolicy(join(here, 'run')))).toBe(24)
    const lines = await metrics('run')
    expect(lines.map(({ update, steps, episodeReturn }) => [update, steps, episodeReturn])).toEqual(
      lines.map((_, i) => [i + 1, 0, null]),
    )
    expect(lines).toHaveLength(24)
    expect(await readFile(join(here, 'run', 'learning-curve.svg'), 'utf8')).toContain('policyLoss')

    const world = await built.createWorld({
      environment: built.cartPole(),
      policy: built.mlp({ hidden: [8] }),
      numLanes: 8,
      seed: 1,
    })
    const bc = built.createTrainer(world, algorithm)
    for await (const _ of bc.learn(await built.readArrow(rollouts), { epochs: 3 }));
    expect(await weights('run')).toEqual(world.cohort().weights)

    const { stdout: judged } = await run(['evaluate', 'run', 'episodes=2'])
    expect(judged).toContain('weights of update 24, 2 episodes')
  })

  test('corrects rows of another policy as the algorithm is told, V-trace by default', async () => {
    const words = ['train', 'CartPole-v1', `from=${rollouts}`, 'mlp.hidden=8', 'seed=7']
    await run([...words, 'out=default'])
    await run([...words, 'out=vtrace', 'ppo.correction=vtrace', 'ppo.rhoMax=1'])
    await run([...words, 'out=bounded', 'ppo.rhoMax=0.9'])
    await run([...words, 'out=none', 'ppo.correction=none'])
    const all = await Promise.all(['default', 'vtrace', 'bounded', 'none'].map(weights))
    expect(all[1]).toEqual(all[0])
    expect(new Set(all.map(String)).size).toBe(3)
  })

  test('goes on where it was stopped, to the bit, and further than it was to go', async () => {
    const words = ['CartPole-v1', `from=${rollouts}`, 'epochs=2', ...cloning, 'bc.learningRateSchedule=linear']
    await run(['train', ...words, 'out=whole'])
    const texts = Object.fromEntries(words.slice(1).map((word) => word.split('=', 2) as [string, string]))
    const stopped = await built.startRun(await built.configureRun('CartPole-v1', texts), join(here, 'stopped'))
    const stop = new AbortController()
    const { status } = await stopped.train({
      signal: stop.signal,
      onUpdate: ({ update }) => update === 11 && stop.abort(),
    })
    expect(status).toBe('interrupted')
    const { stderr } = await run(['resume', 'stopped'])
    expect(stderr).toContain('2 passes over 2,048 rows')
    expect(stderr).toContain('from update 11')
    expect(await weights('stopped')).toEqual(await weights('whole'))
    expect(await untimedMetrics(join(here, 'stopped'))).toEqual(await untimedMetrics(join(here, 'whole')))
    const further = await run(['resume', 'stopped', 'epochs=3'])
    expect(further.stderr).toContain('epochs was 2 and is 3')
    expect((await metrics('stopped')).at(-1)).toMatchObject({ update: 24 })
    expect((await inProcess(['resume', 'stopped', 'totalSteps=9000'], here)).stderr).toContain(
      'key: got "totalSteps", expected one of ',
    )
  })

  test('goes on with no other file than it began with', async () => {
    await copyFile(rollouts, join(here, 'own.arrow'))
    await run(['train', 'CartPole-v1', 'from=own.arrow', ...cloning, 'out=run'])
    await run(['export', 'run', 'out=weights.safetensors', 'format=safetensors'])
    const table = await built.readArrow(rollouts)
    await built.writeArrow(join(here, 'own.arrow'), table.slice(256))
    const { code, stderr } = await inProcess(['resume', 'run', 'epochs=2'], here)
    expect(code).toBe(1)
    expect(stderr).toMatch(
      /own\.arrow: got 1792 rows with SHA-256 \w+, expected the 2048 rows with which the run started/,
    )
  })

  test('refuses what does not fit, says what would, and leaves no folder', async () => {
    const refused = async (words: readonly string[], environment = 'CartPole-v1') => {
      const { code, stderr } = await inProcess(['train', environment, ...words, 'out=run'], here)
      expect(code, stderr).toBe(1)
      await expect(readFile(join(here, 'run', 'config.json'))).rejects.toThrow('ENOENT')
      return stderr
    }
    const from = `from=${rollouts}`
    const file = 'from=FILE: an Arrow file of rollouts or episodes from colonnade export'
    expect(await refused(['algorithm=bc'])).toContain(`algorithm: got bc, which learns from tables, expected ${file}`)
    expect(await refused(['epochs=2'])).toContain(`epochs: got 2, expected ${file}`)
    for (const [key, value] of [
      ['totalSteps', 5],
      ['stopWhenSolved', true],
      ['rollouts', '"all"'],
      ['actors', 2],
    ]) {
      const told = `${key}: got ${value}, with from=${rollouts}, expected no such key`
      expect(await refused([from, ...cloning, `${key}=${String(value).replaceAll('"', '')}`])).toContain(told)
    }
    expect(await refused([from, 'ppo.maxStaleness=1'])).toContain('ppo.maxStaleness: got 1, with from=')
    const uneven = 'rows of the table: got 2048, expected whole rollouts of 100 steps × 8 lanes: a multiple of 800'
    expect(await refused([from, 'algorithm=bc', 'bc.numSteps=100'])).toContain(uneven)
    expect(await refused([from, 'algorithm=bc', 'numLanes=4'])).toContain('lanes of the table: got 8, expected 4')
    expect(await refused([from], 'Pendulum-v1')).toContain(
      'environment of the table: got "CartPole-v1", expected "Pendulum-v1"',
    )
    expect(await refused(['from=nothing.arrow'])).toContain('nothing.arrow: got ')
    const table = await built.readArrow(rollouts)
    const write = (name: string, columns: Parameters<typeof built.writeArrow>[1]) =>
      built.writeArrow(join(here, name), columns)
    await write('empty.arrow', table.slice(0, 0))
    expect(await refused(['from=empty.arrow', ...cloning])).toContain('rows of the table: got 0')
    await write('short.arrow', table.slice(0, 300))
    expect(await refused(['from=short.arrow', ...cloning])).toContain(
      'rows of the table: got 300, expected whole rollouts of 32 steps × 8 lanes: a multiple of 256',
    )
    const names = table.schema.fields.map(({ name }) => name)
    await write('narrow.arrow', table.select(names.filter((name) => name !== 'reward')))
    expect(await refused(['from=narrow.arrow', ...cloning])).toContain('column reward of the table: got none')
    await copyFile(rollouts, join(here, 'cut.arrow'))
    await truncate(join(here, 'cut.arrow'), 4000)
    expect(await refused(['from=cut.arrow', ...cloning])).toContain('cut.arrow: got ')
    await writeFile(join(here, 'words.arrow'), 'no table')
    expect(await refused(['from=words.arrow', ...cloning])).toContain('words.arrow: got ')
    table.schema.metadata.delete('numLanes')
    await write('lanes.arrow', table)
    expect(await refused(['from=lanes.arrow', ...cloning])).toContain('or numLanes=N together with from=FILE')
    await run(['train', 'CartPole-v1', 'from=lanes.arrow', 'numLanes=8', ...cloning, 'out=run'])
  })

  test('learns from whole episodes too, with the lanes and steps of its own settings', async () => {
    await run(['train', 'CartPole-v1', `from=${rollouts}`, ...cloning, 'out=teacher'])
    await run(['export', 'teacher', 'out=episodes.arrow', 'episodes=40'])
    const { numRows } = await built.readArrow(join(here, 'episodes.arrow'))
    const words = ['train', 'CartPole-v1', 'from=episodes.arrow', ...cloning, 'bc.numSteps=16']
    const { stderr } = await run([...words, 'epochs=2', 'out=run'])
    expect(stderr).toContain(
      `2 passes over ${numRows.toLocaleString('en-US')} rows of ${join(here, 'episodes.arrow')}, 16 lanes, 1 thread, seed 1\n`,
    )
    const updates = 2 * Math.ceil(numRows / 256)
    expect(numRows % 256).toBeGreaterThan(0)
    expect(await json('run', 'summary.json')).toMatchObject({ updates, numLanes: 16, status: 'complete' })
    expect((await metrics('run')).at(-1)).toMatchObject({ update: updates })
    await run([...words, 'epochs=1', 'out=further'])
    await run(['resume', 'further', 'epochs=2'])
    expect(await weights('further')).toEqual(await weights('run'))
    // The same episodes as a dataset of Minari teach the same.
    await run(['export', 'teacher', 'out=expert-v0', 'format=minari', 'episodes=40'])
    const imported = words.map((word) => (word.startsWith('from=') ? 'from=expert-v0' : word))
    await run([...imported, 'epochs=2', 'out=imported'])
    expect(await weights('imported')).toEqual(await weights('run'))
    const { code, stderr: said } = await inProcess(['train', 'CartPole-v1', 'from=expert-v0', 'out=refused'], here)
    expect([code, said]).toEqual([1, expect.stringContaining('no log-probabilities, for the algorithm ppo')])
  })
})
