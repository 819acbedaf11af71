/** Runs that sample on servers: by their keys, resumed, and refused before anything is written. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { describe, expect, test } from 'vitest'
import { configureRun, resumeRun, startRun } from '../../../src/training/run/run.ts'
import { talkServer } from '../../support/server-engines.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const SMALL = {
  ...{ 'languageModel.width': '16', 'languageModel.layers': '1', 'languageModel.heads': '2', 'sft.updates': '1' },
  ...{ 'sft.batchSize': '4', 'rl.groupSize': '2', 'rl.groupsPerUpdate': '2', numLanes: '4', threads: '1' },
}

/** The keys of a run on these servers, of as many updates. */
const words = async (engine: string, updates: number) => ({
  ...{ ...SMALL, engine, 'engine.weights': await temporaryFolder(), 'rl.updates': String(updates) },
})

describe('a run on servers', () => {
  test('samples on all that prove themselves, tells of one that does not, and is resumed on others', async () => {
    const [a, b] = [await talkServer(), await talkServer()]
    const versionOf = async ({ url }: { url: string }) =>
      (await (await fetch(`${url}/weight_info`)).json()).weight_version
    const out = join(await temporaryFolder(), 'run')
    const servers = [a.url, b.url, 'http://127.0.0.1:1'].map((url) => `vllm:${url}`)
    const given = { ...(await words(servers.join(','), 2)), 'engine.retries': '0' }
    const run = await startRun(await configureRun('text/reverse', given), out)
    expect((await run.train()).updates).toBe(2)
    expect([await versionOf(a), await versionOf(b)]).toEqual(['3', '3'])
    const log = readFileSync(join(out, 'run.log'), 'utf8')
    expect(log).toMatch(
      /engine member 3 of 3 \(vllm\) is excluded until .*: weights of engine vllm at http:\/\/127.0.0.1:1/,
    )
    const engineOf = () => JSON.parse(readFileSync(join(out, 'config.json'), 'utf8')).settings.engine
    expect(engineOf()).toEqual(servers)
    await a.close({ now: true })
    const anew = { engine: `sglang:${b.url}`, 'rl.updates': '3' }
    await expect(resumeRun(out, { settings: anew })).rejects.toThrow(/^engineSettings of .*config\.json only/)
    const engineSettings = `weights=${given['engine.weights']},retries=0`
    const resumed = await resumeRun(out, { settings: { ...anew, engineSettings } })
    expect((await resumed.train()).updates).toBe(3)
    expect([await versionOf(b), engineOf()]).toEqual(['4', [`sglang:${b.url}`]])
    const lines = readFileSync(join(out, 'metrics.jsonl'), 'utf8').trimEnd().split('\n')
    const updates = lines.map((line) => JSON.parse(line)).filter(({ phase }) => phase === 'rl')
    expect(updates.length).toBe(3)
    for (const { kl } of updates) expect(kl.k2).toBeLessThan(1e-9)
  })

  test('is refused before anything is written, with what is wrong', async () => {
    const url = 'http://127.0.0.1:1'
    const refused = async (given: Record<string, string>, message: string | RegExp) =>
      expect(configureRun('text/reverse', { ...SMALL, ...given })).rejects.toThrow(message)
    await refused(
      { engine: `vlm:${url}` },
      'engine: got "vlm" (did you mean "vllm"?), expected one of local, vllm, sglang, llama-cpp, openai, tinker',
    )
    await refused({ engine: `vllm:${url}` }, `engine: got engine vllm at ${url} has no folder for weights`)
    await refused(
      { engine: 'vllm:localhost:8000', 'engine.weights': 'w' },
      'url: got "localhost:8000", expected a URL like http://',
    )
    await refused({ engine: `llama-cpp:${url}` }, `engine: got engine llama-cpp at ${url} accepts no weights over HTTP`)
    await refused(
      { engine: `local,vllm:${url}` },
      `engine: got local,vllm:${url}, expected local alone, or only other engines`,
    )
    await refused({ engine: '' }, 'engine: got none, expected at least one, like local')
    await refused(
      { 'engine.weights': 'w' },
      'engineSettings: got ["weights=w"], expected no settings: engine local has none',
    )
    await refused(
      { engine: `vllm:${url}`, 'engine.wights': 'w' },
      /setting of the engine vllm: got "wights".*"weights"/,
    )
    const { 'rl.groupSize': _, 'rl.groupsPerUpdate': __, ...sft } = SMALL
    const nothing = { ...sft, mode: 'sft', engine: `vllm:${url}`, 'engine.weights': 'w' }
    await expect(configureRun('text/reverse', nothing)).rejects.toThrow('no engine: mode sft samples no tokens')
  })

  test('whose server is not there ends before it samples, and says why', async () => {
    const out = join(await temporaryFolder(), 'run')
    const given = { ...(await words('vllm:http://127.0.0.1:1', 1)), 'engine.retries': '0' }
    const run = await startRun(await configureRun('text/reverse', given), out)
    await expect(run.train()).rejects.toThrow(/weights of engine vllm at http:\/\/127.0.0.1:1: got .*v1\/models: /)
    expect(existsSync(join(out, 'metrics.jsonl')) && readFileSync(join(out, 'metrics.jsonl'), 'utf8')).toBeFalsy()
  })

  test('takes an engine of one’s own by the path of its module, also when it is resumed', async () => {
    const folder = await temporaryFolder()
    const path = join(folder, 'mine.mjs')
    const src = (name: string) => JSON.stringify(pathToFileURL(join(process.cwd(), 'src', name)).href)
    writeFileSync(
      path,
      `import { defineEngine } from ${src('engines/define-engine.ts')}
import { defineEngineFactory } from ${src('engines/define-engine-factory.ts')}
import { integer } from ${src('base/settings.ts')}
export const mine = defineEngineFactory({
  id: 'mine',
  settings: { first: integer(0, 'the id that it begins with', { min: 0 }) },
  make: ({ first }) => defineEngine('mine', () => ({
    logprobs: 'tempered',
    begin: async (turn) => {
      for (let id = first; turn.isOpen; id++) turn.add(id % 3, Math.log(1 / 3))
    },
  })),
})
`,
    )
    const out = join(await temporaryFolder(), 'run')
    const given = { ...SMALL, mode: 'rl', engine: path, 'engine.first': '1', 'rl.updates': '1' }
    const { 'sft.updates': _, 'sft.batchSize': __, ...keys } = given
    const run = await startRun(await configureRun('text/reverse', keys), out)
    await run.train()
    const { token, lossMask } = run.trainer.world.cohort().trajectories.row(0) as never as Record<string, number[]>
    expect(token![lossMask!.indexOf(1)]).toBe(1)
    // The module lies outside the working directory: whoever resumes has to trust it.
    await expect(resumeRun(out, { settings: { 'rl.updates': '2' } })).rejects.toThrow('engine module of')
    const allowed = await resumeRun(out, { settings: { 'rl.updates': '2' }, allowModule: () => true })
    expect((await allowed.train()).updates).toBe(2)
  })
})
