/** `config=run.yaml`, and `--print-config`, which prints what it takes. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { readConfigFile } from '../../src/cli/words/config-file.ts'
import { resolveSweepKeys } from '../../src/entries/data.ts'
import { resolveRunKeys } from '../../src/entries/settings.ts'
import { configureRun } from '../../src/index.ts'
import type { RunDefinition } from '../../src/training/run/definition.ts'
import { configOf } from '../../src/training/run/run.ts'
import { inProcess, SMALL } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

let here: string
beforeAll(async () => {
  here = await temporaryFolder()
})

/** The texts that a file gives to keys. */
async function textsOf(content: string, name = 'run.yaml'): Promise<Record<string, string>> {
  const path = join(here, name)
  await writeFile(path, content)
  return Object.fromEntries([...(await readConfigFile(path))].map(([key, { text }]) => [key, text]))
}

describe('a file of settings', () => {
  test('has keys, nested or dotted, and every kind of value', async () => {
    const yaml = `
seed: 3 # a comment
stopWhenSolved: true
stopAt: ~
ppo:
  gamma: 0.95
  learningRate: 1e-3
ppo.numSteps: 32
mlp: { hidden: [64, 64], logStd: -0.5 }
out: 'runs/a b'
loggers: []
`
    expect(await textsOf(yaml)).toEqual({
      seed: '3',
      stopWhenSolved: 'true',
      stopAt: 'null',
      'ppo.gamma': '0.95',
      'ppo.learningRate': '1e-3',
      'ppo.numSteps': '32',
      'mlp.hidden': '64,64',
      'mlp.logStd': '-0.5',
      out: 'runs/a b',
      loggers: '',
    })
    const json = '{"seed": 9007199254740993, "ppo": {"gamma": [0.9, 0.99]}, "mlp": {"hidden": [[64, 64], [8]]}}'
    expect(await textsOf(json, 'run.json')).toEqual({
      seed: '9007199254740993', // As it was written: as a number it would be another.
      'ppo.gamma': '0.9,0.99',
      'mlp.hidden': '64,64|8',
    })
    expect(await textsOf('# nothing\n')).toEqual({})
  })

  test.each([
    ['no YAML', 'seed: 3\nppo: {gamma: 1\n', /run\.yaml:[23]: got Flow map .+, expected YAML or JSON$/],
    ['a list', '- 3', /run\.yaml:1: got \[3\], expected keys with values$/],
    ['a text', 'seed', /run\.yaml:1: got "seed", expected keys with values$/],
    ['a key twice', 'seed: 3\nseed: 4', /run\.yaml:2: got Map keys must be unique, expected YAML or JSON$/],
    ['a key twice, nested and dotted', 'ppo: {gamma: 1}\nppo.gamma: 1', /run\.yaml:2, ppo\.gamma: got a value twice/],
    ['an alias', 'a: &a 3\nseed: *a', /run\.yaml:2, seed: got an alias, expected a value$/],
    ['an object in a list', 'loggers: [{a: 3}]', /run\.yaml:1, loggers: got an object in a list, expected a value$/],
  ])('with %s is refused by its line', async (_, content, message) => {
    await expect(textsOf(content)).rejects.toThrow(message)
  })

  test('stands beside words, which win', async () => {
    const words = SMALL.map((word) => word.replace('=', ': ')).join('\n')
    await writeFile(join(here, 'small.yaml'), `${words}\nseed: 3\nout: first\ndashboard: false\n`)
    const told = ['train', 'CartPole-v1', '--config', 'small.yaml', 'out=second', '--seed', '4', '--quiet']
    expect(await inProcess(told, here)).toMatchObject({ code: 0 })
    const { settings, algorithm } = JSON.parse(await readFile(join(here, 'second/config.json'), 'utf8'))
    expect(settings).toMatchObject({ seed: 4, totalSteps: 2048, numLanes: 8 })
    expect(algorithm.parameters).toMatchObject({ numSteps: 32, gamma: 0.95 })
    await writeFile(join(here, 'evaluate.json'), '{"episodes": 2, "seed": 5}')
    const evaluated = await inProcess(['evaluate', 'second', 'config=evaluate.json', '--json'], here)
    expect(JSON.parse(evaluated.stdout)).toMatchObject({ episodes: 2 })
  })

  test.each([
    [
      'seed: 3\nppo:\n  gama: 1\n',
      'colonnade: bad.yaml:3, key: got "ppo.gama" (did you mean "ppo.gamma"?), expected one of',
    ],
    ['seed: 3\nppo:\n  gamma: 2\n', 'colonnade: bad.yaml:3, ppo.gamma: got "2", expected a number ≥ 0 and ≤ 1\n'],
    ['mlp: {hidden: [[64], [32]]}', 'colonnade: bad.yaml:1, mlp.hidden: got "64|32", expected a list of whole numbers'],
    ['nonsense: 3\n', 'colonnade: bad.yaml:1, key: got "nonsense", expected one of'],
  ])('%j is refused by its line', async (content, message) => {
    await writeFile(join(here, 'bad.yaml'), content)
    const { code, stderr } = await inProcess(['train', 'CartPole-v1', 'config=bad.yaml', 'out=bad'], here)
    expect([code, stderr.startsWith(message), stderr]).toEqual([1, true, stderr])
  })

  test('that is not there, or one of two, is refused; what is wrong in a word is not the file', async () => {
    const told = async (...words: string[]) => (await inProcess(['train', 'CartPole-v1', ...words], here)).stderr
    expect(await told('config=no.yaml')).toBe(
      'colonnade: config no.yaml: got no such file, expected a file of YAML or JSON with keys and values\n',
    )
    expect(await told('config=a.yaml', 'config=b.yaml')).toBe(
      'colonnade: config: got a value twice, expected one file\n',
    )
    await writeFile(join(here, 'good.yaml'), 'seed: 3\nppo: {gamma: 0.9}\n')
    expect(await told('config=good.yaml', 'ppo.gamma=2')).toMatch(/^colonnade: ppo\.gamma: got "2"/)
  })
})

/** All that makes a run; of a loss its settings, of which config.json has those alone that were given. */
async function configured(environment: string, texts: Record<string, string>): Promise<object> {
  const definition = (await configureRun(environment, texts)) as RunDefinition
  const config = JSON.parse(JSON.stringify(configOf(here, definition)))
  if (definition.kind === 'episodes' || definition.rl === null) return config
  delete config.rl.parameters.lossSettings
  return { ...config, loss: definition.rl.loss.settings }
}

describe('--print-config', () => {
  const print = async (words: readonly string[]) => {
    const { code, stdout, stderr } = await inProcess([...words, '--print-config'], here)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    return stdout
  }

  test.each([
    ['CartPole-v1'],
    ['CartPole-v1', 'seed=3', 'algorithm=dqn', 'dqn.gamma=0.9', 'wrappers=timeLimit', 'timeLimit.maxEpisodeSteps=9'],
    ['Pendulum-v1', 'mlp.hidden=8,16', 'systems=normalizeRewards,clipRewards', 'loggers=csv', 'evaluateEvery=3'],
    ['TicTacToeDuel-v0', 'opponents=3'],
    ['text/reverse'],
    ['text/reverse', 'mode=sft', 'sft.updates=3'],
    ['text/arithmetic-2', 'mode=rl', 'rl.loss=ppo', 'loss.clipLow=0.1'],
    ['text/tool-arithmetic', 'rl.filter=min-reward', 'rl.filter.threshold=0.1', 'languageModel.width=16'],
    ['text/guess-number', 'rl.updates=7', 'languageModel.loraRank=4'],
  ])('of train %j defines the same run', async (environment, ...words) => {
    const printed = await print(['train', environment, ...words])
    await writeFile(join(here, 'printed.yaml'), printed)
    expect(await print(['train', environment, 'config=printed.yaml'])).toBe(printed)
    const { ifExists, seeds, callbacks, dashboard, ...texts } = await textsOf(printed)
    const own = { ifExists: 'number', seeds: '', callbacks: '', dashboard: 'false' }
    expect({ ifExists, seeds, callbacks, dashboard }).toEqual(own)
    const given = Object.fromEntries(words.map((word) => word.split(/=(.*)/s).slice(0, 2) as [string, string]))
    expect(await configured(environment as string, texts)).toEqual(await configured(environment as string, given))
    const nested = JSON.parse(await print(['train', environment, ...words, '--json']))
    await writeFile(join(here, 'printed.json'), JSON.stringify(nested))
    expect(await print(['train', environment, 'config=printed.json'])).toBe(printed)
  })

  test.each([
    ['CartPole-v1', 'ppo.gamma=0.9,0.99', 'mlp.hidden=64,64|32', 'seeds=1..2'],
    ['CartPole-v1', 'algorithm=ppo,dqn', 'numLanes=8'],
    ['text/reverse', 'rl.updates=3,4', 'languageModel.width=16'],
  ])('of sweep %j plans the same runs', async (environment, ...words) => {
    const printed = await print(['sweep', environment, ...words])
    await writeFile(join(here, 'sweep.yaml'), printed)
    expect(await print(['sweep', environment, 'config=sweep.yaml'])).toBe(printed)
    for (const word of words) expect(await textsOf(printed)).toMatchObject(Object.fromEntries([word.split('=')]))
  })

  test('of programs is a map', async () => {
    const run = await resolveRunKeys('CartPole-v1', { 'ppo.gamma': '0.9', wrappers: 'timeLimit' })
    expect([run.get('ppo.gamma'), run.get('mlp.hidden'), run.has('epochs')]).toEqual([0.9, [64, 64], false])
    const sweep = await resolveSweepKeys('CartPole-v1', { algorithm: 'ppo,dqn', 'mlp.hidden': '8' }).catch(String)
    expect(sweep).toContain('key: got "mlp.hidden"') // dqn has a network of its own.
    const both = await resolveSweepKeys('CartPole-v1', { 'ppo.gamma': '0.9,0.99', 'mlp.hidden': '8' })
    expect([both.get('ppo.gamma'), both.get('mlp.hidden'), both.has('seed')]).toEqual([[0.9, 0.99], [8], false])
  })

  test('trains nothing, names the seeds of several runs in place of one, and is of train and sweep alone', async () => {
    const printed = await textsOf(await print(['train', 'CartPole-v1', 'seeds=1..3', 'out=several']))
    expect(printed).toMatchObject({ seeds: '1..3', out: 'several' })
    expect(printed).not.toHaveProperty('seed')
    await expect(readFile(join(here, 'several/seed-1/config.json'))).rejects.toThrow('ENOENT')
    const refused = await inProcess(['evaluate', 'x', '--print-config'], here)
    expect(refused).toMatchObject({
      code: 1,
      stderr: 'colonnade: --print-config: got evaluate, expected train or sweep\n',
    })
  })
})
