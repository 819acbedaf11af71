/** How a sweep finds settings: proposals, halving, bounds and importance. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type SweepOptions, trainSweep } from '../../src/entries/data.ts'
import { configureRun, startRun } from '../../src/index.ts'
import { goingOn, rungsOf } from '../../src/training/groups/halving.ts'
import { boundsOf, importanceOf, rank, worthOf } from '../../src/training/groups/ranking.ts'
import { fractionOf, type Values, valueAt } from '../../src/training/groups/sampled-settings.ts'
import { checkSearch, nextCount, propose } from '../../src/training/groups/search.ts'
import { proposeByTpe } from '../../src/training/groups/tpe.ts'
import { inProcess } from '../support/command.ts'
import { fingerprint } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { thorough } from '../support/tiers.ts'

const space = new Map<string, Values>([
  ['rate', { from: 1e-5, to: 1e-1, isWhole: false }],
  ['gamma', { from: 0.9, to: 1, isWhole: false }],
  ['kind', ['a', 'b', 'c']],
  ['fixed', ['x']],
])

/** A search of an objective that needs a rate near 0.001 and kind b, by this sampler; the best value of each trial. */
function searched(search: 'quasi' | 'random' | 'tpe', samples: number, searchSeed: number): number {
  const worth = ({ rate, kind }: Record<string, string>) =>
    -Math.abs(Math.log10(Number(rate)) + 3) - (kind === 'b' ? 0 : 1)
  const tried: Record<string, string>[] = []
  const options = { search, samples, searchSeed, batch: 2 }
  for (let count = nextCount(options, 0); count > 0; count = nextCount(options, tried.length)) {
    const ranked = tried.toSorted((a, b) => worth(b) - worth(a))
    tried.push(...propose(space, ranked, count, options))
  }
  expect(tried).toHaveLength(samples)
  expect(new Set(tried.map((each) => JSON.stringify(each))).size).toBe(samples)
  const last = tried.slice(-samples / 2).map(worth)
  return last.reduce((sum, value) => sum + value, 0) / last.length
}

describe('a search', () => {
  test('by tpe tries better settings than a random one, and the same ones every time', () => {
    const seeds = [0, 1, 2, 3, 4]
    const means = (search: 'random' | 'tpe') => seeds.map((seed) => searched(search, 40, seed))
    const [random, tpe] = [means('random'), means('tpe')]
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
    expect(mean(tpe)).toBeGreaterThan(mean(random) / 2) // Both are below 0.
    expect(means('tpe')).toEqual(tpe)
    expect(new Set(random).size).toBe(5)
  })

  test('draws from the density of the best, not of the others', () => {
    const keys = [space.get('rate')!, space.get('kind')!]
    const good = Array.from({ length: 2 }, () => [0.8, 0.5])
    const bad = Array.from({ length: 18 }, (_, i) => [i / 36, i % 2 === 0 ? 0.1 : 0.9])
    const drawn = Array.from({ length: 50 }, (_, trial) => proposeByTpe(keys, [...good, ...bad], [], 1, trial))
    expect(drawn.filter(([rate]) => rate! > 0.5).length).toBeGreaterThan(45)
    expect(drawn.filter(([, kind]) => kind === 0.5).length).toBeGreaterThan(40)
    const away = Array.from({ length: 10 }, () => [0.8, 0.5])
    const others = Array.from({ length: 50 }, (_, trial) => proposeByTpe(keys, [...good, ...bad], away, 1, trial))
    const near = (settings: readonly (readonly number[])[]) => settings.filter(([rate]) => Math.abs(rate! - 0.8) < 0.05)
    expect(near(others).length).toBeLessThan(near(drawn).length) // What still trains is not tried again.
  })

  test('by tpe tries each setting of lists and whole numbers once, and refuses too many before any is trained', () => {
    const values = new Map<string, Values>([
      ['passes', { from: 1, to: 6, isWhole: true }],
      ['kind', ['a', 'b', 'c', 'd']],
    ])
    for (const batch of [1, 4]) {
      const options = { search: 'tpe', samples: 24, batch } as const
      const tried: Record<string, string>[] = []
      for (let count = nextCount(options, 0); count > 0; count = nextCount(options, tried.length)) {
        const ranked = tried.toSorted((a, b) => Number(b.passes) - Number(a.passes))
        tried.push(...propose(values, ranked, count, options))
      }
      expect(new Set(tried.map((each) => JSON.stringify(each))).size).toBe(24)
    }
    expect(() => propose(values, [], 10, { search: 'tpe', samples: 25 })).toThrow('at most the 24 different settings')
  })

  test('by tpe goes by results, although all settings near the best were tried', () => {
    const ten = [...'abcdefghij']
    const lists = new Map(['first', 'second'].map((key) => [key, ten]))
    const evenly = propose(lists, [], 60, { samples: 60 })
    const others = evenly.filter(({ first }) => first !== 'a')
    const tried = [...ten.map((second) => ({ first: 'a', second })), ...others.slice(0, 30)]
    const proposed = propose(lists, tried, 4, { search: 'tpe', samples: 60 })
    // A setting that is proposed again counts as bad; otherwise only the next evenly drawn ones would be left.
    expect(proposed).not.toEqual(others.slice(30, 34))
  })

  test('has the fractions of its values', () => {
    for (const values of [...space.values(), { from: 1, to: 8, isWhole: true }]) {
      for (const at of [0, 0.3, 0.99]) {
        const value = valueAt(values, at)
        expect(valueAt(values, fractionOf(values, value))).toBe(value)
      }
    }
  })

  test('refuses options that are none', () => {
    expect(() => checkSearch({ search: 'tpe' })).toThrow('search: got tpe, with samples 0')
    expect(() => checkSearch({ search: 'bayes' as never, samples: 4 })).toThrow('search: got "bayes"')
    expect(() => checkSearch({ search: 'tpe', samples: 4, batch: 0 })).toThrow('batch: got 0')
    expect(() => checkSearch({ samples: 4, searchSeed: -1 })).toThrow('seed: got -1')
    expect(() => propose(new Map([['kind', ['a', 'b']]]), [], 3, { search: 'random', samples: 3 })).toThrow(
      'samples: got 3, expected at most the 2 different settings',
    )
  })
})

describe('halving', () => {
  test('has rungs that grow by its factor', () => {
    expect(rungsOf({})).toEqual([1])
    expect(rungsOf({ halving: 4 })).toEqual([1 / 16, 1 / 4, 1])
    expect(rungsOf({ halving: 2, rungs: 2 })).toEqual([0.5, 1])
    expect(() => rungsOf({ halving: 1 })).toThrow('halving: got 1')
    expect(() => rungsOf({ halving: 2, rungs: 1 })).toThrow('rungs: got 1')
  })

  test('lets one of so many go on, and the best one once nothing else comes', () => {
    const reached = new Map([5, 1, 2, 4, 3, 0].map((setting) => [setting, setting === 2 ? 2 : 1]))
    const ranked = [5, 1, 2, 4, 3, 0]
    expect(goingOn(ranked, reached, 0, 2, false)).toEqual([5, 1]) // 2 went on before.
    expect(goingOn(ranked, reached, 0, 3, false)).toEqual([5, 1])
    expect(goingOn(ranked, reached, 0, 7, false)).toEqual([])
    expect(goingOn(ranked, reached, 0, 7, true)).toEqual([5])
    expect(goingOn(ranked, reached, 1, 2, true)).toEqual([2])
  })
})

describe('settings are compared', () => {
  const runs = [
    [
      { episodeReturn: 1, approxKl: 0.01 },
      { episodeReturn: 10, approxKl: 0.2 },
    ],
    [{ episodeReturn: 30, approxKl: 0.1, evaluation: { min: 3 } }, { episodeReturn: Number.NaN }],
  ]
  test('by the mean of the last values, within bounds', () => {
    const bounds = boundsOf(['approxKl<0.1', 'episodeReturn>15'], ['approxKl', 'episodeReturn'])
    expect(worthOf(runs, 'episodeReturn', bounds)).toEqual({ value: 20, excess: expect.closeTo(0.5) })
    expect(worthOf(runs, '-episodeReturn', []).value).toBe(-20)
    expect(worthOf(runs, 'evaluation/min', [])).toEqual({ value: Number.NEGATIVE_INFINITY, excess: 0 })
    const unknown = boundsOf(['evaluation/min>1'], ['evaluation'])
    expect(worthOf(runs, 'episodeReturn', unknown).excess).toBe(Number.POSITIVE_INFINITY)
    expect(() => boundsOf(['approxKl'], ['approxKl'])).toThrow('constraints: got "approxKl", expected bounds like')
    expect(() => boundsOf(['aproxKl<1'], ['approxKl'])).toThrow('approxKl')
  })

  test('those within bounds first, then those that trained longer, then the better ones', () => {
    const of = (value: number, reached: number, excess = 0) => ({ worth: { value, excess }, reached })
    const nothing = Number.NEGATIVE_INFINITY
    expect(rank([of(9, 1, 2), of(1, 1), of(nothing, 1), of(0, 2), of(5, 1), of(9, 1, 1), of(5, 1)])).toEqual([
      ...[3, 4, 6, 1, 2, 5, 0],
    ])
  })

  test('and each key has the share that it explains', () => {
    const settings = Array.from({ length: 64 }, (_, i) => ({
      rate: valueAt(space.get('rate')!, (((i * 7) % 64) + 0.5) / 64),
      gamma: valueAt(space.get('gamma')!, (((i * 29) % 64) + 0.5) / 64),
      kind: ['a', 'b', 'c'][i % 3]!,
      fixed: 'x',
    }))
    const byRate = settings.toSorted((a, b) => Number(a.rate) - Number(b.rate))
    const shares = importanceOf(space, byRate)!
    expect(Object.keys(shares)[0]).toBe('rate')
    // Quarters of 64 ranks explain 1 − 1/16 of their variance; ε² of it with n − 1 = 63 and n − 4 = 60.
    expect(shares.rate).toBeCloseTo(1 - ((16 ** 2 - 1) / (64 ** 2 - 1)) * (63 / 60), 10)
    expect([shares.gamma! < 0.1, shares.kind! < 0.1, shares.fixed]).toEqual([true, true, undefined])
    expect(importanceOf(space, settings.slice(0, 7))).toBe(null)
  })
})

const small = {
  totalSteps: '512',
  numLanes: '4',
  'mlp.hidden': '4',
  'ppo.numSteps': '16',
  'ppo.numMinibatches': '1',
  'ppo.updateEpochs': '1',
  'environment.maxEpisodeSteps': '40',
  'ppo.learningRate': '1e-4..1e-1',
}

describe('a sweep that searches', () => {
  const sweep = (folder: string, options: SweepOptions) =>
    trainSweep('CartPole-v1', small, [3, 4], { out: folder, samples: 4, ...options })
  const partsOf = async (folder: string) => {
    const found = await sweep(folder, { halving: 2, train: () => Promise.reject(new Error('trained again')) })
    return found.settings.map(({ part, status }) => `${part} ${status}`)
  }

  test('stops runs at rungs and goes on with the best, with the bits of a run that never stopped', async () => {
    const folder = join(await temporaryFolder(), 'sweep')
    const summary = await sweep(folder, { halving: 2 })
    expect(summary.status).toBe('complete')
    const parts = summary.settings.map(({ part, status }) => `${part} ${status}`)
    expect(parts.toSorted()).toEqual([...['0.25 paused', '0.25 paused', '0.5 paused', '1 complete']])
    expect(await partsOf(folder)).toEqual(parts) // Nothing is left to do.
    const best = summary.settings[summary.best!.setting]!
    expect(best.part).toBe(1)
    expect(best.figures.episodeReturn!.mean).toBe(
      Math.max(...summary.settings.filter(({ part }) => part === 1).map(({ figures }) => figures.episodeReturn!.mean)),
    )
    const preset = JSON.parse(await readFile(summary.files.best!, 'utf8'))
    expect(preset).toEqual({ ...small, ...best.varied })
    const single = join(await temporaryFolder(), 'alone')
    await (await startRun(await configureRun('CartPole-v1', { ...preset, seed: '4' }), single)).train()
    expect(await fingerprint(join(best.folder, 'seed-4'))).toEqual(await fingerprint(single))
    expect(summary.importance).toBe(null) // There are too few.
  })

  test.each([
    [
      'passes over recorded episodes',
      'CartPole-v1',
      { algorithm: 'bc', epochs: '2', 'mlp.hidden': '4' },
      '-policyLoss',
    ],
    ['supervised steps', 'text/reverse', { mode: 'sft', 'sft.updates': '2', 'languageModel.width': '16' }, '-loss'],
  ])('stops %s at rungs, too', async (_, environment, given, objective) => {
    const folder = await temporaryFolder()
    const isRecorded = environment === 'CartPole-v1'
    const texts: Record<string, string> = { ...given, [`${isRecorded ? 'bc' : 'sft'}.learningRate`]: '1e-3,1e-2' }
    if (isRecorded) {
      const run = await startRun(
        await configureRun(environment, { totalSteps: '256', numLanes: '2' }),
        join(folder, 'run'),
      )
      await run.train()
      const [file] = await readdir(join(folder, 'run/rollouts'))
      texts.from = join(folder, 'run/rollouts', file!)
    } else texts.numLanes = '2'
    const options = { out: join(folder, 'sweep'), objective, halving: 2, rungs: 2 }
    const { settings } = await trainSweep(environment, texts, [1], options)
    expect(settings.map(({ part }) => part).toSorted()).toEqual([0.5, 1])
    for (const { part, folder } of settings) {
      const lines = (await readFile(join(folder, 'seed-1/metrics.jsonl'), 'utf8')).trim().split('\n')
      expect(lines).toHaveLength(2 * part)
    }
  })

  test('goes on past a rung that some seeds did not reach, since stop ended them', async () => {
    const texts = { ...small, stop: 'episodeReturn >= 17', 'ppo.learningRate': '1e-3,1e-2' }
    const out = join(await temporaryFolder(), 'sweep')
    const { status, settings } = await trainSweep('CartPole-v1', texts, [1, 2], { out, halving: 2, rungs: 2 })
    expect(status).toBe('complete')
    expect(settings.map(({ part }) => part).toSorted()).toEqual([0.5, 1])
    const { folder } = settings.find(({ part }) => part === 0.5)!
    const statusOf = async (seed: number) =>
      JSON.parse(await readFile(join(folder, `seed-${seed}/summary.json`), 'utf8')).status
    expect([await statusOf(1), await statusOf(2)]).toEqual(['stopped', 'interrupted'])
  })

  thorough('proposes the same settings after it was interrupted', async () => {
    const [whole, folder] = [join(await temporaryFolder(), 'whole'), join(await temporaryFolder(), 'sweep')]
    const options = { search: 'tpe', samples: 12, batch: 2, halving: 2 } as const
    const { settings } = await sweep(whole, options)
    expect(settings).toHaveLength(12)
    const stop = new AbortController()
    let updates = 0
    const onUpdate = () => void (++updates === 3 && stop.abort())
    const first = await sweep(folder, { ...options, onUpdate, signal: stop.signal })
    expect(first.status).toBe('interrupted')
    const second = await sweep(folder, options)
    const plain = (some: typeof settings) =>
      some.map(({ varied, part, figures }) => [varied, part, figures.episodeReturn])
    expect([second.status, plain(second.settings)]).toEqual(['complete', plain(settings)])
    expect((await readdir(folder)).filter((name) => /^\d/.test(name))).toHaveLength(12)
    await expect(sweep(folder, { ...options, searchSeed: 1, ifExists: 'refuse' })).rejects.toThrow(
      'holds runs with other settings',
    )
  })

  test('by the command line, within bounds', async () => {
    const here = await temporaryFolder()
    const words = Object.entries({ ...small, totalSteps: '256' }).map((pair) => pair.join('='))
    const more = ['samples=8', 'search=random', 'seeds=1..1', 'objective=-learningRate', 'out=found', '--quiet']
    const found = await inProcess(['sweep', 'CartPole-v1', ...words, ...more, 'constraints=entropy<0.1'], here)
    expect([found.code, found.stderr]).toEqual([0, ''])
    expect(found.stdout).not.toContain('best by')
    const bounded = await inProcess(['sweep', 'CartPole-v1', ...words, ...more, 'ifExists=replace'], here)
    expect(bounded.stdout).toContain('best by -learningRate')
    expect(bounded.stdout).toMatch(/of the differences each key explains alone: ppo\.learningRate \d+ %/)
    expect(bounded.stdout).toMatch(/config= +found\/best\.json/)
    const rates = bounded.stdout
      .split('\n')
      .slice(1, 9)
      .map((line) => Number(line.split(/\s+/)[0]))
    const best = bounded.stdout.split('\n').findIndex((line) => line.includes('best by'))
    expect(rates[best - 1]).toBe(Math.min(...rates)) // It ends with the smallest.
    const wrong = await inProcess(['sweep', 'CartPole-v1', ...words, 'samples=8', 'objective=episodReturn'], here)
    expect(wrong.stderr).toContain('objective: got "episodReturn" (did you mean "episodeReturn"?)')
  })
})
