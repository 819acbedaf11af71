import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { rl } from '../../../src/algorithms/rl.ts'
import type { Turn } from '../../../src/environments/text.ts'
import { admitGroup, defineGroupFilter, FilterCounts } from '../../../src/rewards/filters.ts'
import { defineReward } from '../../../src/rewards/reward.ts'
import type { ConversationRunDefinition } from '../../../src/training/conversation-run.ts'
import { configureRun, openRun, resumeRun, startRun } from '../../../src/training/run.ts'
import { dataset } from '../../../src/training/text/dataset-environment.ts'
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
    expect(files.trajectories).toBeDefined()
    const config = JSON.parse(await readFile(join(folder, 'config.json'), 'utf8'))
    expect(config.environment).toMatchObject({
      id: 'text/dataset',
      parameters: { reward: 'brief' },
      modules: { reward: '../../reward.mjs' },
    })
    expect(config.rl).toMatchObject({ parameters: { filter: 'pairs' }, modules: { filter: '../../filter.mjs' } })
    expect([config.environment.module, config.rl.module]).toEqual([undefined, undefined])
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

  test.each(['reward', 'filter'])('is not opened where the %s lies elsewhere, unless it is allowed', async (noun) => {
    const key = noun === 'reward' ? 'environment.reward' : 'rl.filter'
    const given = { [key]: join(base, 'far', `${noun}.mjs`) }
    const folder = join(base, 'project/runs/one')
    await startRun(await configured('project', given), folder)
    await expect(openRun(folder)).rejects.toThrow(new RegExp(`${noun} module of .*outside the working directory`, 's'))
    const seen: string[] = []
    const allowModule = ({ path }: { path: string }) => seen.push(path) > 0
    await openRun(folder, { allowModule })
    expect(seen).toEqual([expect.stringContaining(join('far', `${noun}.mjs`))])
  })

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
    await expect(given('project/none.mjs')).rejects.toThrow(/reward module: got file:.*none\.mjs, expected a module/)
    await expect(given('project/filter.mjs')).rejects.toThrow(/reward pairs: got an export without settings/)
    await writeFile(join(base, 'project/empty.mjs'), 'export const nothing = 1')
    await expect(given('project/empty.mjs')).rejects.toThrow(/exports with these ids: none, expected exactly one/)
    await expect(configured('project', { 'environment.rewardSettings': 'scales=1' })).rejects.toThrow(/scale\b/)
    await expect(configured('project', { 'rl.filter': 'any-sucess' })).rejects.toThrow(/any-success/)
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

  test('that is a filter has to answer with a decision', () => {
    const group = [{ reward: 1, response: 'a', responseLength: 1 }]
    for (const answer of [undefined, null, {}, Promise.resolve(true), () => true]) {
      expect(() => admitGroup(group, [() => answer as never], new FilterCounts())).toThrow(/answer of a filter/)
    }
  })
})
