/** Sweeps: runs of several settings and seeds, side by side in one world. */
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { type SweepOptions, trainSweep } from '../../src/entries/data.ts'
import {
  cartPole,
  configureRun,
  createTrainer,
  createWorld,
  evaluate,
  loadPolicy,
  mlp,
  ppo,
  resumeRun,
  startRun,
} from '../../src/index.ts'
import { shareWorlds, whyApart } from '../../src/training/groups/side-by-side.ts'
import { inProcess } from '../support/command.ts'
import { fingerprint } from '../support/small-training.ts'
import { parseSvg } from '../support/svg.ts'
import { temporaryFolder } from '../support/temporary.ts'

const small = {
  totalSteps: '1024',
  numLanes: '8',
  'mlp.hidden': '8',
  'ppo.numSteps': '32',
  'ppo.numMinibatches': '2',
  'ppo.updateEpochs': '1',
  'ppo.learningRate': '0.02',
  'environment.maxEpisodeSteps': '40',
}

let folder: string
beforeEach(async () => {
  folder = join(await temporaryFolder(), 'sweep')
})

const never = () => Promise.reject(new Error('it was trained alone'))

/** The run of these words alone, in a folder beside the sweep's. */
async function alone(environment: string, given: Record<string, string>): Promise<string> {
  const path = join(await temporaryFolder(), 'alone')
  await (await startRun(await configureRun(environment, given), path)).train()
  return path
}

/** The folders of a sweep's settings. */
async function settingsOf(sweep: string): Promise<string[]> {
  return (await readdir(sweep)).filter((name) => /^\d/.test(name)).sort()
}

describe('a sweep', () => {
  test('trains each setting with each seed side by side, and leaves the runs that each alone leaves', async () => {
    let worlds = 0
    const summary = await trainSweep(
      'CartPole-v1',
      { ...small, 'ppo.gamma': '0.5,0.98', 'mlp.hidden': '8|6,4' },
      [3, 5],
      {
        out: folder,
        onUpdate: (lines, totalSteps) => {
          expect([lines.length, totalSteps]).toEqual([8, 1024])
          if (lines[0]!.update === 1) worlds++
        },
      },
    )
    expect(worlds).toBe(1)
    expect(summary.status).toBe('complete')
    expect(summary.settings.map(({ varied, apart }) => [varied['mlp.hidden'], varied['ppo.gamma'], apart])).toEqual([
      ['8', '0.5', null],
      ['8', '0.98', null],
      ['6,4', '0.5', null],
      ['6,4', '0.98', null],
    ])
    const settings = await settingsOf(folder)
    expect(settings).toHaveLength(4)
    const last = { ...small, 'ppo.gamma': '0.98', 'mlp.hidden': '6,4', seed: '5' }
    const member = join(folder, settings[3]!, 'seed-5')
    const single = await alone('CartPole-v1', last)
    expect(await fingerprint(member)).toEqual(await fingerprint(single))
    const [own, other] = await Promise.all(
      [member, single].map(async (run) => JSON.parse(await readFile(join(run, 'summary.json'), 'utf8'))),
    )
    for (const key of ['status', 'totalSteps', 'updates', 'episodes', 'episodeReturnLast100', 'solvedAtStep', 'seed'])
      expect(own[key], key).toEqual(other[key])
    // They are runs like any other.
    const { environment, policy, weights } = await loadPolicy(member)
    expect((await evaluate({ environment, policy, weights, episodes: 5 })).episodes).toBe(5)
    const [further, reference] = await Promise.all(
      [member, single].map((run) => resumeRun(run, { settings: { totalSteps: '1536' } })),
    )
    await further!.train()
    await reference!.train()
    expect(await fingerprint(member)).toEqual(await fingerprint(single))
    // Its table: means over the seeds, and the best.
    const means = summary.settings.map(({ figures }) => figures.episodeReturn!.mean)
    expect(new Set(means).size).toBe(4)
    expect(summary.best).toEqual({ figure: 'episodeReturn', setting: means.indexOf(Math.max(...means)) })
    const curves = parseSvg(await readFile(join(folder, 'learning-curves.svg'), 'utf8'))
    expect(curves.querySelectorAll('[aria-label=band]')).toHaveLength(4)
    expect(curves.textContent).toContain('mlp.hidden=6,4')
    expect(JSON.parse(await readFile(join(folder, 'summary.json'), 'utf8'))).toEqual(summary)
  })

  test('of algorithms that learn from a replay leaves the runs that each alone leaves', async () => {
    const given = { totalSteps: '640', numLanes: '4', 'qNetwork.hidden': '6', 'dqn.numSteps': '16', algorithm: 'dqn' }
    const told = { ...given, 'dqn.gamma': '0.9,0.98' }
    const summary = await trainSweep('CartPole-v1', told, [2], { out: folder, train: (run) => run.train() })
    expect(summary.settings.map(({ apart }) => apart)).toEqual([null, null])
    const [, second] = await settingsOf(folder)
    const single = await alone('CartPole-v1', { ...given, 'dqn.gamma': '0.98', seed: '2' })
    expect(await fingerprint(join(folder, second!, 'seed-2'))).toEqual(await fingerprint(single))
  })

  test('of runs with systems, wrappers and normalized observations leaves the runs that each alone leaves', async () => {
    const given = { ...small, totalSteps: '512', systems: 'normalizeRewards', wrappers: 'frameStack' }
    const more = { 'frameStack.frames': '2', 'mlp.normalizeObservations': 'true' }
    const told = { ...given, ...more, 'normalizeRewards.gamma': '0.9,0.98' }
    const summary = await trainSweep('CartPole-v1', told, [2], { out: folder })
    expect(summary.settings.map(({ apart }) => apart)).toEqual([null, null])
    const [, second] = await settingsOf(folder)
    const single = await alone('CartPole-v1', { ...given, ...more, 'normalizeRewards.gamma': '0.98', seed: '2' })
    expect(await fingerprint(join(folder, second!, 'seed-2'))).toEqual(await fingerprint(single))
  })

  test('goes on where it was interrupted, with the same bits', async () => {
    const stop = new AbortController()
    const sweep = (options: SweepOptions) =>
      trainSweep('CartPole-v1', { ...small, 'ppo.gamma': '0.5,0.98' }, [3], { out: folder, ...options })
    const first = await sweep({ onUpdate: ([line]) => line!.update === 2 && stop.abort(), signal: stop.signal })
    expect([first.status, first.settings]).toEqual(['interrupted', []])
    const trained: number[] = []
    const train: SweepOptions['train'] = (run) => {
      trained.push(run.trainer.update)
      return run.train()
    }
    const second = await sweep({ train })
    expect([second.status, trained]).toEqual(['complete', [2, 2]])
    const [setting] = await settingsOf(folder)
    const single = await alone('CartPole-v1', { ...small, 'ppo.gamma': '0.5', seed: '3' })
    expect(await fingerprint(join(folder, setting!, 'seed-3'))).toEqual(await fingerprint(single))
    expect((await sweep({ train: never })).settings).toEqual(second.settings) // All have ended.
  })

  test('draws settings from ranges', async () => {
    const given = { ...small, totalSteps: '256', 'ppo.learningRate': '1e-4..1e-1', 'mlp.hidden': '4|8' }
    const sweep = (samples: number) => trainSweep('CartPole-v1', given, [3], { out: folder, samples })
    await expect(sweep(0)).rejects.toThrow('samples: got 0, with a range of ppo.learningRate')
    await expect(sweep(1.5)).rejects.toThrow('samples: got 1.5, expected a whole number')
    const { settings, status } = await sweep(4)
    expect(status).toBe('complete')
    const rates = settings.map(({ varied }) => Number(varied['ppo.learningRate']))
    expect(new Set(rates).size).toBe(4)
    expect(Math.min(...rates)).toBeGreaterThanOrEqual(1e-4)
    expect(Math.max(...rates)).toBeLessThanOrEqual(1e-1)
    const [first] = await settingsOf(folder)
    const single = await alone('CartPole-v1', { ...given, ...settings[0]!.varied, seed: '3' })
    expect(await fingerprint(join(folder, first!, 'seed-3'))).toEqual(await fingerprint(single))
  })

  test('refuses what is no sweep before anything is trained', async () => {
    const sweep = (given: Record<string, string>, seeds = [1]) =>
      trainSweep('CartPole-v1', { ...small, ...given }, seeds, { out: folder, train: never })
    await expect(sweep({})).rejects.toThrow('a key with several, like ppo.gamma=0.9,0.99')
    await expect(sweep({ 'mlp.hidden': '8,4' })).rejects.toThrow('a key with several') // One list.
    await expect(sweep({ 'ppo.gamma': '0.9,0.9' })).rejects.toThrow(
      'ppo.gamma: got "0.9,0.9", expected each value once',
    )
    await expect(sweep({ 'ppo.gamma': '0.9,' })).rejects.toThrow('none empty')
    await expect(sweep({ 'ppo.gamma': '0.9,2' })).rejects.toThrow('ppo.gamma')
    await expect(sweep({ 'ppo.gama': '0.9,0.8' })).rejects.toThrow('ppo.gama')
    await expect(sweep({ 'ppo.gamma': '0.9,0.8', seed: '1' })).rejects.toThrow('seeds, since a sweep has several')
    await expect(sweep({ 'ppo.gamma': '0.9,0.8' }, [])).rejects.toThrow('seeds: got none')
    folder = await temporaryFolder()
    const [index, settings] = ['index', 'entries/settings'].map(
      (name) => new URL(`../../dist/src/${name}.js`, import.meta.url),
    )
    const system = join(folder, 'own.mjs')
    await writeFile(
      system,
      `import { defineSystem } from '${index}'
      import { sizes } from '${settings}'
      export const own = defineSystem({
        id: 'own', module: import.meta.url, settings: { parts: sizes([1], 'parts') },
        make: () => ({ after: 'step', run() {} }),
      })`,
    )
    await expect(sweep({ systems: system, 'own.parts': '8,4' })).rejects.toThrow('a key with several') // One list.
    await writeFile(join(folder, 'mine.txt'), '')
    await expect(sweep({ 'ppo.gamma': '0.9,0.8' })).rejects.toThrow('which is not empty')
  })

  test('is trained by one command, which prints a row for each setting', async () => {
    const here = await temporaryFolder()
    const words = Object.entries({ ...small, 'ppo.gamma': '0.9,0.98' }).map((pair) => pair.join('='))
    const { code, stdout, stderr } = await inProcess(['sweep', 'CartPole-v1', ...words, 'seeds=1..2', '--quiet'], here)
    expect([code, stderr]).toEqual([0, ''])
    const rows = stdout.split('\n').map((line) => line.split(/\s{2,}/))
    expect(rows[0]).toEqual(['ppo.gamma', 'episodeReturn'])
    expect(rows.slice(1, 3).map(([gamma]) => gamma)).toEqual(['0.9', '0.98'])
    expect(rows.slice(1, 3).filter((row) => row.at(-1) === 'best by episodeReturn')).toHaveLength(1)
    expect(await readdir(join(here, 'runs'))).toEqual(['CartPole-v1-sweep-1'])
  })
})

describe('runs side by side', () => {
  const coming = async (given: Record<string, string>) => ({
    definition: await configureRun('CartPole-v1', { ...small, ...given }),
    folder: '',
  })

  test('share a world where they take as many steps, and are told why they do not', async () => {
    const told: Record<string, string>[] = [
      {},
      { seed: '2' },
      { numLanes: '4' },
      { numLanes: '4', seed: '2' },
      { totalSteps: '512' },
    ]
    const runs = await Promise.all(told.map(coming))
    expect(shareWorlds(runs)).toEqual([runs.slice(0, 2), runs.slice(2, 4)])
    const judged = await coming({ evaluateEvery: '1' })
    expect(whyApart(judged.definition)).toBe('it is evaluated while it trains (evaluateEvery)')
    expect(shareWorlds([runs[0]!, judged])).toEqual([])
    expect(whyApart((await coming({ 'ppo.maxStaleness': '1' })).definition)).toContain('maxStaleness')
    expect(whyApart((await coming({ loggers: 'csv' })).definition)).toBe('it has loggers')
  })

  test.each([1, 2])(
    'cohorts with seeds of their own learn what each learns alone, with %d threads',
    async (threads) => {
      const lanes = { environment: cartPole(), policy: mlp({ hidden: [6] }), numLanes: 4 }
      const names = ['one', 'third', 'other'] as const
      const seeds = { one: 7, other: 8, third: undefined }
      const cohorts = names.map((name) => ({ ...lanes, name, ...(seeds[name] !== undefined && { seed: seeds[name] }) }))
      const algorithm = () => ppo({ numSteps: 16, numMinibatches: 2 })
      const world = await createWorld({ cohorts, seed: 9 })
      const trainer = createTrainer(world, { one: algorithm(), other: algorithm(), third: algorithm() }, { threads })
      for await (const _ of trainer.updates({ totalSteps: 3 * 4 * 4 * 16 }));
      for (const name of names) {
        const own = await createWorld({ ...lanes, seed: seeds[name] ?? 9 })
        const single = createTrainer(own, algorithm())
        for await (const _ of single.updates({ totalSteps: 4 * 4 * 16 }));
        expect(world.cohort(name).weights, name).toEqual(own.cohort().weights)
        expect(trainer.rollouts[name]!.table.metadata).toMatchObject({ seed: String(seeds[name] ?? 9) })
      }
      trainer.close()
      const wrong = createWorld({ cohorts: [{ ...lanes, seed: -1 }] })
      await expect(wrong).rejects.toThrow('seed: got -1')
    },
  )

  test('cohorts save what each would save alone, and take up nothing of another seed', async () => {
    const lanes = {
      environment: { ...cartPole({ maxEpisodeSteps: 2 }), returnThreshold: 1.5 },
      policy: mlp({ hidden: [6] }),
      numLanes: 4,
    }
    const path = await temporaryFolder()
    const open = async (seeds: readonly number[], numSteps = [16, 16]) => {
      const cohorts = seeds.map((seed, i) => ({ ...lanes, name: `cohort${i}`, seed }))
      const world = await createWorld({ cohorts, seed: 3 })
      return createTrainer(world, {
        cohort0: ppo({ numSteps: numSteps[0]! }),
        cohort1: ppo({ numSteps: numSteps[1]! }),
      })
    }
    const trainer = await open([3, 4])
    for await (const _ of trainer.updates({ totalSteps: 2 * 4 * 4 * 16 }));
    const states = trainer.splitState()
    for (const [i, seed] of [3, 4].entries()) {
      const single = createTrainer(await createWorld({ ...lanes, seed }), ppo({ numSteps: 16 }))
      for await (const _ of single.updates({ totalSteps: 4 * 4 * 16 }));
      const { manifest } = states.get(`cohort${i}`)!
      const { solvedAtStep, episodes } = single.progress()
      expect(solvedAtStep).toBeGreaterThan(0)
      expect(manifest).toMatchObject({ seed, steps: 256, update: 4, seconds: trainer.seconds / 2 })
      expect(manifest.cohorts).toEqual({ mlp: expect.objectContaining({ solvedAtStep, episodes, steps: 256 }) })
    }
    await trainer.save(path)
    await expect((await open([3, 5])).restore(path)).rejects.toThrow('seed of cohort cohort1: got 4, expected 5')
    expect((await (await open([3, 4])).restore(path)).warnings).toEqual([])
    const uneven = await open([3, 4], [16, 8])
    expect(() => uneven.splitState()).toThrow(
      'cohorts of 64 and 32 steps an update, expected cohorts with equal steps per update',
    )
  })
})
