import { appendFile, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { listRollouts } from '../../src/entries/data.ts'
import { runKeys } from '../../src/entries/settings.ts'
import {
  configureRun,
  type EpisodeRunDefinition,
  InputError,
  kindOfRun,
  loadPolicy,
  openRun,
  ppo,
  resumeRun,
  startRun,
} from '../../src/index.ts'
import { bestKernelBuild, kernelBuilds } from '../../src/kernels/bind.ts'
import { type EpisodeRecord, listCheckpoints, readCheckpoint } from '../../src/training/folder/checkpoint.ts'
import { kernelsAmong } from '../../src/training/recorded/recorded-kernels.ts'
import { counter } from '../support/counter.ts'
import { editManifest, fingerprint, smallRun, stateOf, untimedMetrics } from '../support/small-training.ts'
import { contents, temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

let folder: string
beforeEach(async () => {
  folder = join(await temporaryFolder(), 'run')
})

/** Runs a training of 8 updates, or up to the given one, as if stopped there by Ctrl-C. */
async function train(to: string, { stopAt, words = [] }: { stopAt?: number; words?: string[] } = {}) {
  const run = await startRun(await smallRun(...words), to)
  const stop = new AbortController()
  return run.train({ onUpdate: ({ update }) => update === stopAt && stop.abort(), signal: stop.signal })
}

/** The folder of a run that was stopped by a crash after the given update: what came after its last checkpoint stays. */
async function crash(to: string, { after, words = [] }: { after: number; words?: string[] }): Promise<void> {
  const run = await startRun(await smallRun(...words), to)
  const crashing = run.train({
    onUpdate({ update }) {
      if (update === after) throw new Error('the crash')
    },
  })
  await expect(crashing).rejects.toThrow('the crash')
}

describe('configureRun', () => {
  test('takes the defaults of runKeys where nothing is said', async () => {
    for (const id of ['CartPole-v1', 'Pendulum-v1'] as const) {
      const { environment, policy, algorithm, systems, settings } = await configureRun(id, {})
      const values = {
        ...settings,
        systems,
        wrappers: environment.wrappers ?? [],
        policy: policy.id,
        algorithm: algorithm.id,
        ...Object.fromEntries(
          Object.entries({ ppo: algorithm, mlp: policy, environment }).flatMap(([prefix, { parameters }]) =>
            Object.entries(parameters).map(([key, value]) => [`${prefix}.${key}`, value]),
          ),
        ),
      }
      const defaults = [...(await runKeys(id))].map(([key, setting]) => [key, setting.default])
      // A record leaves out what runs of earlier versions lack, where it has its default.
      const newer = { 'mlp.device': 'none', 'mlp.embedding': 0, 'mlp.layerNorm': false }
      for (const key of Object.keys(newer)) expect(values).not.toHaveProperty([key])
      expect({ ...values, ...newer }).toEqual(Object.fromEntries(defaults))
    }
  })

  test('reads each kind of value from text', async () => {
    const { environment, policy, algorithm, settings } = await configureRun('CartPole-v1', {
      seed: '9',
      totalSteps: '1_000',
      rollouts: 'all',
      stopWhenSolved: 'true',
      'ppo.learningRate': '1e-4',
      'ppo.targetKl': '0.02',
      'mlp.hidden': '32,16',
      'environment.maxEpisodeSteps': '50',
    })
    expect(settings).toMatchObject({ seed: 9, totalSteps: 1000, rollouts: 'all', stopWhenSolved: true })
    expect(algorithm.parameters).toMatchObject({ learningRate: 1e-4, targetKl: 0.02 })
    expect(policy.parameters).toMatchObject({ hidden: [32, 16] })
    expect(environment.maxEpisodeSteps).toBe(50)
  })

  test.each([
    ['numLanes', '0', 'a whole number ≥ 1'],
    ['numLanes', '-1', 'a whole number ≥ 1'],
    ['numLanes', '1.5', 'a whole number ≥ 1'],
    ['numLanes', 'NaN', 'a whole number ≥ 1'],
    ['numLanes', '', 'a whole number ≥ 1'],
    ['seed', 'Infinity', 'a whole number ≥ 0'],
    ['rollouts', 'some', 'one of last, all, none'],
    ['stopWhenSolved', 'yes', 'true or false'],
    ['ppo.learningRate', 'fast', 'a number'],
    ['mlp.hidden', '64,-1', 'a list of whole numbers ≥ 1'],
    ['environment.maxEpisodeSteps', '0', 'a whole number ≥ 1'],
  ])('refuses %s=%s', async (key, text, expected) => {
    const configuring = configureRun('CartPole-v1', { [key]: text })
    await expect(configuring).rejects.toThrow(InputError)
    await expect(configuring).rejects.toThrow(`${key}: got "${text}", expected ${expected}`)
  })

  test('takes the policy that is named, with its own keys', async () => {
    const { policy, settings } = await configureRun('CartPole-P-v1', {
      policy: 'recurrent',
      'recurrent.units': '5',
      numLanes: '3',
    })
    expect(policy).toMatchObject({ id: 'recurrent', parameters: { units: 5, cell: 'gru' } })
    expect(settings.numLanes).toBe(3)
    await expect(configureRun('CartPole-v1', { policy: 'recurrent', 'mlp.hidden': '5' })).rejects.toThrow(
      /^key: got "mlp\.hidden", expected one of \d+, like recurrent\.hidden, [^,]+, [^,]+$/,
    )
    await expect(configureRun('CartPole-v1', { policy: 'recurent' })).rejects.toThrow(
      'policy: got "recurent" (did you mean "recurrent"?), expected one of mlp, dense, convolutional, recurrent, qNetwork, sacNetwork',
    )
  })

  test('takes the algorithm that is named, of a module too, with its own keys', async () => {
    const module = fileURLToPath(new URL('../../dist/examples/custom-algorithm.js', import.meta.url))
    const { algorithm, policy, settings } = await configureRun('Pendulum-v1', {
      algorithm: module,
      'penalty-ppo.beta': '0.25',
    })
    expect(algorithm).toMatchObject({ id: 'penalty-ppo', parameters: { beta: 0.25 }, numSteps: 64 })
    // Nobody knows what works for it there.
    expect([policy.id, policy.parameters.activation, settings.numLanes]).toEqual(['mlp', 'tanh', 16])
    await expect(configureRun('CartPole-v1', { algorithm: module, 'ppo.gamma': '0.5' })).rejects.toThrow(
      /^key: got "ppo\.gamma", expected one of \d+, like penalty-ppo\.gamma, [^,]+, [^,]+$/,
    )
    await expect(configureRun('CartPole-v1', { algorithm: 'poo' })).rejects.toThrow(
      /^algorithm: got "poo" \(did you mean "ppo"\?\), expected one of \d+, like ppo.*$/,
    )
    await expect(configureRun('CartPole-v1', { algorithm: './nowhere.mjs' })).rejects.toThrow(
      /^algorithm module: got \/.+nowhere\.mjs/,
    )
  })

  test('takes the preset of the named policy and algorithm', async () => {
    const named = await configureRun('CartPole-v1', { algorithm: 'ppo', policy: 'mlp' })
    const usual = await configureRun('CartPole-v1', {})
    expect(named.algorithm.parameters).toEqual(usual.algorithm.parameters)
    expect(usual.algorithm.parameters).toMatchObject({ numSteps: 64, learningRate: 2e-3 })
    expect((await configureRun('CartPole-v1', { policy: 'dense' })).algorithm.parameters).toEqual(ppo().parameters)
  })

  test('refuses a policy and an algorithm whose keys would be the same', async () => {
    const namesake = join(await temporaryFolder(), 'namesake.mjs')
    const index = new URL('../../dist/src/index.js', import.meta.url).href
    await writeFile(
      namesake,
      `import { defineAlgorithm, ppo } from '${index}'
       export const named = defineAlgorithm({ id: 'mlp', module: import.meta.url, settings: {}, metrics: ppo.metrics, make: () => ppo() })`,
    )
    await expect(runKeys('CartPole-v1', { algorithm: namesake })).rejects.toThrow(
      'parts of the run: got mlp twice, of environment, mlp, mlp, expected ids that differ',
    )
  })

  test('names the nearest of what it does not know', async () => {
    await expect(configureRun('CartPol-v1' as string, {})).rejects.toThrow(
      /^environment: got "CartPol-v1" \(did you mean "CartPole-v1"\?\), expected one of \d+, like CartPole-v1, .+$/,
    )
    await expect(configureRun('CartPole-v1', { 'ppo.gama': '1' })).rejects.toThrow(
      /^key: got "ppo\.gama" \(did you mean "ppo\.gamma"\?\), expected one of \d+, like ppo\.gamma, [^,]+, [^,]+$/,
    )
    for (const key of ['constructor', 'toString']) {
      await expect(configureRun('CartPole-v1', { [key]: '1' })).rejects.toThrow(`key: got "${key}", expected one of`)
    }
  })

  test('names a module that is not there', async () => {
    await expect(configureRun('./nowhere.mjs', {})).rejects.toThrow(InputError)
    await expect(configureRun('./nowhere.mjs', {})).rejects.toThrow(/environment module: got \/.+nowhere\.mjs/)
  })
})

describe('startRun', () => {
  test('refuses a folder that holds a run, and says how to go on with it', async () => {
    await train(folder)
    const before = await contents(folder)
    const starting = startRun(await smallRun(), folder, undefined, 'refuse')
    await expect(starting).rejects.toThrow(InputError)
    await expect(starting).rejects.toThrow(
      `out: got ${folder}, which holds a run, expected a new folder (to continue it: colonnade resume ${folder})`,
    )
    expect(await contents(folder)).toEqual(before)
  })

  test('refuses a folder that holds anything else, and takes an empty one', async () => {
    await mkdir(folder)
    await writeFile(join(folder, 'notes'), 'kept')
    await expect(startRun(await smallRun(), folder)).rejects.toThrow(
      /which is not empty, expected a new or empty folder/,
    )
    expect(await contents(folder)).toEqual({ notes: Buffer.from('kept').toString('base64') })
    await rm(join(folder, 'notes'))
    await startRun(await smallRun(), folder)
    expect(await readdir(folder)).toContain('config.json')
  })

  test('takes up what a start left that was cut off before there was a run', async () => {
    await mkdir(join(folder, 'checkpoints', '.00000000.4711.tmp'), { recursive: true })
    await mkdir(join(folder, 'checkpoints', '00000000'))
    await writeFile(join(folder, 'config.json.4711.tmp'), '{"colon')
    await train(folder)
    expect((await readdir(folder)).sort()).toEqual(
      ['checkpoints', 'config.json', 'learning-curve.svg', 'metrics.jsonl', 'rollouts', 'summary.json'].sort(),
    )
    expect(await listCheckpoints(folder)).toEqual([8])
    await rm(join(folder, 'config.json'))
    await expect(startRun(await smallRun(), folder)).rejects.toThrow('which is not empty') // It holds work of somebody.
  })

  test('refuses settings that do not go together before anything is written', async () => {
    await expect(startRun(await smallRun('ppo.numMinibatches=10000'), folder)).rejects.toThrow(InputError)
    await expect(readdir(folder)).rejects.toThrow('ENOENT')
  })
})

describe('a run', () => {
  test('keeps the rollouts that it is told to keep', async () => {
    const names = async (rollouts: string) => {
      await train(join(folder, rollouts), { words: [`rollouts=${rollouts}`] })
      return (await readdir(join(folder, rollouts, 'rollouts')).catch(() => [])).sort()
    }
    expect(await names('none')).toEqual([])
    expect(await names('last')).toEqual(['00000008.arrow'])
    expect(await names('all')).toEqual(Array.from({ length: 8 }, (_, i) => `0000000${i + 1}.arrow`))
  })

  test('writes checkpoints as often as told, and one at the end, and keeps as many as told', async () => {
    await train(folder, { words: ['checkpointEvery=3', 'checkpointsKept=2'] })
    expect(await listCheckpoints(folder)).toEqual([6, 8])
  })

  test('tells a listener of each update once its line is in metrics.jsonl', async () => {
    const run = await startRun(await smallRun(), folder)
    const seen: number[] = []
    const lines: Promise<number>[] = []
    await run.train({
      onUpdate({ update, steps }, progress) {
        expect(steps).toBe(256 * update)
        expect(progress.episodes).toBe(run.trainer.progress().episodes)
        seen.push(update)
        lines.push(readFile(join(folder, 'metrics.jsonl'), 'utf8').then((text) => text.split('\n').length - 1))
      },
    })
    expect(seen).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
    for (const [i, count] of (await Promise.all(lines)).entries()) expect(count).toBeGreaterThan(i)
  })

  test('ends where it is solved if told so', async () => {
    const words = ['stopWhenSolved=true', 'totalSteps=1000000', 'environment.maxEpisodeSteps=3']
    const definition = await smallRun(...words)
    const easy = { ...definition, environment: { ...definition.environment, returnThreshold: 3 } }
    const run = await startRun(easy, folder)
    const summary = await run.train()
    expect(summary).toMatchObject({ status: 'solved', episodeReturnLast100: { mean: 3, std: 0 } })
    expect(summary.solvedAtStep).toBeLessThanOrEqual(summary.totalSteps)
    expect(summary.totalSteps - summary.solvedAtStep!).toBeLessThan(256)
    expect(summary.solvedAtSeconds).toBeLessThanOrEqual(summary.seconds)
  })
})

describe('a run that was stopped and resumed equals the uninterrupted run', () => {
  const words = ['rollouts=all', 'checkpointEvery=3', 'environment.maxEpisodeSteps=40']
  let whole: string
  let expected: Awaited<ReturnType<typeof fingerprint>>
  beforeAll(async () => {
    whole = join(await temporaryFolder(), 'whole')
    await train(whole, { words })
    expected = await fingerprint(whole)
    expect(expected.newest).toBe('00000008')
    expect(expected.metrics.map(({ update }) => update)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  })

  // At a checkpoint that there would be, and between two of them.
  test.each(rowsOf([3, 4, 1, 2, 5, 6, 7], 2))('when stopped after update %i', async (stopAt) => {
    const summary = await train(folder, { stopAt, words })
    expect(summary).toMatchObject({ status: 'interrupted', updates: stopAt, totalSteps: 256 * stopAt })
    const run = await resumeRun<EpisodeRunDefinition>(folder)
    expect(run.trainer.update).toBe(stopAt)
    expect(run.warnings).toEqual([])
    const { status, totalSteps, episodes } = await run.train()
    expect({ status, totalSteps }).toEqual({ status: 'complete', totalSteps: 2048 })
    expect(episodes).toBe(JSON.parse(await readFile(join(whole, 'summary.json'), 'utf8')).episodes)
    expect(await fingerprint(folder)).toEqual(expected)
  })

  test('when stopped before its first update, which leaves the rollout that is there', async () => {
    const last = words.with(0, 'rollouts=last')
    const stopped = AbortSignal.abort()
    const begun = await startRun(await smallRun(...last), folder)
    expect(await begun.train({ signal: stopped })).toMatchObject({ status: 'interrupted', updates: 0 })
    expect(await readdir(folder)).not.toContain('rollouts')
    const stop = new AbortController()
    const run = await resumeRun<EpisodeRunDefinition>(folder)
    await run.train({ onUpdate: ({ update }) => update === 3 && stop.abort(), signal: stop.signal })
    const path = join(folder, 'rollouts/00000003.arrow')
    const rollout = await readFile(path)
    const again = await resumeRun(folder)
    expect(await again.train({ signal: stopped })).toMatchObject({ status: 'interrupted', updates: 3 })
    expect(await readFile(path)).toEqual(rollout)
    await (await resumeRun(folder)).train()
    expect(await fingerprint(folder)).toEqual(expected)
  })

  test('when stopped again and again', async () => {
    await train(folder, { stopAt: 2, words })
    for (const stopAt of [3, 5, 6]) {
      const stop = new AbortController()
      const run = await resumeRun<EpisodeRunDefinition>(folder)
      await run.train({ onUpdate: ({ update }) => update === stopAt && stop.abort(), signal: stop.signal })
      expect(await listCheckpoints(folder)).toContain(stopAt)
    }
    await (await resumeRun<EpisodeRunDefinition>(folder)).train()
    expect(await fingerprint(folder)).toEqual(expected)
  })

  test('when it crashed after updates that no checkpoint holds', async () => {
    await crash(folder, { after: 5, words })
    expect(await listCheckpoints(folder)).toEqual([3])
    expect((await untimedMetrics(folder)).length).toBe(5)
    const run = await resumeRun<EpisodeRunDefinition>(folder)
    expect(run.trainer.update).toBe(3)
    expect((await untimedMetrics(folder)).map(({ update }) => update)).toEqual([1, 2, 3])
    expect((await listRollouts(folder)).map((path) => path.slice(-14))).toEqual(
      [1, 2, 3].map((update) => `0000000${update}.arrow`),
    )
    await run.train()
    expect(await fingerprint(folder)).toEqual(expected)
  })

  test('when it crashed before its first checkpoint: it begins at the start', async () => {
    await crash(folder, { after: 2, words })
    expect(await listCheckpoints(folder)).toEqual([])
    const run = await resumeRun<EpisodeRunDefinition>(folder)
    expect(run.warnings).toEqual([])
    expect(run.trainer.update).toBe(0)
    expect(await readFile(join(folder, 'metrics.jsonl'), 'utf8')).toBe('')
    expect(await listRollouts(folder)).toEqual([])
    await run.train()
    expect(await fingerprint(folder)).toEqual(expected)
  })

  test('when it crashed before it had done anything', async () => {
    await startRun(await smallRun(...words), folder)
    await (await resumeRun<EpisodeRunDefinition>(folder)).train()
    expect(await fingerprint(folder)).toEqual(expected)
  })

  test('when the last line of metrics.jsonl was torn', async () => {
    await train(folder, { stopAt: 3, words })
    await appendFile(join(folder, 'metrics.jsonl'), '{"update":4,"steps":10')
    await (await resumeRun<EpisodeRunDefinition>(folder)).train()
    expect(await fingerprint(folder)).toEqual(expected)
  })

  test('when it crashed with rollouts=last, and then keeps the last rollout only', async () => {
    const last = words.with(0, 'rollouts=last')
    await train(folder, { stopAt: 2, words: last })
    expect((await listRollouts(folder)).map((path) => path.slice(-14))).toEqual(['00000002.arrow'])
    await (await resumeRun<EpisodeRunDefinition>(folder)).train()
    expect((await listRollouts(folder)).map((path) => path.slice(-14))).toEqual(['00000008.arrow'])
    expect(await fingerprint(folder)).toEqual(expected)
  })

  test('when it stopped at its end because the last rollout could not be written', async () => {
    const run = await startRun(await smallRun(...words.with(0, 'rollouts=last')), folder)
    await writeFile(join(folder, 'rollouts'), 'a file where the folder should be')
    await expect(run.train()).rejects.toThrow(InputError)
    await rm(join(folder, 'rollouts'))
    await (await resumeRun<EpisodeRunDefinition>(folder)).train()
    expect(await fingerprint(folder)).toEqual(expected)
  })
})

describe('resumeRun', () => {
  let complete: string
  beforeAll(async () => {
    complete = join(await temporaryFolder(), 'complete')
    await train(complete)
  })
  beforeEach(async () => {
    await cp(complete, folder, { recursive: true })
  })

  test('finishes a complete run at once, with the same summary, and changes nothing else', async () => {
    const before = await contents(folder)
    await rm(join(folder, 'summary.json'))
    await rm(join(folder, 'learning-curve.svg'))
    const run = await resumeRun<EpisodeRunDefinition>(folder)
    const updates: number[] = []
    const summary = await run.train({ onUpdate: ({ update }) => updates.push(update) })
    expect(updates).toEqual([])
    const { folder: elsewhere, files, ...same } = JSON.parse(await readFile(join(complete, 'summary.json'), 'utf8'))
    expect(summary).toMatchObject(same)
    const { 'summary.json': _, ...after } = await contents(folder)
    const { 'summary.json': __, ...untouched } = before
    expect(after).toEqual(untouched)
  })

  test('goes on with the kernels of its checkpoint', async () => {
    const path = join(folder, 'checkpoints/00000008/manifest.json')
    await editManifest(path, (whole) => ({ ...whole, kernels: 'simd' }))
    const { trainer, warnings } = await resumeRun<EpisodeRunDefinition>(folder)
    expect(warnings).toEqual([])
    expect(trainer.world.kernelBuild).toBe('simd')
    expect(JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')).settings.kernels).toBe('best')
  })

  test('goes on with the kernels that are given, and warns that its bits are others', async () => {
    const { trainer, warnings } = await resumeRun<EpisodeRunDefinition>(folder, { settings: { kernels: 'plain' } })
    expect(trainer.world.kernelBuild).toBe('plain')
    expect(warnings).toEqual([`kernels was ${bestKernelBuild()} and is plain: the run continues, but with other bits`])
    expect(JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')).settings.kernels).toBe('plain')
  })

  test('refuses a checkpoint by kernels that are not here, unless others are given, and drops nothing', async () => {
    const path = join(folder, 'checkpoints/00000008/manifest.json')
    await editManifest(path, (whole) => ({ ...whole, kernels: 'other' }))
    const before = await contents(folder)
    await expect(resumeRun<EpisodeRunDefinition>(folder)).rejects.toThrow(
      `got a checkpoint by other kernels, expected one by ${kernelBuilds().join(', ')} kernels, which this runtime has;`,
    )
    expect(await contents(folder)).toEqual(before)
    const { warnings } = await resumeRun<EpisodeRunDefinition>(folder, { settings: { kernels: 'best' } })
    expect(warnings).toEqual([`kernels was other and is ${bestKernelBuild()}: the run continues, but with other bits`])
  })

  test('takes kernels that leave the same bits where those of a checkpoint are not here, and says so', () => {
    expect(kernelsAmong(['plain', 'simd', 'relaxed'], 'run', 'native')).toMatchObject({
      build: 'relaxed',
      notes: [expect.stringContaining('kernels were native and are relaxed, which give the same bits')],
    })
    expect(kernelsAmong(['plain', 'simd', 'relaxed', 'native'], 'run', 'relaxed')).toEqual({
      build: 'relaxed',
      notes: [],
    })
    expect(() => kernelsAmong(['plain', 'simd'], 'run', 'native')).toThrow('run: got a checkpoint by native kernels')
  })

  test('refuses a checkpoint that is corrupt, and drops nothing', async () => {
    const path = join(folder, 'checkpoints/00000008/columns.safetensors')
    const bytes = await readFile(path)
    bytes[bytes.length >> 1]! ^= 1
    await writeFile(path, bytes)
    const before = await contents(folder)
    const resuming = resumeRun<EpisodeRunDefinition>(folder)
    await expect(resuming).rejects.toThrow(InputError)
    await expect(resuming).rejects.toThrow(/checkpoint .+00000008: got .+SHA-256.+, expected .+corrupt/)
    expect(await contents(folder)).toEqual(before)
  })

  test('names the next older checkpoint that is whole, and goes on from it where that is asked', async () => {
    const words = ['checkpointEvery=3', 'rollouts=all']
    const [whole, broken] = [join(folder, 'whole'), join(folder, 'broken')]
    await train(whole, { words })
    await cp(whole, broken, { recursive: true })
    await writeFile(join(broken, 'checkpoints/00000008/columns.safetensors'), 'damaged')
    await expect(resumeRun<EpisodeRunDefinition>(broken)).rejects.toThrow(
      /00000008: got .+; from=6 is the newest whole checkpoint$/,
    )
    await expect(resumeRun<EpisodeRunDefinition>(broken, { from: 5 })).rejects.toThrow(
      /got update 5, expected one of 3, 6, 8/,
    )
    await expect(resumeRun<EpisodeRunDefinition>(broken, { from: 8 })).rejects.toThrow(/the file is corrupt$/)
    expect(await listCheckpoints(broken)).toEqual([3, 6, 8])
    const run = await resumeRun<EpisodeRunDefinition>(broken, { from: 6 })
    expect(run.trainer.update).toBe(6)
    expect(await listCheckpoints(broken)).toEqual([3, 6])
    expect(await readdir(join(broken, 'rollouts'))).toHaveLength(6)
    await run.train()
    expect(await fingerprint(broken)).toEqual(await fingerprint(whole))
  })

  test('repairs metrics.jsonl up to the checkpoint, line by line, and tells what is lost', async () => {
    const path = join(folder, 'metrics.jsonl')
    const lines = (await readFile(path, 'utf8')).trimEnd().split('\n')
    const spoilt = lines.with(2, lines[2]!.slice(0, 40)).with(3, '\0\0\0\0').with(5, lines[1]!).with(6, '[6]')
    await writeFile(path, `${spoilt.join('\n')}\n{"update": 9}\n{"upd`)
    const { warnings } = await resumeRun<EpisodeRunDefinition>(folder)
    const warning = 'metrics.jsonl: 4 damaged lines left out (the first is line 3); 4 lines of 8 are missing'
    expect(warnings).toEqual([warning])
    expect(await readFile(path, 'utf8')).toBe([0, 1, 4, 7].map((i) => `${lines[i]}\n`).join(''))
    expect(await readFile(join(folder, 'run.log'), 'utf8')).toMatch(
      new RegExp(`^[\\dT:.Z-]+ process ${process.pid}: ${warning.replaceAll(/[()]/g, '\\$&')}\n$`),
    )
    await rm(path)
    expect((await resumeRun<EpisodeRunDefinition>(folder)).warnings).toEqual([
      'metrics.jsonl: 8 lines of 8 are missing',
    ])
  })

  test('goes on with a complete run as the uninterrupted one where it is given more steps', async () => {
    const [short, long] = [join(folder, 'short'), join(folder, 'long')]
    const words = ['ppo.learningRateSchedule=constant', 'checkpointEvery=3']
    await train(long, { words })
    await train(short, { words: [...words, 'totalSteps=1280'] })
    const run = await resumeRun<EpisodeRunDefinition>(short, { settings: { totalSteps: '2048', checkpointsKept: '1' } })
    expect(run.warnings).toEqual(['totalSteps was 1280 and is 2048: schedules use the new number from now on'])
    expect(await run.train()).toMatchObject({ status: 'complete', totalSteps: 2048, updates: 8 })
    expect(await fingerprint(short)).toEqual(await fingerprint(long))
    expect(await listCheckpoints(short)).toEqual([8])
    expect((await openRun(short)).settings).toMatchObject({ totalSteps: 2048, checkpointsKept: 1 })
    for (const key of ['seed', 'numLanes', 'ppo.gamma', 'constructor']) {
      await expect(resumeRun<EpisodeRunDefinition>(short, { settings: { [key]: '3' } })).rejects.toThrow(
        `key: got "${key}", expected one of`,
      )
    }
    await expect(resumeRun<EpisodeRunDefinition>(short, { settings: { totalSteps: 'more' } })).rejects.toThrow(
      'totalSteps: got "more"',
    )
  })

  test('of a run that this process trains is refused; one that was not trained gives way', async () => {
    const run = await resumeRun<EpisodeRunDefinition>(folder, { settings: { totalSteps: '2560' } })
    const other = await resumeRun<EpisodeRunDefinition>(folder)
    await expect(run.train()).rejects.toThrow('a run that has ended, or was resumed since')
    let refusal: unknown
    await other.train({
      onUpdate() {
        refusal ??= resumeRun<EpisodeRunDefinition>(folder).catch((error) => error)
      },
    })
    expect(await refusal).toBeInstanceOf(InputError)
    expect(String(await refusal)).toContain('which is in use by this process')
  })

  test('takes up a checkpoint whose settings stand in another order, as another version writes them', async () => {
    await editManifest(join(folder, 'checkpoints', '00000008', 'manifest.json'), (manifest) => {
      const cohorts = Object.entries(manifest.cohorts).map(([name, record]) => {
        const { id, parameters } = (record as EpisodeRecord).algorithm
        const reversed = Object.fromEntries(Object.entries(parameters).reverse())
        return [name, { ...record, algorithm: { id, parameters: reversed } }]
      })
      return { ...manifest, cohorts: Object.fromEntries(cohorts) }
    })
    expect((await resumeRun(folder)).trainer.update).toBe(8)
  })

  test('refuses the checkpoint of another training, and drops nothing', async () => {
    const path = join(folder, 'config.json')
    const config = JSON.parse(await readFile(path, 'utf8'))
    await writeFile(path, JSON.stringify({ ...config, settings: { ...config.settings, seed: 2 } }))
    const before = await contents(folder)
    await expect(resumeRun<EpisodeRunDefinition>(folder)).rejects.toThrow(
      /seed: got 1, expected 2, as in this training/,
    )
    expect(await contents(folder)).toEqual(before)
  })

  test.each([
    ['metrics.jsonl', (path: string) => mkdir(path)],
    ['rollouts', (path: string) => writeFile(path, 'no folder')],
  ])('refuses %s that cannot be read, and drops nothing', async (name, spoil) => {
    const path = join(folder, name)
    await rm(path, { recursive: true, force: true })
    await spoil(path)
    const before = await contents(folder)
    await expect(resumeRun<EpisodeRunDefinition>(folder)).rejects.toThrow(InputError)
    await expect(resumeRun<EpisodeRunDefinition>(folder)).rejects.toThrow(/expected readable files/)
    expect(await contents(folder)).toEqual(before)
  })

  test('goes on with more steps if the config says so', async () => {
    const path = join(folder, 'config.json')
    const config = JSON.parse(await readFile(path, 'utf8'))
    await writeFile(path, JSON.stringify({ ...config, settings: { ...config.settings, totalSteps: 2560 } }))
    const summary = await (await resumeRun<EpisodeRunDefinition>(folder)).train()
    expect(summary).toMatchObject({ status: 'complete', updates: 10, totalSteps: 2560 })
  })
})

describe('openRun', () => {
  const refused: [string, string | null, RegExp][] = [
    ['no config.json', null, /: got a folder without a config\.json, expected a run folder/],
    ['a config.json that is not JSON', '{"environment":', /run: got .+, expected a run folder with a config\.json/],
    ['a config.json that is null', 'null', /run: got .+ \(it holds null\), expected a run folder with a config\.json/],
    ['a config.json of something else', '{"name":"x"}', /config\.json: got no environment, expected the config/],
    ['an environment that is null', config({ environment: null }), /config\.json: got no environment, expected/],
    ['an unknown environment', config({ environment: { id: 'CartPole-v9' } }), /"CartPole-v9".+mean "CartPole-v1"/],
    ['an unknown policy', config({ policy: { id: 'mpl', parameters: {} } }), /policy: got "mpl".+mean "mlp"/],
    ['an unknown algorithm', config({ algorithm: { id: 'ppo2', parameters: {} } }), /algorithm: got "ppo2".+"ppo"/],
    ['a bad setting', config({ settings: { numLanes: 0 } }), /run\.numLanes: got 0, expected a whole number ≥ 1/],
    ['an unknown setting', config({ settings: { lanes: 1 } }), /run setting: got "lanes".+mean "numLanes"/],
    ['a bad parameter', config({ algorithm: { id: 'ppo', parameters: { gamma: 2 } } }), /ppo\.gamma: got 2, expected/],
  ]

  function config(changed: object): string {
    const parts = { environment: 'CartPole-v1', policy: 'mlp', algorithm: 'ppo' }
    const records = Object.fromEntries(Object.entries(parts).map(([key, id]) => [key, { id, parameters: {} }]))
    return JSON.stringify({ ...records, settings: {}, ...changed })
  }

  test.each(refused)('refuses a folder with %s', async (_, text, message) => {
    await mkdir(folder)
    if (text !== null) await writeFile(join(folder, 'config.json'), text)
    for (const open of [openRun, resumeRun, loadPolicy]) {
      await expect(open(folder)).rejects.toThrow(message)
      await expect(open(folder)).rejects.toThrow(InputError)
    }
  })

  test('names the runs in a folder that is none itself, or beside one that is not there', async () => {
    const names = ['mine', 'theirs', 'tuned/first', 'others']
    await mkdir(join(folder, 'model'), { recursive: true })
    await writeFile(join(folder, 'model/config.json'), '{}')
    await writeFile(join(folder, 'notes.txt'), '')
    const told = () => openRun(folder).catch(({ message }: Error) => message)
    expect(await told()).toMatch(/: got a folder without a config\.json, expected a run folder, as colonnade train/)
    await startRun(await smallRun(), join(folder, 'tuned/first'))
    expect(await told()).toBe(
      `${folder}: got a folder without a config.json, expected a run folder, like ${join(folder, 'tuned/first')}`,
    )
    for (const name of names.filter((each) => each !== 'tuned/first'))
      await startRun(await smallRun(), join(folder, name))
    expect(await told()).toBe(
      `${folder}: got a folder without a config.json, expected a run folder, like ${['mine', 'others', 'theirs'].map((name) => join(folder, name)).join(', ')}`,
    )
    const missing = join(folder, 'theirss')
    await expect(openRun(missing)).rejects.toThrow(
      `${missing}: got no such folder, expected a run folder, like ${join(folder, 'theirs')}, `,
    )
    await expect(kindOfRun(missing)).rejects.toThrow(`${missing}: got no such folder`)
    await expect(openRun(join(folder, 'notes.txt'))).rejects.toThrow('notes.txt: got a file, expected a run folder')
  })

  test('gives the definition back that the run was started with', async () => {
    const definition = await smallRun('seed=3', 'ppo.gamma=0.9', 'mlp.hidden=5,6', 'environment.maxEpisodeSteps=77')
    await startRun(definition, folder)
    const { environment, policy, algorithm, settings } = (await openRun(folder)) as EpisodeRunDefinition
    expect(settings).toEqual(definition.settings)
    expect(environment.parameters).toEqual(definition.environment.parameters)
    expect(policy.parameters).toEqual(definition.policy.parameters)
    expect(algorithm.parameters).toEqual(definition.algorithm.parameters)
  })

  test('finds an environment of somebody else again by its module', async () => {
    const run = await startRun({ ...(await smallRun()), environment: counter({ terminalSteps: 4 }) }, folder)
    await run.train()
    const { environment, update } = await loadPolicy(folder)
    expect(environment).toMatchObject({ id: 'Counter-v0', parameters: { terminalSteps: 4 } })
    expect(update).toBe(8)
    expect(stateOf((await resumeRun<EpisodeRunDefinition>(folder)).trainer).columns).toEqual(
      stateOf(run.trainer).columns,
    )
  })
})

describe('loadPolicy', () => {
  test('gives the weights of the newest checkpoint, bit for bit', async () => {
    const run = await startRun(await smallRun(), folder)
    await run.train()
    const { weights, update, environment } = await loadPolicy(folder)
    expect(update).toBe(8)
    expect(environment.id).toBe('CartPole-v1')
    expect([...weights]).toEqual([...run.trainer.world.cohorts[0]!.weights])
  })

  test('refuses a run that has no checkpoint yet, and one whose checkpoint is of another network', async () => {
    await startRun(await smallRun(), folder)
    await expect(loadPolicy(folder)).rejects.toThrow(/got none, expected a run folder with at least one checkpoint/)
    await (await resumeRun<EpisodeRunDefinition>(folder)).train()
    const path = join(folder, 'config.json')
    const config = JSON.parse(await readFile(path, 'utf8'))
    config.policy.parameters.hidden = [9]
    await writeFile(path, JSON.stringify(config))
    await expect(loadPolicy(folder)).rejects.toThrow(InputError)
    await expect(loadPolicy(folder)).rejects.toThrow(
      /checkpoint .+00000008: got .+ of shape .*8.*, expected .+ of shape/,
    )
    expect((await readCheckpoint(folder)).manifest.update).toBe(8)
  })
})

describe('the kind of a run', () => {
  test('is told by its folder, of either kind', async () => {
    await startRun(await smallRun(), folder)
    expect(await kindOfRun(folder)).toBe('episodes')
    const words = join(folder, '..', 'words')
    const keys = { mode: 'sft', 'sft.updates': '1', 'languageModel.width': '8', 'languageModel.layers': '1' }
    await startRun(await configureRun('text/copy', { ...keys, threads: '1' }), words)
    expect(await kindOfRun(words)).toBe('conversations')
  })

  test('is null of a folder that holds no run: nothing, or a configuration of something else', async () => {
    for (const id of ['owner/nowhere', 'nowhere']) expect(await kindOfRun(id)).toBeNull() // A model of the hub.
    await mkdir(folder)
    expect(await kindOfRun(folder)).toBeNull()
    await writeFile(join(folder, 'config.json'), '{"model_type": "qwen2"}')
    expect(await kindOfRun(folder)).toBeNull()
  })
})
