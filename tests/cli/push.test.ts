import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { readSafetensors } from '../../src/entries/data.ts'
import { cartPole, loadWeights, mlp } from '../../src/index.ts'
import { startHub } from '../language/hub-server.ts'
import { colonnade, MAIN, start } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

let here: string
beforeAll(async () => {
  here = await temporaryFolder()
  const small = ['totalSteps=256', 'numLanes=4', 'ppo.numSteps=16', 'ppo.numMinibatches=1', 'mlp.hidden=4']
  const run = await colonnade(['train', 'CartPole-v1', `out=${join(here, 'run')}`, ...small], here)
  expect(run.code, run.stderr).toBe(0)
  const words = ['languageModel.width=8', 'languageModel.layers=1', 'rl.updates=1', 'sft.updates=1', 'numLanes=4']
  const groups = ['rl.groupSize=2', 'rl.groupsPerUpdate=2']
  const text = await colonnade(['train', 'text/reverse', 'out=words', ...words, ...groups], here)
  expect(text.code, text.stderr).toBe(0)
})

const push = (words: readonly string[], env: Record<string, string> = {}) =>
  start(process.execPath, [MAIN, 'push', ...words], { cwd: here, env: { ...process.env, HF_TOKEN: '', ...env } }).ended

describe('push', () => {
  test('puts a policy with its card, settings and curve on the hub, in one commit', async () => {
    const hub = await startHub({})
    const given = { HF_ENDPOINT: hub.endpoint, HF_TOKEN: 'hf_secret' }
    const { code, stdout, stderr } = await push(['run', 'org/tiny', 'episodes=3'], given)
    expect(code, stderr).toBe(0)
    const names = ['README.md', 'learning-curve.svg', 'model.safetensors', 'policy.onnx', 'replay.gif', 'run.json']
    expect(stdout).toContain(`${names.join(', ')} → ${hub.endpoint}/org/tiny`)
    expect(stderr).toMatch(/model\.safetensors: [\d,]+ bytes/)
    expect(Object.keys(hub.files).sort()).toEqual(names)
    expect(hub.commits).toMatchObject([{ summary: 'Update 4 of run' }])
    for (const file of Object.values(hub.files)) {
      expect(Buffer.from(file).includes('hf_secret')).toBe(false)
      expect(Buffer.from(file).includes(here), 'where the run lies').toBe(false)
    }
    const card = Buffer.from(hub.files['README.md']!).toString()
    expect(card).toMatch(/^---\nlibrary_name: colonnade\npipeline_tag: reinforcement-learning\n/)
    expect(card).toMatch(/type: mean_reward\n {6}value: [\d.]+ \+\/- [\d.]+\n/)
    expect(card).toContain('| environment | CartPole-v1 |')
    expect(card).toContain('| return of 3 fresh episodes |')
    expect(card).toContain('![learning curve](learning-curve.svg)')

    const weights = join(here, 'pulled.safetensors')
    writeFileSync(weights, hub.files['model.safetensors']!)
    const { observationSpace, actionSpace } = cartPole()
    const model = mlp({ hidden: [4] }).build(observationSpace, actionSpace)
    const exported = await colonnade(['export', 'run', 'out=own.safetensors'], here)
    expect(exported.code, exported.stderr).toBe(0)
    expect(await loadWeights(weights, model)).toEqual(await loadWeights(join(here, 'own.safetensors'), model))
    expect((await readSafetensors(weights)).metadata).toMatchObject({ environment: 'CartPole-v1', update: '4' })
    expect(JSON.parse(Buffer.from(hub.files['run.json']!).toString())).toMatchObject({
      config: { settings: { totalSteps: 256, numLanes: 4 } },
      summary: { updates: 4, totalSteps: 256 },
    })
  })

  test('draws an episode where the observations are a grid', async () => {
    const small = ['totalSteps=64', 'numLanes=4', 'a2c.numSteps=8', 'algorithm=a2c']
    const run = await colonnade(['train', 'Breakout-MinAtar', 'policy=mlp', 'out=grid', ...small], here)
    expect(run.code, run.stderr).toBe(0)
    const { code, stderr } = await push(['grid', 'out=drawn', 'episodes=0'])
    expect(code, stderr).toBe(0)
    expect(readFileSync(join(here, 'drawn/replay.gif')).subarray(0, 6).toString()).toBe('GIF89a')
    const card = readFileSync(join(here, 'drawn/README.md'), 'utf8')
    expect(card).toContain('![an episode](replay.gif)')
    expect(card).not.toContain('mean_reward')
  })

  test('writes a language model in the format of transformers, and pushes nothing with out=', async () => {
    const { code, stdout, stderr } = await push(['words', 'me/words', 'out=folder'])
    expect(code, stderr).toBe(0)
    expect(stdout).toContain('→ folder')
    expect(readdirSync(join(here, 'folder'))).toEqual(
      expect.arrayContaining(['README.md', 'config.json', 'model.safetensors', 'run.json', 'tokenizer.json']),
    )
    expect(JSON.parse(readFileSync(join(here, 'folder/config.json'), 'utf8'))).toMatchObject({ model_type: 'llama' })
    const card = readFileSync(join(here, 'folder/README.md'), 'utf8')
    expect(card).toContain('library_name: transformers\npipeline_tag: text-generation\n')
    expect(card).toContain('AutoModelForCausalLM.from_pretrained("me/words")')
    const again = await push(['words', 'me/words', 'out=folder'])
    expect(again.stderr).toContain('out: got folder, which is not empty, expected a new or empty folder')
  })

  const refused: [string[], RegExp][] = [
    [['run'], /second word: got nothing, expected a repository of the hub, owner\/name/],
    [['run', 'tiny'], /repository: got "tiny", expected the id of a repository of the hub, owner\/name/],
    [['run', 'org/tiny'], /HF_TOKEN: got nothing, expected a hub token with write access, in the environment/],
    [['run', 'org/tiny', 'privat=true'], /key: got "?privat"?/],
    [['nowhere', 'org/tiny', 'out=x'], /nowhere/],
    [['words', 'org/tiny', 'episodes=3'], /episodes: got "3", expected no such key for a language model/],
  ]

  test.each(rowsOf(refused))('refuses %j', async (words, message) => {
    const { code, stderr } = await push(words)
    expect(code).toBe(1)
    expect(stderr).toMatch(message)
  })
})
