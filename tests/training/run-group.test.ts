/** Runs that differ in nothing but their seed. */
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { parseSeeds, trainSeeds } from '../../src/entries/data.ts'
import { type Run, type RunSummary, resumeRun, startRun } from '../../src/index.ts'
import { inProcess, SMALL } from '../support/command.ts'
import { fingerprint, smallRun } from '../support/small-training.ts'
import { parseSvg } from '../support/svg.ts'
import { temporaryFolder } from '../support/temporary.ts'

const words = [
  ...SMALL.filter((word) => !word.startsWith('totalSteps=')),
  'totalSteps=1024',
  'environment.maxEpisodeSteps=40',
]
const given = Object.fromEntries(
  words.filter((word) => !word.startsWith('seed=')).map((word) => word.split('=') as [string, string]),
)

let folder: string
beforeEach(async () => {
  folder = join(await temporaryFolder(), 'group')
})

test.each([
  ['1..3', [1, 2, 3]],
  ['7', [7]],
  ['4,0..1, 9', [4, 0, 1, 9]],
])('seeds %s', (text, seeds) => expect(parseSeeds(text)).toEqual(seeds))

test.each([
  ['', 'seeds like 1..5 or 1,4,7'],
  ['3..1', 'seeds like'],
  ['1..9000', 'seeds like'],
  ['a', 'seeds like'],
  ['-1', 'seeds like'],
  ['1,', 'seeds like'],
  ['1..3,2', 'each seed once'],
])('seeds "%s" are refused', (text, expected) =>
  expect(() => parseSeeds(text)).toThrow(`seeds: got ${JSON.stringify(text)}, expected ${expected}`),
)

describe('a group of runs', () => {
  test('goes on with a module from elsewhere that it was told of, and with no other', async () => {
    const module = join(folder, '..', 'cart.mjs')
    const index = new URL('../../dist/src/index.js', import.meta.url).href
    await writeFile(
      module,
      `import { cartPole, defineEnvironment } from '${index}'
      const { id, parameters, ...model } = cartPole({ maxEpisodeSteps: 40 })
      export const mine = defineEnvironment({ id: 'Mine-v0', module: import.meta.url, settings: {}, state: () => model.state, make: () => model })`,
    )
    const stopping = (run: Run) => {
      const stop = new AbortController()
      return run.train({ onUpdate: () => stop.abort(), signal: stop.signal })
    }
    const { 'environment.maxEpisodeSteps': _, ...asked } = given
    expect((await trainSeeds(module, asked, [3], { out: folder, train: stopping })).status).toBe('interrupted')
    await expect(resumeRun(join(folder, 'seed-3'))).rejects.toThrow('a trusted module')
    expect((await trainSeeds(module, asked, [3], { out: folder })).status).toBe('complete')
  })

  test('has the runs that each seed alone has, with their mean and spread, and goes on where it was interrupted', async () => {
    const trained: number[] = []
    const stopping = (run: Run): Promise<RunSummary> => {
      trained.push(run.definition.settings.seed)
      const stop = new AbortController()
      return run.train({ onUpdate: () => trained.length === 2 && stop.abort(), signal: stop.signal })
    }
    const first = await trainSeeds('CartPole-v1', given, [3, 5, 8], { out: folder, train: stopping })
    expect(first.status).toBe('interrupted')
    expect(first.runs.map(({ seed, status }) => [seed, status])).toEqual([
      [3, 'complete'],
      [5, 'interrupted'],
    ])
    const whole = await trainSeeds('CartPole-v1', given, [3, 5, 8], { out: folder, train: stopping })
    expect(trained).toEqual([3, 5, 5, 8]) // The first stays as it is.
    expect(whole.status).toBe('complete')
    expect((await readdir(folder)).sort()).toEqual([
      'group.json',
      'learning-curve.svg',
      'seed-3',
      'seed-5',
      'seed-8',
      'summary.json',
    ])
    const alone = join(await temporaryFolder(), 'alone')
    await (await startRun(await smallRun(...words.slice(SMALL.length - 1), 'seed=5', 'totalSteps=1024'), alone)).train()
    expect(await fingerprint(join(folder, 'seed-5'))).toEqual(await fingerprint(alone))

    const summaries = await Promise.all(
      [3, 5, 8].map(async (seed) => JSON.parse(await readFile(join(folder, `seed-${seed}`, 'summary.json'), 'utf8'))),
    )
    const returns = summaries.map(({ episodeReturnLast100 }) => episodeReturnLast100.mean)
    expect(new Set(returns).size).toBe(3)
    const mean = (returns[0] + returns[1] + returns[2]) / 3
    expect(whole.figures.episodeReturn).toEqual({
      mean: expect.closeTo(mean, 9),
      std: expect.closeTo(Math.sqrt(returns.reduce((sum, value) => sum + (value - mean) ** 2, 0) / 3), 9),
      min: Math.min(...returns),
      max: Math.max(...returns),
      count: 3,
    })
    expect(Object.keys(whole.figures)).toEqual(['episodeReturn', 'stepsPerSecond', 'seconds']) // What no run has is not there.
    expect(JSON.parse(await readFile(join(folder, 'summary.json'), 'utf8'))).toEqual(whole)
    const curve = parseSvg(await readFile(join(folder, 'learning-curve.svg'), 'utf8'))
    expect(curve.textContent).toContain('CartPole-v1 by ppo, 3 seeds')
    expect(curve.querySelectorAll('[aria-label=band]')).toHaveLength(1)
    expect(curve.querySelector('[aria-label=rule] text')!.textContent).toBe('475')
  })

  test('is refused a folder with anything else, and a seed beside seeds, before anything is trained', async () => {
    const never = () => Promise.reject(new Error('it was trained'))
    const start = (told: Record<string, string>, seeds = [1]) =>
      trainSeeds('CartPole-v1', told, seeds, { out: folder, ifExists: 'refuse', train: never })
    await expect(start(given)).rejects.toThrow('it was trained')
    await expect(start({ ...given, numLanes: '16' })).rejects.toThrow('group, which holds runs with other settings')
    await expect(start({ ...given, seed: '1' })).rejects.toThrow('seed: got "1", expected seeds alone, or seed alone')
    await expect(start(given, [])).rejects.toThrow('seeds: got none')
    await expect(start({ ...given, 'ppo.gama': '1' })).rejects.toThrow('ppo.gama')
    folder = await temporaryFolder()
    await writeFile(join(folder, 'mine.txt'), '')
    await expect(start(given)).rejects.toThrow('which is not empty')
  })

  test('is trained by one command, which prints a row for each seed', async () => {
    const here = await temporaryFolder()
    const { code, stdout, stderr } = await inProcess(
      ['train', 'CartPole-v1', 'seeds=1..2', ...words.filter((word) => !word.startsWith('seed=')), '--quiet'],
      here,
    )
    expect([code, stderr]).toEqual([0, ''])
    const [head, one, two, mean] = stdout.split('\n').map((line) => line.split(/\s{2,}/))
    expect(head).toEqual(['seed', 'status', 'episodeReturn', 'stepsPerSecond', 'seconds'])
    expect([one!.slice(0, 2), two!.slice(0, 2)]).toEqual([
      ['1', 'complete'],
      ['2', 'complete'],
    ])
    expect(Number(mean![1])).toBeCloseTo((Number(one![2]) + Number(two![2])) / 2, 1)
    expect(await readdir(join(here, 'runs'))).toEqual(['CartPole-v1-seeds-1'])
  })
})
