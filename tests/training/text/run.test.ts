import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { loadLora } from '../../../src/language/transformer/lora-folder.ts'
import { loadTrainedModel } from '../../../src/training/backends/trained-model.ts'
import { listCheckpoints } from '../../../src/training/folder/checkpoint.ts'
import type { ConversationRunDefinition } from '../../../src/training/run/definition.ts'
import { configureRun, openRun, resumeRun, startRun } from '../../../src/training/run/run.ts'
import { digits } from '../../support/conversations.ts'
import { temporaryFolder } from '../../support/temporary.ts'

describe('a run with adapters', () => {
  test('writes its adapter at each checkpoint, and at its end, not only when it is over', async () => {
    const definition = await configureRun('text/reverse', {
      'environment.maxLength': '3',
      'languageModel.width': '16',
      'languageModel.layers': '1',
      'languageModel.loraRank': '2',
      'sft.updates': '2',
      'rl.groupSize': '4',
      'rl.groupsPerUpdate': '2',
      'rl.updates': '3',
      checkpointEvery: '2',
      threads: '1', // Workers run from dist/.
    })
    const folder = join(await temporaryFolder(), 'run')
    const run = await startRun(definition, folder)
    const path = join(folder, 'adapter', 'adapter_model.safetensors')
    const files: string[] = []
    await run.train({ onUpdate: () => files.push(existsSync(path) ? readFileSync(path, 'base64') : 'none') })
    const [first, second, third, fourth, fifth] = files
    expect(first).toBe('none')
    expect(second).not.toBe('none')
    expect(third).toBe(second)
    expect(fourth).not.toBe(second)
    expect(fifth).toBe(fourth)
    const config = join(folder, 'config.json')
    const text = readFileSync(config, 'utf8')
    for (const [rank, message] of [
      [0, /an adapter of \d+ numbers, expected 0, as its config.json says/],
      [3, /an adapter of \d+ numbers, expected \d+, as its config.json says/],
    ] as const) {
      writeFileSync(config, text.replace('"loraRank": 2', `"loraRank": ${rank}`))
      await expect(loadTrainedModel(folder)).rejects.toThrow(message)
    }
    const { model, adapter } = run.trainer.world.cohort()
    expect((await loadLora(join(folder, 'adapter'), model)).weights).toEqual(adapter!.weights)
  })
})

describe('a run that is resumed', () => {
  const words = (updates: number) => ({
    'environment.maxLength': '3',
    'languageModel.width': '8',
    'languageModel.layers': '1',
    'sft.updates': '2',
    'sft.batchSize': '4',
    'rl.groupSize': '2',
    'rl.groupsPerUpdate': '2',
    'rl.updates': String(updates),
    checkpointEvery: '2',
    checkpointsKept: '9',
    numLanes: '4',
    threads: '1',
  })

  test('goes on from an older checkpoint, with repaired metrics, and further than it was to go, to the same bits', async () => {
    const here = await temporaryFolder()
    const [long, short] = [join(here, 'long'), join(here, 'short')]
    await (await startRun(await configureRun('text/reverse', words(6)), long)).train()
    await (await startRun(await configureRun('text/reverse', words(4)), short)).train()
    const numbers = await listCheckpoints(short)
    const newest = join(short, 'checkpoints', String(numbers.at(-1)).padStart(8, '0'), 'manifest.json')
    writeFileSync(newest, readFileSync(newest, 'utf8').replace('"rlUpdates": 4', '"rlUpdates": 3'))
    await expect(resumeRun<ConversationRunDefinition>(short)).rejects.toThrow(
      `from=${numbers.at(-2)} is the newest whole checkpoint`,
    )
    const metrics = join(short, 'metrics.jsonl')
    writeFileSync(metrics, readFileSync(metrics, 'utf8').replace('{', '{{'))
    const run = await resumeRun<ConversationRunDefinition>(short, {
      from: numbers.at(-2)!,
      settings: { 'rl.updates': '6' },
    })
    expect(run.warnings).toEqual([
      'rl.updates was 4 and is 6: schedules use the new number from now on',
      'metrics.jsonl: 1 damaged lines left out (the first is line 1); 1 lines of 4 are missing',
    ])
    expect(await run.train()).toMatchObject({ status: 'complete', updates: 6 })
    const file = (folder: string) => readFileSync(join(folder, 'model', 'model.safetensors'))
    expect(file(short)).toEqual(file(long))
    expect(((await openRun(short)) as ConversationRunDefinition).rl!.settings.updates).toBe(6)
    for (const key of ['seed', 'rl.groupSize', 'languageModel.width']) {
      await expect(resumeRun<ConversationRunDefinition>(short, { settings: { [key]: '4' } })).rejects.toThrow(
        `key: got "${key}"`,
      )
    }
    await expect(resumeRun<ConversationRunDefinition>(short, { settings: { 'sft.updates': '3' } })).rejects.toThrow(
      'sft, updates, followed by those of rl: got 2, expected 3',
    )
  })
})

test('a run keeps the conversations of its updates alone, and says how fast it sampled and learned', async () => {
  const keys = {
    ...{ 'sft.updates': '3', 'sft.batchSize': '2', 'rl.updates': '2', 'rl.groupsPerUpdate': '2', 'rl.groupSize': '2' },
    ...{ 'languageModel.width': '8', 'languageModel.layers': '1', trajectories: 'all', numLanes: '4', threads: '1' },
  }
  const folder = join(await temporaryFolder(), 'run')
  const summary = await (await startRun(await configureRun('text/reverse', keys), folder)).train()
  expect(readdirSync(join(folder, 'trajectories')).sort()).toEqual(['00000001.arrow', '00000002.arrow'])
  const lines = readFileSync(join(folder, 'metrics.jsonl'), 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
    .slice(3)
  const sum = (key: string) => lines.reduce((total, line) => total + line[key], 0)
  expect(summary.tokensPerSecond).toEqual({
    rollout: sum('sampledTokens') / sum('rolloutSeconds'),
    update: sum('trainedTokens') / sum('updateSeconds'),
  })
  expect(sum('sampledTokens')).toBeGreaterThan(0)
  expect(summary.trajectories).toBe(8)
})

test('a run that is to stop where a reply is late does, with a checkpoint, and one that goes on says so in its log', async () => {
  const here = await temporaryFolder()
  vi.spyOn(process.stderr, 'write').mockReturnValue(true)
  const environment = digits({ respond: () => new Promise(() => {}) })
  for (const onStall of ['stop', 'continue']) {
    const folder = join(here, onStall)
    const configured = await configureRun('text/reverse', {
      ...{ mode: 'rl', threads: '1', 'languageModel.width': '8', 'languageModel.layers': '1', numLanes: '2' },
      ...{ 'rl.updates': '1', 'rl.groupsPerUpdate': '1', 'rl.groupSize': '2', replySeconds: '0.02', onStall },
    })
    const run = await startRun({ ...configured, environment }, folder)
    await expect(run.train()).rejects.toThrow(onStall === 'stop' ? /has not answered for 0.02 s/ : /no reward of 2/)
    expect(await listCheckpoints(folder)).toHaveLength(onStall === 'stop' ? 1 : 0)
    expect(readFileSync(join(folder, 'run.log'), 'utf8')).toContain('has not answered for 0.02 s')
  }
  vi.restoreAllMocks()
})

test('a run of one phase cannot be given more of the other when it is resumed', async () => {
  const here = await temporaryFolder()
  for (const [mode, other] of [
    ['rl', 'sft.updates'],
    ['sft', 'rl.updates'],
  ] as const) {
    await startRun(await configureRun('text/reverse', { mode, threads: '1' }), join(here, mode))
    const resumed = resumeRun<ConversationRunDefinition>(join(here, mode), { settings: { [other]: '4' } })
    await expect(resumed).rejects.toThrow(`key: got "${other}"`)
  }
})

test('what a conversation is worth by its turns is a setting of the run', async () => {
  const environment = digits({
    maxTurns: 3,
    respond: ({ turn }) => ({ reward: turn + 1, messages: [{ role: 'user', content: '7' }] }),
  })
  const rewards: number[] = []
  for (const rewardReduction of ['last', 'sum'] as const) {
    const configured = await configureRun('text/reverse', {
      ...{ rewardReduction, mode: 'rl', threads: '1', 'languageModel.width': '16', 'languageModel.layers': '1' },
      ...{ 'rl.updates': '1', 'rl.groupsPerUpdate': '4', 'rl.groupSize': '4' },
    })
    const run = await startRun({ ...configured, environment }, join(await temporaryFolder(), 'run'))
    await run.train({ onUpdate: ({ rl }) => rewards.push(rl!.reward!) })
    const { reward, turns } = run.trainer.world.cohort().trajectories.columns()
    const worth = (count: number) => (rewardReduction === 'sum' ? (count * (count + 1)) / 2 : count)
    expect([...reward]).toEqual([...turns].map(worth))
  }
  expect(rewards[1]).toBeGreaterThan(rewards[0]!)
})

test("a run of an environment of one's own is found again, though its definition names no module", async () => {
  const here = await temporaryFolder()
  const module = join(here, 'echo.mjs')
  const index = new URL('../../../dist/src/index.js', import.meta.url).href
  writeFileSync(
    module,
    `import { defineTextEnvironment } from '${index}'
    export const echo = defineTextEnvironment({ id: 'text/echo', settings: {}, make: () => ({
      numExamples: 2, example: (i) => ({ prompt: i + '=' }), respond: () => ({ reward: 1 }) }) })`,
  )
  await startRun(await configureRun(module, { mode: 'rl' }), join(here, 'run')) // Its examples have no answers.
  const { environment } = (await openRun(join(here, 'run'), { allowModule: () => true })) as ConversationRunDefinition
  expect([environment.id, environment.numExamples]).toEqual(['text/echo', 2])
})
