import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import * as built from '../../../dist/src/index.js'
import { rl } from '../../../src/algorithms/tokens/rl.ts'
import { readSafetensors, tensorValues } from '../../../src/base/files/safetensors.ts'
import type { Turn } from '../../../src/environments/text.ts'
import { readArrow } from '../../../src/index.ts'
import { admitGroup, defineGroupFilter, FilterCounts } from '../../../src/language/rewards/filters.ts'
import { defineReward } from '../../../src/language/rewards/reward.ts'
import type { ConversationRunDefinition } from '../../../src/training/run/definition.ts'
import { configureRun, openRun, resumeRun, startRun } from '../../../src/training/run/run.ts'
import { dataset } from '../../../src/training/text/collect/dataset-environment.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const ENTRIES = new URL('../../../dist/src/entries/', import.meta.url).href
/** What the filter of `filter.mjs` was asked for. */
const asked = globalThis as { groupsFiltered?: number }

let base: string

/** `base/project` is where the user works, with a reward, a filter and prompts; `base/far` lies elsewhere. */
beforeEach(async () => {
  base = await temporaryFolder()
  asked.groupsFiltered = 0
  for (const place of ['project', 'far']) {
    await mkdir(join(base, place))
    await writeFile(
      join(base, place, 'reward.mjs'),
      `import { defineReward } from '${ENTRIES}rewards.js'
      import { number } from '${ENTRIES}settings.js'
      export const brief = defineReward({ id: 'brief', settings: { scale: number(1, 'what a character costs') },
        make: ({ scale }) => (prompt, completion) => -scale * completion.length })`,
    )
    await writeFile(
      join(base, place, 'filter.mjs'),
      `import { defineGroupFilter } from '${ENTRIES}rewards.js'
      export const pairs = defineGroupFilter('pairs', (group) => {
        globalThis.groupsFiltered++
        return { keep: group.length === 2, reason: 'no_pair' }
      })`,
    )
    await writeFile(
      join(base, place, 'loss.mjs'),
      `import { defineTokenLoss, tokenLossSettings } from '${ENTRIES}algorithms.js'
      import { number } from '${ENTRIES}settings.js'
      export const decoupled = defineTokenLoss({
        id: 'decoupled',
        settings: { ...tokenLossSettings(), low: number(0.2, 'clip below 1'), high: number(0.28, 'clip above 1') },
        loss({ logprob, oldLogprob, advantage }, { low, high }) {
          const ratio = logprob.minus(oldLogprob).exp()
          const clipped = ratio.clip(1 - low, 1 + high).times(advantage)
          return { loss: ratio.times(advantage).min(clipped).negative(), clippedLow: ratio.lessThan(1 - low) }
        },
        advantages(group) {
          const mean = group.reduce((sum, { reward }) => sum + reward, 0) / group.length
          const squares = group.reduce((sum, { reward }) => sum + (reward - mean) ** 2, 0)
          const deviation = Math.sqrt(squares / (group.length - 1))
          return group.map(({ reward }) => (squares === 0 ? 0 : (reward - mean) / deviation))
        },
      })`,
    )
    await writeFile(
      join(base, place, 'least.mjs'),
      `import { defineGroupFilter } from '${ENTRIES}rewards.js'
      import { integer, strings } from '${ENTRIES}settings.js'
      export const least = defineGroupFilter({ id: 'least',
        settings: { members: integer(2, 'members, at least'), words: strings([], 'words of the reason') },
        make: ({ members, words }) => (group) =>
          ({ keep: group.length >= members, reason: [members, ...words].join('_') }) })`,
    )
  }
  await writeFile(join(base, 'project/sums.jsonl'), '{"prompt":"1+1=","answer":"2"}\n{"prompt":"1+2=","answer":"3"}\n')
  vi.spyOn(process, 'cwd').mockReturnValue(join(base, 'project'))
})
afterEach(() => vi.restoreAllMocks())

const configured = (place: string, given: Record<string, string> = {}) =>
  configureRun('text/dataset', {
    'environment.path': join(base, 'project/sums.jsonl'),
    'environment.reward': join(base, place, 'reward.mjs'),
    'environment.rewardSettings': 'scale=0.5',
    'environment.maxTokens': '4',
    'rl.filter': join(base, place, 'filter.mjs'),
    'languageModel.width': '8',
    'languageModel.layers': '1',
    'rl.groupSize': '2',
    'rl.groupsPerUpdate': '2',
    'rl.updates': '1',
    mode: 'rl',
    threads: '1', // Workers run from dist/.
    ...given,
  })

const turn = (completion: string): Turn => ({
  example: { prompt: 'p' },
  exampleIndex: 0,
  completion,
  raw: completion,
  turn: 0,
  stopReason: 'stop',
  messages: [{ role: 'user', content: 'p' }],
})
const never = new AbortController().signal

describe("a run with a reward and a filter of one's own modules", () => {
  test('is judged and filtered by them, and keeps them in its config.json by their way from the folder', async () => {
    const { environment, rl: reinforced } = await configured('project')
    expect(environment.parameters.reward).toBe('brief')
    expect(await environment.respond(turn('four'), never)).toMatchObject({ reward: -2 })
    expect(reinforced!.settings.filter).toBe('pairs')
    const folder = join(base, 'project/runs/one')
    const { files } = await (await startRun(await configured('project'), folder)).train()
    expect(asked.groupsFiltered).toBe(2)
    const table = await readArrow(join(files.trajectories!, '00000001.arrow'))
    const [rewards, responses] = ['reward', 'completion'].map((name) => [...table.getChild(name)!])
    expect(rewards).toEqual(responses!.map((response) => -0.5 * response.length))
    const config = JSON.parse(await readFile(join(folder, 'config.json'), 'utf8'))
    expect(config.environment).toMatchObject({
      id: 'text/dataset',
      parameters: { reward: 'brief' },
      modules: { reward: '../../reward.mjs' },
    })
    expect(config.rl).toMatchObject({ parameters: { filter: 'pairs' }, modules: { filter: '../../filter.mjs' } })
    expect([config.environment.module, config.rl.module]).toEqual([undefined, undefined])
  })

  test('has a filter with settings, each by a key of its own, which its config.json keeps', async () => {
    const filter = join(base, 'project/least.mjs')
    const keys = { 'rl.filter': filter, 'rl.filter.members': '3', 'rl.filter.words': 'too,few', 'rl.dropsMax': '0' }
    const run = join(base, 'project/runs/least')
    const definition = await configured('project', keys)
    const kept = ['members=3', 'words=too,few']
    expect((definition as ConversationRunDefinition).rl!.parameters.filterSettings).toEqual(kept)
    const started = await startRun(definition, run)
    await expect(started.train()).rejects.toThrow(/3_too_few/)
    const config = JSON.parse(await readFile(join(run, 'config.json'), 'utf8'))
    expect(config.rl.parameters).toMatchObject({ filter: 'least', filterSettings: kept })
    const { rl: opened } = (await openRun(run)) as ConversationRunDefinition
    const group = [1, 2].map((reward) => ({ reward, response: '', responseLength: 0 }))
    expect(opened!.filter!(group)).toEqual({ keep: false, reason: '3_too_few' })
    await (await startRun(await configured('project', { ...keys, 'rl.filter.members': '2' }), `${run}2`)).train()
  })

  test('has a reward with settings in the same way, beside those of the list', async () => {
    const { environment } = (await configured('project', {
      'environment.reward.scale': '2',
      'environment.rewardSettings': '',
    })) as ConversationRunDefinition
    expect(
      await (environment as unknown as Pick<ReturnType<typeof dataset>, 'respond'>).respond(
        turn('abc'),
        new AbortController().signal,
      ),
    ).toMatchObject({ reward: -6 })
    await expect(configured('project', { 'environment.reward.scale': '2' })).rejects.toThrow(/scale twice/)
    await expect(configured('project', { 'environment.reward.scales': '2' })).rejects.toThrow(/"scales".*"scale"/)
  })

  test('refuses settings of a filter that has none, or not these', async () => {
    await expect(configured('project', { 'rl.filter.members': '2' })).rejects.toThrow(
      /setting of the filter pairs: got "members"/,
    )
    const least = { 'rl.filter': join(base, 'project/least.mjs') }
    await expect(configured('project', { ...least, 'rl.filter.members': 'x' })).rejects.toThrow(
      /filter least\.members: got "x"/,
    )
    await expect(configured('project', { ...least, 'rl.filter.member': '3' })).rejects.toThrow(/did you mean "members"/)
    await expect(configured('project', { 'rl.filtr.members': '3' })).rejects.toThrow(/key: got "rl\.filtr\.members"/)
    await expect(configured('project', { 'rl.loss.members': '3' })).rejects.toThrow(/key: got "rl\.loss\.members"/)
  })

  test('is resumed with them', async () => {
    const folder = join(base, 'project/runs/one')
    await (await startRun(await configured('project'), folder)).train()
    await (await resumeRun(folder, { settings: { 'rl.updates': '2' } })).train()
    expect(asked.groupsFiltered).toBe(4)
    expect(JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')).rl).toMatchObject({
      parameters: { updates: 2, filter: 'pairs' },
      modules: { filter: '../../filter.mjs' },
    })
  })

  test('finds them where the project has moved', async () => {
    await startRun(await configured('project'), join(base, 'project/runs/one'))
    await rename(join(base, 'project'), join(base, 'moved'))
    vi.spyOn(process, 'cwd').mockReturnValue(join(base, 'moved'))
    const { environment } = (await openRun(join(base, 'moved/runs/one'))) as ConversationRunDefinition
    expect(await environment.respond(turn('four'), never)).toMatchObject({ reward: -2 })
  })

  test.each(['reward', 'filter', 'loss'])(
    'is not opened where the %s lies elsewhere, unless it is allowed',
    async (noun) => {
      const key = noun === 'reward' ? 'environment.reward' : `rl.${noun}`
      const given = { [key]: join(base, 'far', `${noun}.mjs`) }
      const folder = join(base, 'project/runs/one')
      await startRun(await configured('project', given), folder)
      await expect(openRun(folder)).rejects.toThrow(
        new RegExp(`${noun} module of .*outside the working directory`, 's'),
      )
      const seen: string[] = []
      const allowModule = ({ path }: { path: string }) => seen.push(path) > 0
      await openRun(folder, { allowModule })
      expect(seen).toEqual([expect.stringContaining(join('far', `${noun}.mjs`))])
    },
  )

  test('is refused where its config.json names modules for what is no part', async () => {
    const folder = join(base, 'project/runs/one')
    await startRun(await configured('project'), folder)
    const path = join(folder, 'config.json')
    const config = JSON.parse(await readFile(path, 'utf8'))
    const withModules = (modules: unknown) =>
      writeFile(path, JSON.stringify({ ...config, environment: { ...config.environment, modules } }))
    await withModules({ path: '../../reward.mjs' })
    await expect(openRun(folder)).rejects.toThrow(/modules: got one for path, expected modules for parameters/)
    await withModules(['../../reward.mjs'])
    await expect(openRun(folder)).rejects.toThrow(/modules of .*expected an object/)
    await withModules({ reward: 3 })
    await expect(openRun(folder)).rejects.toThrow(/module of .*: got 3, expected the path of a module/)
  })

  test('says what is wrong with a module', async () => {
    const given = (reward: string) => configured('project', { 'environment.reward': join(base, reward) })
    await expect(given('project/none.mjs')).rejects.toThrow(
      /reward module: got \/.*none\.mjs, expected (an existing file|a module)/,
    )
    await expect(given('project/filter.mjs')).rejects.toThrow(/reward pairs: got an export without settings/)
    await writeFile(join(base, 'project/empty.mjs'), 'export const nothing = 1')
    await expect(given('project/empty.mjs')).rejects.toThrow(/exports with these ids: none, expected exactly one/)
    await expect(configured('project', { 'environment.rewardSettings': 'scales=1' })).rejects.toThrow(/scale\b/)
    await expect(configured('project', { 'rl.filter': 'any-sucess' })).rejects.toThrow(/any-success/)
  })
})

describe("a run with a loss over tokens of one's own module", () => {
  const lossOf = (given: Record<string, string> = {}) => {
    const several = {
      'rl.filter': 'none',
      'rl.updateEpochs': '3',
      'rl.updates': '2',
      'rl.groupSize': '8',
      'rl.groupsPerUpdate': '8',
    }
    return configured('project', { 'rl.loss': join(base, 'project/loss.mjs'), ...several, ...given })
  }
  const weightsOf = async (run: Awaited<ReturnType<typeof startRun>>) => {
    const { files } = await run.train()
    const { tensors } = await readSafetensors(join(files.model!, 'model.safetensors'))
    return [...tensors.values()].flatMap((tensor) => Array.from(tensorValues(tensor) as Float32Array))
  }
  const metricsOf = async (folder: string) => {
    const lines = (await readFile(join(folder, 'metrics.jsonl'), 'utf8')).trim().split('\n')
    return lines.map((line) => JSON.parse(line))
  }

  test('learns what the loss of the package learns that computes the same', async () => {
    const path = (name: string) => join(base, 'project/runs', name)
    const own = await weightsOf(await startRun(await lossOf(), path('own')))
    const builtIn = await weightsOf(await startRun(await lossOf({ 'rl.loss': 'dapo' }), path('dapo')))
    const begun = await weightsOf(await startRun(await lossOf({ 'rl.learningRate': '1e-12' }), path('begun')))
    const apart = (a: number[], b: number[]) => Math.max(...a.map((value, i) => Math.abs(value - b[i]!)))
    expect(apart(own, begun)).toBeGreaterThan(1e-3)
    expect(apart(own, builtIn)).toBeLessThan(1e-5)
    const lines = await metricsOf(path('own'))
    const expected = await metricsOf(path('dapo'))
    lines.forEach((line, i) => {
      expect(line.loss).toBeCloseTo(expected[i].loss, 5)
      // One count is told, the other one is not.
      expect(line.clipRatio.low).toBeGreaterThanOrEqual(expected[i].clipRatio.low)
      expect(line.clipRatio.high).toBeNull()
    })
    const config = JSON.parse(await readFile(join(path('own'), 'config.json'), 'utf8'))
    expect(config.rl).toMatchObject({ parameters: { loss: 'decoupled' }, modules: { loss: '../../loss.mjs' } })
  })

  test('is computed by other threads to the same bits', async () => {
    // Workers load compiled files, and what they share must be made by the same ones here.
    const of = async (threads: number) => {
      const loss = (await import(join(base, 'project/loss.mjs'))).decoupled
      const algorithm = built.rl({ groupsPerUpdate: 8, groupSize: 6, updates: 3, updateEpochs: 2 }, { loss })
      const environment = built.textEnvironmentFactory('text/reverse')()
      const policy = built.languageModel({ width: 16, layers: 1, heads: 2 })
      const world = await built.createWorld({ environment, policy, numLanes: 13, seed: 3, groupSize: 6 })
      const trainer = built.createTrainer(world, algorithm, { threads })
      const begun = world.cohort().weights.slice()
      for await (const _ of trainer.updates());
      trainer.close()
      return { begun, weights: world.cohort().weights.slice() }
    }
    const { begun, weights } = await of(1)
    expect(weights).not.toEqual(begun)
    expect((await of(2)).weights).toEqual(weights)
  })

  test('has keys of its own, and is resumed with what they were given', async () => {
    const folder = join(base, 'project/runs/one')
    const { rl: reinforced } = await lossOf({ 'loss.high': '0.5', 'loss.aggregation': 'sequence-mean' })
    expect(reinforced!.loss).toMatchObject({ id: 'decoupled', aggregation: 'sequence-mean' })
    expect(reinforced!.loss.program!.steps.find(({ operation }) => operation === 'clip')!.numbers).toEqual([0.8, 1.5])
    await expect(lossOf({ 'loss.clipHigh': '0.5' })).rejects.toThrow(/loss.clipHigh/)
    await expect(lossOf({ 'rl.preset': 'trl' })).rejects.toThrow(
      /rl.preset: got trl, expected no preset: decoupled has/,
    )
    await expect(lossOf({ 'rl.loss': join(base, 'project/filter.mjs') })).rejects.toThrow(
      /a loss made by defineTokenLoss/,
    )
    await (await startRun(await lossOf({ 'loss.high': '0.5' }), folder)).train()
    const { definition } = await resumeRun(folder, { settings: { 'rl.updates': '3' } })
    const { loss } = (definition as ConversationRunDefinition).rl!
    expect(loss.program!.steps.find(({ operation }) => operation === 'clip')!.numbers).toEqual([0.8, 1.5])
  })
})

describe('a part that is given in a program', () => {
  test('needs no module and no registration', async () => {
    const longer = defineReward({ id: 'longer', settings: {}, make: () => (_, completion) => completion.length })
    const environment = dataset({ path: 'a.jsonl' }, { reward: longer })
    expect(environment.parameters.reward).toBe('longer')
    expect(await environment.respond(turn('four'), never)).toMatchObject({ reward: 4 })
    const all = defineGroupFilter('all', () => true)
    expect(rl({}, { filter: all })).toMatchObject({ filter: all, parameters: { filter: 'all' } })
  })

  test('is refused where no setting names it, or it is none', () => {
    const all = defineGroupFilter('all', () => true)
    expect(() => dataset({}, { rewards: all })).toThrow(/text\/dataset part.*reward/)
    expect(() => dataset({}, { path: all })).toThrow(/text\/dataset part/)
    expect(() => rl({}, { filter: (() => true) as never })).toThrow(/rl part filter: got .*a filter with an id/)
    expect(() => defineGroupFilter('', () => true)).toThrow(/filter id/)
    expect(() => defineGroupFilter('all', 3 as never)).toThrow(/filter all: got 3/)
  })

  test('that is a filter of the built-in ones takes settings where it has declared some', () => {
    const group = [0, 1, 1, 0].map((reward, i) => ({ reward, response: i === 3 ? 'b' : 'a', responseLength: 1 }))
    const kept = (filter: string, ...filterSettings: string[]) => {
      const decision = rl({ filter, filterSettings }).filter!(group)
      return typeof decision === 'boolean' ? decision : decision.keep
    }
    expect([kept('min-reward'), kept('min-reward', 'threshold=0.6')]).toEqual([true, false])
    expect([kept('response-diversity'), kept('response-diversity', 'minUniqueRatio=0.6')]).toEqual([true, false])
    expect(() => kept('any-success', 'threshold=1')).toThrow(/setting of the filter any-success: got "threshold"/)
    expect(() => kept('none', 'threshold=1')).toThrow(/setting of the filter none/)
    expect(() => defineGroupFilter({ id: 'made', settings: {}, make: 3 as never })).toThrow(/filter made, make: got 3/)
    const wrong = defineGroupFilter({ id: 'wrong', settings: {}, make: () => 3 as never })
    expect(() => rl({}, { filter: wrong as never })).toThrow(/filter wrong: got 3, expected a function of a group/)
  })

  test('that is a filter has to answer with a decision', () => {
    const group = [{ reward: 1, response: 'a', responseLength: 1 }]
    for (const answer of [undefined, null, {}, Promise.resolve(true), () => true]) {
      expect(() => admitGroup(group, [() => answer as never], new FilterCounts())).toThrow(/answer of a filter/)
    }
  })
})
