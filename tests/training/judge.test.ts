/** Runs that are judged while they train. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { runMetrics } from '../../src/entries/settings.ts'
import {
  configureRun,
  type EpisodeRunDefinition,
  evaluate,
  InputError,
  loadPolicy,
  resumeRun,
  startRun,
} from '../../src/index.ts'
import { Judge, type Judgment, judgeSeed } from '../../src/training/evaluate/judge.ts'
import { listCheckpoints } from '../../src/training/folder/checkpoint.ts'
import { fingerprint, smallRun, untimedMetrics } from '../support/small-training.ts'
import { temporaryFolder } from '../support/temporary.ts'

let folder: string
beforeEach(async () => {
  folder = join(await temporaryFolder(), 'run')
})

const words = ['environment.maxEpisodeSteps=40', 'checkpointEvery=100', 'checkpointsKept=1']
const judged = [...words, 'evaluateEvery=3', 'evaluateEpisodes=5']
const linesOf = async (run: string) =>
  (await untimedMetrics(run)) as ({ update: number; evaluation?: Judgment } & Record<string, unknown>)[]
const judgment = (mean: number | null): Judgment => ({ mean, std: 0, min: mean, max: mean, episodes: 1 })

describe('a judge', () => {
  const settings = { evaluateEvery: 4, evaluateEpisodes: 1, stopAt: 9, patience: 2 }
  const judge = (told: Partial<typeof settings>, ...means: (number | null)[]) => {
    const lines = means.map((mean, i) => ({ number: 10 * i, evaluation: judgment(mean) }))
    return new Judge({ ...settings, stop: '', ...told }, [{ number: 1 }, ...lines], 'number', [])
  }

  test('keeps the first of the best, whatever is unknown', () => {
    expect(judge({}, null, 2, 5, 5).best).toMatchObject({ checkpoint: 20, mean: 5 })
    expect(judge({}, -3).add(50, judgment(-3))).toBe(false)
    expect(judge({}, -3).add(50, judgment(-2))).toBe(true)
    expect(judge({}, null)).toMatchObject({ best: null, last: { mean: null } })
    expect(judge({})).toMatchObject({ best: null, last: null, ended: null })
  })

  test.each([
    [[1, 9], 'solved'],
    [[9, 8], null],
    [[1, 2, 2], null],
    [[3, 2, 3], 'plateau'],
    [[3, 2, null], 'plateau'],
    [[3, 2, 3, 4], null],
  ] as const)('after %j says %s', (means, ended) => {
    expect(judge({}, ...means).ended).toBe(ended)
    expect(judge({ evaluateEvery: 0 }, ...means).ended).toBe(null)
    expect(judge({ patience: 0, stopAt: 100 }, ...means).ended).toBe(null)
  })

  test('asks for an evaluation each so many updates, and after the last', () => {
    const due = (every: number) =>
      [0, 1, 4, 6, 8].map((update) => judge({ evaluateEvery: every }).isDue(update, update === 6))
    expect(due(4)).toEqual([true, false, true, true, true])
    expect(due(0)).toEqual([false, false, false, false, false])
  })
})

describe('a run that is judged', () => {
  test('trains with the same bits, says how its weights did at the time, and keeps the best', async () => {
    const plain = join(await temporaryFolder(), 'plain')
    await (await startRun(await smallRun(...words, 'checkpointEvery=1', 'checkpointsKept=100'), plain)).train()
    const summary = await (await startRun(await smallRun(...judged), folder)).train()
    const withoutEvaluation = (lines: object[]) => lines.map((line) => ({ ...line, evaluation: undefined }))
    const [mine, bare] = [await fingerprint(folder), await fingerprint(plain)]
    expect([mine.checkpoint, mine.rollout]).toEqual([bare.checkpoint, bare.rollout])
    expect(withoutEvaluation(mine.metrics)).toEqual(withoutEvaluation(bare.metrics))

    const lines = (await linesOf(folder)).filter(({ evaluation }) => evaluation !== undefined)
    expect(lines.map(({ update }) => update)).toEqual([3, 6, 8])
    for (const { update, evaluation } of lines) {
      const { environment, policy, weights } = await loadPolicy(plain, { from: update })
      const { episodeReturn } = await evaluate({
        environment,
        policy,
        weights,
        episodes: 5,
        seed: judgeSeed(update, 1),
      })
      expect(evaluation).toEqual({ ...episodeReturn, episodes: 5 })
    }
    const means = lines.map(({ evaluation }) => evaluation!.mean!)
    const best = lines[means.indexOf(Math.max(...means))]!
    expect(summary.evaluation).toEqual({
      best: { checkpoint: best.update, ...best.evaluation },
      last: lines[2]!.evaluation,
    })
    expect(await listCheckpoints(folder)).toEqual([...new Set([best.update, 8])])
    expect(best.update).not.toBe(8) // Kept though it is not among the newest.

    const curve = await readFile(join(folder, 'learning-curve.svg'), 'utf8')
    expect(curve).toContain('>evaluation</text>')
    expect(await readFile(join(plain, 'learning-curve.svg'), 'utf8')).not.toContain('evaluation')
    expect(Object.keys(await runMetrics('CartPole-v1', { evaluateEvery: '3' }))).toContain('evaluation')
    expect(Object.keys(await runMetrics('CartPole-v1'))).not.toContain('evaluation')
  })

  test('and resumed says and keeps the same', async () => {
    const whole = join(await temporaryFolder(), 'whole')
    const { evaluation } = await (await startRun(await smallRun(...judged), whole)).train()
    for (const stopAt of [3, 5, null]) {
      const run = stopAt === 3 ? await startRun(await smallRun(...judged), folder) : await resumeRun(folder)
      const stop = new AbortController()
      const onUpdate = () => run.trainer.update === stopAt && stop.abort()
      await run.train({ onUpdate, signal: stop.signal })
    }
    expect(await fingerprint(folder)).toEqual(await fingerprint(whole))
    expect(await listCheckpoints(folder)).toEqual(await listCheckpoints(whole))
    expect(JSON.parse(await readFile(join(folder, 'summary.json'), 'utf8')).evaluation).toEqual(evaluation)
  })

  test('ends where an evaluation is good enough, or where they get no better, and goes on if that is taken back', async () => {
    const short = ['environment.maxEpisodeSteps=3', 'evaluateEvery=2', 'evaluateEpisodes=2'] // All return 3.
    const solved = await startRun(await smallRun(...short, 'stopAt=3'), folder)
    expect(await solved.train()).toMatchObject({
      status: 'solved',
      updates: 2,
      evaluation: { best: { checkpoint: 2 } },
    })
    const again = await resumeRun<EpisodeRunDefinition>(folder, { settings: { stopAt: '3.5', patience: '2' } })
    expect(again.ended).toBe(null)
    expect(await again.train()).toMatchObject({
      status: 'plateau',
      updates: 6,
      evaluation: { best: { checkpoint: 2 } },
    })
    expect(await listCheckpoints(folder)).toEqual([2, 6])
    const over = await resumeRun(folder)
    expect(over.ended).toBe('plateau')
    expect(await over.train()).toMatchObject({ status: 'plateau', updates: 6 })
    const further = await resumeRun(folder, { settings: { patience: '0' } })
    expect(await further.train()).toMatchObject({ status: 'complete', updates: 8 })
  })

  test('needs a reason for what it is told, and episodes that end', async () => {
    for (const [key, expected] of [
      ['stopAt', 'null'],
      ['patience', '0'],
    ]) {
      const told = `${key}: got 7, expected ${expected} with evaluateEvery 0`
      await expect(startRun(await smallRun(`${key}=7`), folder)).rejects.toThrow(told)
      await (await startRun(await smallRun('totalSteps=256'), `${folder}-${key}`)).train()
      await expect(resumeRun(`${folder}-${key}`, { settings: { [key!]: '7' } })).rejects.toThrow(told)
    }
    const definition = await smallRun('evaluateEvery=1')
    const endless = { ...definition, environment: { ...definition.environment, maxEpisodeSteps: null } }
    await expect(startRun(endless, folder)).rejects.toThrow(InputError)
    await expect(startRun(endless, folder)).rejects.toThrow('no time limit')
  })
})

test('a run of a language model is judged on seeds of its own, with the same bits', async () => {
  const told = {
    ...{ 'environment.maxLength': '3', 'languageModel.width': '8', 'languageModel.layers': '1', mode: 'rl' },
    ...{
      'rl.groupSize': '2',
      'rl.groupsPerUpdate': '2',
      'rl.updates': '4',
      numLanes: '4',
      threads: '1',
      checkpointsKept: '1',
    },
  }
  const plain = join(await temporaryFolder(), 'plain')
  await (await startRun(await configureRun('text/reverse', told), plain)).train()
  const asked = { ...told, evaluateEvery: '2', evaluateEpisodes: '6' }
  const summary = await (await startRun(await configureRun('text/reverse', asked), folder)).train()
  const weights = (run: string) => readFile(join(run, 'model', 'model.safetensors'))
  expect(await weights(folder)).toEqual(await weights(plain))
  const lines = await linesOf(folder)
  expect(lines.map(({ evaluation }) => evaluation?.episodes)).toEqual([undefined, 6, undefined, 6])
  const { best, last } = summary.evaluation!
  expect(last).toEqual(lines[3]!.evaluation)
  expect(lines.map(({ checkpoint }) => checkpoint)).toContain(best!.checkpoint)
  expect(await listCheckpoints(folder)).toContain(best!.checkpoint)
  expect(Object.keys(await runMetrics('text/reverse', asked))).toContain('evaluation')
})

test('no evaluation has the seed of its run', () => {
  expect(judgeSeed(10, 3)).toBe(1_000_010)
  expect(judgeSeed(10, 1_000_010)).toBe(999_990)
})
