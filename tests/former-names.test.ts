/** Former names of settings: on the command line, in files, in programs, and in runs that were written by them. */
import { cp, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { temporaryFolder } from './support/temporary.ts'

let told: string[]
beforeEach(() => {
  vi.resetModules() // A notice comes once a process.
  told = []
  vi.spyOn(console, 'warn').mockImplementation((line) => void told.push(String(line)))
})
afterEach(() => vi.restoreAllMocks())

const NOTICES = [
  'colonnade: sft.steps is now called updates',
  'colonnade: sft.schedule is now called learningRateSchedule',
  'colonnade: rl.schedule is now called learningRateSchedule',
  'colonnade: heldOut is now called heldOutFraction',
  'colonnade: text/tool-arithmetic.shown is now called shownFraction',
]

const FORMER = {
  'sft.steps': '2',
  'sft.schedule': 'linear',
  'rl.schedule': 'cosine',
  heldOut: '0.3',
  'environment.shown': '0.4',
}
const TODAY = {
  'sft.updates': '2',
  'sft.learningRateSchedule': 'linear',
  'rl.learningRateSchedule': 'cosine',
  heldOutFraction: '0.3',
  'environment.shownFraction': '0.4',
}

test('keys of a run are taken by their former names, with one line each', async () => {
  const { configureRun, configOf } = await import('../src/training/run/run.ts')
  const config = async (texts: Record<string, string>) =>
    JSON.stringify(configOf('.', await configureRun('text/tool-arithmetic', texts)))
  const former = await config(FORMER)
  expect(told.toSorted()).toEqual(NOTICES.toSorted())
  await config(FORMER)
  expect(told).toHaveLength(NOTICES.length)
  expect(former).toBe(await config(TODAY))
  await expect(config({ ...FORMER, 'sft.updates': '3' })).rejects.toThrow('sft.steps: got a value, and sft.updates')
  await expect(config({ 'rl.steps': '3' })).rejects.toThrow('key: got "rl.steps"') // It never was one.
  await expect(config({ 'sft.heldOut': '3' })).rejects.toThrow('key: got "sft.heldOut"')
})

test('a program passes them, and a command and a sweep take them', async () => {
  const { sft } = await import('../src/algorithms/tokens/sft.ts')
  const given = { steps: 7, schedule: 'linear' } as never
  expect(sft(given).settings).toMatchObject({ updates: 7, learningRateSchedule: 'linear' })
  expect(told).toEqual(NOTICES.slice(0, 2))
  expect(() => sft({ steps: 7, updates: 8 } as never)).toThrow(
    'sft.steps: got a value, and updates, expected only one of the two names',
  )
  const { resolveSweepKeys } = await import('../src/training/groups/sweep.ts')
  expect((await resolveSweepKeys('text/reverse', { 'sft.steps': '3,4' })).get('sft.updates')).toEqual([3, 4])
  const { readKeys } = await import('../src/base/invocation.ts')
  const { number } = await import('../src/base/settings.ts')
  expect(readKeys({ faultFraction: number(0, '') }, { faultRate: '0.5' })).toEqual({ faultFraction: 0.5 })
})

describe('runs that an earlier version wrote', () => {
  const copy = async (name: string) => {
    const folder = join(await temporaryFolder(), name)
    await cp(new URL(`golden/runs-e7b57d5/${name}`, import.meta.url), folder, { recursive: true })
    return folder
  }
  const settingsOf = async (folder: string) => JSON.parse(await readFile(join(folder, 'config.json'), 'utf8'))

  test('of a language model goes on, and is then written by the names of today', async () => {
    const folder = await copy('words')
    const { resumeRun } = await import('../src/training/run/run.ts')
    const run = await resumeRun(folder, { settings: { 'rl.updates': '3' } })
    expect(told.toSorted()).toEqual(NOTICES.toSorted())
    const summary = await run.train()
    expect(summary).toMatchObject({ status: 'complete', updates: 3, sftSteps: 2 })
    const { settings, sft, rl, environment } = await settingsOf(folder)
    expect(settings.heldOutFraction).toBe(0.3)
    expect(sft.parameters).toMatchObject({ updates: 2, learningRateSchedule: 'linear' })
    expect(rl.parameters).toMatchObject({ updates: 3, learningRateSchedule: 'cosine' })
    expect(environment.parameters.shownFraction).toBe(0.4)
    expect(JSON.stringify({ settings, sft, rl, environment })).not.toMatch(/"(steps|schedule|heldOut|shown)"/)
  })

  test('is the run that the same words ask for, by either names', async () => {
    const small = {
      ...{ 'languageModel.width': '8', 'languageModel.layers': '1', 'languageModel.heads': '1', numLanes: '4' },
      ...{ 'rl.updates': '2', 'rl.groupSize': '2', 'rl.groupsPerUpdate': '2', 'sft.batchSize': '2', threads: '1' },
      ...{ kernels: 'plain', checkpointsKept: '1', trajectories: 'none', heldOutEpisodes: '2' },
    }
    const { startRun, configureRun } = await import('../src/training/run/run.ts')
    for (const names of [FORMER, TODAY]) {
      const folder = await copy('words')
      const definition = await configureRun('text/tool-arithmetic', { ...small, ...names })
      const run = await startRun(definition, folder, undefined, 'resume')
      expect([run.folder, run.ended]).toEqual([folder, 'complete'])
      await run.train()
    }
  })

  test('of a game goes on', async () => {
    const folder = await copy('game')
    const { resumeRun } = await import('../src/training/run/run.ts')
    const summary = await (await resumeRun(folder, { settings: { totalSteps: '768' } })).train()
    expect(summary).toMatchObject({ status: 'complete', totalSteps: 768 })
    expect(told).toEqual(['colonnade: opponentsShare is now called opponentsFraction'])
    expect((await settingsOf(folder)).settings).toMatchObject({ opponentsFraction: 0.4 })
  })

  test('with a value by both names is refused', async () => {
    const folder = await copy('game')
    const config = await settingsOf(folder)
    config.settings.opponentsFraction = 0.4
    await writeFile(join(folder, 'config.json'), JSON.stringify(config))
    const { openRun } = await import('../src/training/run/run.ts')
    await expect(openRun(folder)).rejects.toThrow('run.opponentsShare: got a value, and opponentsFraction')
  })
})

test('an environment names its players by the former name', async () => {
  const { box, defineEnvironment, discrete } = await import('../src/index.ts')
  const named = (name: string) =>
    defineEnvironment({
      id: `Pair-${name}`,
      settings: {},
      state: () => ({}),
      make: () => ({
        ...{ observationSpace: box({ low: 0, high: 1, shape: [1] }), actionSpace: discrete(2) },
        ...{ maxEpisodeSteps: 3, returnThreshold: null, [name]: 2 },
        reset() {},
        step() {},
      }),
    })()
  expect(named('numAgents').numPlayers).toBe(2)
  expect(told).toEqual(['colonnade: environment model.numAgents is now called numPlayers'])
  expect(named('numPlayers').numPlayers).toBe(2)
  expect(told).toHaveLength(1)
})
