/** Events of runs: stop conditions, callbacks of programs, and those of modules on the command line. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { beforeEach, describe, expect, test } from 'vitest'
import { defineCallbacks, joinListeners } from '../../src/entries/loggers.ts'
import { configureRun, resumeRun, startRun } from '../../src/index.ts'
import { listCheckpoints } from '../../src/training/folder/checkpoint.ts'
import { whyApart } from '../../src/training/groups/side-by-side.ts'
import { inProcess, SMALL } from '../support/command.ts'
import { smallRun, untimedMetrics } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

let here: string
let folder: string
beforeEach(async () => {
  here = await temporaryFolder()
  folder = join(here, 'run')
})

describe('stop', () => {
  test('ends a run at the first update of which it is true, and a resumed one after it', async () => {
    const whole = await startRun(await smallRun(), join(here, 'whole'))
    await whole.train()
    const lines = (await untimedMetrics(whole.folder)) as Record<string, unknown>[]
    const first = lines.findIndex(({ update }) => Number(update) >= 3)
    const run = await startRun(await smallRun('stop=update >= 3 and gradNorm > 0'), folder)
    const summary = await run.train()
    expect([summary.status, summary.updates]).toEqual(['stopped', 3])
    expect(await untimedMetrics(folder)).toEqual(lines.slice(0, first + 1))
    const ended = await resumeRun(folder)
    expect(ended.ended).toBe('stopped')
    await ended.train()
    const further = await resumeRun(folder, { settings: { stop: '' } })
    expect((await further.train()).status).toBe('complete')
    expect(await untimedMetrics(folder)).toEqual(lines)
  })

  test('is refused before a folder is made', async () => {
    const started = startRun(await smallRun('stop=gradNrm > 3'), folder)
    await expect(started).rejects.toThrow('name in stop: got "gradNrm" (did you mean "gradNorm"?)')
    await expect(startRun(await smallRun('stop=evaluation.mean > 3'), folder)).rejects.toThrow('"evaluation.mean"')
    const judged = ['evaluateEvery=2', 'evaluateEpisodes=2']
    await expect(startRun(await smallRun(...judged, 'stop=evaluation.meen > 3'), folder)).rejects.toThrow(
      'name in stop: got "evaluation.meen" (did you mean "evaluation.mean"?)',
    )
    await expect(startRun(await smallRun(...judged, 'stop=evaluation > 3'), folder)).rejects.toThrow('"evaluation"')
    await expect(startRun(await smallRun('stop=475'), folder)).rejects.toThrow(
      'stop: got "475", expected a formula with a metric, like episodeReturn >= 475',
    )
    expect(await listCheckpoints(folder)).toEqual([])
  })

  test('warns once of a name that is no figure, and ends the runs of a sweep as it does that of one', async () => {
    const run = await startRun(await smallRun('stop=gradNorm.x > 3 or phaseSeconds.collect < 0'), folder)
    expect((await run.train()).status).toBe('complete')
    const log = await readFile(join(folder, 'run.log'), 'utf8')
    expect(log.match(/stop: .*/g)).toEqual([expect.stringContaining('stop: gradNorm.x is no figure of this update')])
    const definitions = await Promise.all([smallRun('stop=update >= 2'), smallRun()])
    expect(definitions.map(whyApart)).toEqual(['it may end before the others (stop)', null])
  })
})

/** Two updates by reinforcement learning, after two supervised steps. */
const text = (given: Record<string, string> = {}) =>
  configureRun('text/reverse', {
    ...{ 'environment.maxLength': '3', 'languageModel.width': '8', 'languageModel.layers': '1' },
    ...{ 'sft.updates': '2', 'sft.batchSize': '4', 'rl.groupSize': '2', 'rl.groupsPerUpdate': '2', 'rl.updates': '2' },
    ...{ numLanes: '4', threads: '1', ...given },
  })

test('stop and callbacks act on a run of a language model', async () => {
  await expect(startRun(await text({ stop: 'rewrd > 0' }), folder)).rejects.toThrow('(did you mean "reward"?)')
  const heard: string[] = []
  const run = await startRun(await text({ stop: 'reward >= 0 and rolloutSeconds > 0', checkpointEvery: '2' }), folder)
  const summary = await run.train({
    onUpdate: ({ phase }) => heard.push(phase),
    onCheckpoint: ({ checkpoint }) => heard.push(`checkpoint ${checkpoint}`),
  })
  expect(summary).toMatchObject({ status: 'stopped', sftSteps: 2, updates: 1 })
  const [, last] = await listCheckpoints(folder)
  expect(heard).toEqual(['sft', 'checkpoint 2', 'sft', 'rl', `checkpoint ${last}`])
})

describe('callbacks', () => {
  test('hear of updates, evaluations and checkpoints in order, and change no bits', async () => {
    const words = ['evaluateEvery=2', 'evaluateEpisodes=2', 'environment.maxEpisodeSteps=40', 'checkpointEvery=3']
    const heard: string[] = []
    const listeners = {
      onUpdate: ({ update }: { update: number }) => heard.push(`update ${update}`),
      onEvaluation: ({ episodes }: { episodes: number }, { update }: { update: number }) =>
        heard.push(`evaluation ${update} of ${episodes}`),
      onCheckpoint: ({ checkpoint }: { checkpoint: number }) => heard.push(`checkpoint ${checkpoint}`),
    }
    const run = await startRun(await smallRun(...words), folder)
    await run.train(joinListeners([listeners as never]))
    const silent = await startRun(await smallRun(...words), join(here, 'silent'))
    const { updates } = await silent.train()
    expect(await untimedMetrics(folder)).toEqual(await untimedMetrics(silent.folder))
    expect(heard.slice(0, 3)).toEqual([
      'update 1',
      'evaluation 2 of 2',
      expect.stringMatching(/^(checkpoint|update) 2$/),
    ])
    expect(heard.filter((line) => line.startsWith('update'))).toHaveLength(updates)
    expect(heard.filter((line) => line.startsWith('evaluation'))).toHaveLength(Math.ceil(updates / 2))
    expect(heard).toContain('checkpoint 3')
    expect(heard.at(-1)).toBe(`checkpoint ${updates}`)
  })

  test('come from modules on the command line, and may end the run', async () => {
    const entry = new URL('../../dist/src/entries/loggers.js', import.meta.url).href
    await writeFile(
      join(here, 'early.mjs'),
      `import { defineCallbacks } from ${JSON.stringify(entry)}
      export const early = defineCallbacks({
        id: 'early',
        listen(run) {
          const stop = new AbortController()
          const at = run.trainer.update + 2
          return { signal: stop.signal, onUpdate: ({ update }) => update === at && stop.abort() }
        },
      })`,
    )
    const words = ['callbacks=./early.mjs', '--quiet', '--json']
    const trained = await inProcess(['train', 'CartPole-v1', 'out=run', ...SMALL, ...words], here)
    expect(JSON.parse(trained.stdout)).toMatchObject({ status: 'interrupted', updates: 2 })
    const resumed = await inProcess(['resume', 'run', ...words], here)
    expect(JSON.parse(resumed.stdout)).toMatchObject({ status: 'interrupted', updates: 4 })
  })

  test('from a module are checked, whatever made them', async () => {
    await writeFile(
      join(here, 'typo.mjs'),
      `export const typo = Object.assign(() => ({ onUpdat() {} }), { id: 'typo' })`,
    )
    const words = ['train', 'CartPole-v1', ...SMALL, 'callbacks=./typo.mjs', '--quiet', 'out=run']
    const { code, stderr } = await inProcess(words, here)
    expect(code).toBe(1)
    expect(stderr).toContain('typo listen: got onUpdat, expected an object with any of onUpdate,')
  })

  test('may end a run before its first update, which then has no speed', async () => {
    const module = `export const over = Object.assign(() => ({ signal: AbortSignal.abort() }), { id: 'over' })`
    await writeFile(join(here, 'over.mjs'), module)
    const words = ['train', 'CartPole-v1', ...SMALL, 'callbacks=./over.mjs', '--quiet']
    const { stdout } = await inProcess([...words, 'out=run'], here)
    expect(stdout).toMatch(/^interrupted: 0 steps and 0 episodes in 0\.0 s$/m)
    const seeds = await inProcess([...words, 'seeds=1..2', 'out=seeds'], here)
    expect(seeds.stdout).toMatch(/^seed +status +seconds *$/m)
  })

  test('are waited for, see the line of their update, and end the run if they fail', async () => {
    const events: string[] = []
    const slow = async (name: string) => {
      events.push(`${name} begins`)
      await wait(5)
      events.push(`${name} ends`)
    }
    const run = await startRun(await smallRun('evaluateEvery=1', 'evaluateEpisodes=2', 'checkpointEvery=1'), folder)
    const failing = run.train(
      joinListeners([
        {
          onUpdate: () => slow('update'),
          async onEvaluation(judgment, { update }) {
            const lines = (await readFile(join(folder, 'metrics.jsonl'), 'utf8')).trim().split('\n')
            events.push(`${lines.length} lines`)
            Object.assign(judgment, { mean: 1e9 })
            if (update === 2) throw new Error('the callback fails')
          },
          onCheckpoint: () => slow('checkpoint'),
        },
      ]),
    )
    await expect(failing).rejects.toThrow('the callback fails')
    const one = ['1 lines', 'checkpoint begins', 'checkpoint ends', 'update begins', 'update ends', '2 lines']
    expect(events).toEqual(one)
    const resumed = await resumeRun(folder, { settings: { evaluateEvery: '0' } })
    expect(resumed.trainer.update).toBe(1)
    const { evaluation, status } = await resumed.train()
    expect(status).toBe('complete')
    expect(evaluation?.best?.mean).toBeLessThan(1000)
  })

  test('are waited for without joinListeners, and change no evaluation of the run', async () => {
    const words = ['evaluateEvery=2', 'evaluateEpisodes=2', 'environment.maxEpisodeSteps=40']
    const silent = await (await startRun(await smallRun(...words), join(here, 'silent'))).train()
    const run = await startRun(await smallRun(...words), folder)
    const heard: (readonly [told: number, reached: number])[] = []
    const { evaluation, updates } = await run.train({
      async onUpdate({ update }) {
        await wait(30) // An update takes less.
        heard.push([update, run.trainer.update])
      },
      onEvaluation: (judgment) => Object.assign(judgment, { mean: 1e9 }),
    })
    expect(heard).toEqual(Array.from({ length: updates }, (_, i) => [i + 1, i + 1]))
    expect(evaluation).toEqual(silent.evaluation)
  })

  test('are refused in a line', async () => {
    expect(() => defineCallbacks({ id: '', listen: () => ({}) })).toThrow('callbacks id: got "", expected a name')
    const wrong = defineCallbacks({ id: 'wrong', listen: () => ({ onEnd() {} }) as never })
    expect(() => wrong({} as never)).toThrow(
      'wrong listen: got onEnd, expected an object with any of onUpdate, onEvaluation, onCheckpoint, signal',
    )
    const late = defineCallbacks({ id: 'late', listen: (async () => ({})) as never })
    expect(() => late({} as never)).toThrow('late listen: got ')
    const no = defineCallbacks({ id: 'no', listen: () => ({ onUpdate: 5 }) as never })
    expect(() => no({} as never)).toThrow('no onUpdate: got 5, expected a function')
    const { stop } = (await configureRun('CartPole-v1')).settings
    expect(stop).toBe('')
  })
})
