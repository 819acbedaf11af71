/** `colonnade gateway` from the command line. */
import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { findEngine } from '../../../src/entries/engines.ts'
import { readTrajectories } from '../../../src/tables/trajectories/trajectory-table.ts'
import { MAIN, start } from '../../support/command.ts'
import { writeQwen3 } from '../../support/qwen3-folder.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const ABANDONED = 'abandoned: the gateway was closed'

test('colonnade gateway makes sessions, keeps those that end through a kill, and stops at a signal', async () => {
  const folder = await temporaryFolder()
  await writeQwen3(join(folder, 'tiny'))
  const { COLONNADE_GATEWAY_KEY: _, ...env } = process.env
  const words = [MAIN, 'gateway', 'tiny', 'port=0', 'out=sessions', 'slots=2', '--json']
  const keyFile = join(folder, 'sessions/operator.key')
  const begin = async () => {
    const started = start(process.execPath, words, { cwd: folder, env })
    let said = ''
    started.process.stderr!.on('data', (chunk) => {
      said += chunk
    })
    await started.printed('and the key in')
    const [, url] = /^tiny at (http:\/\/127\.0\.0\.1:\d+);/m.exec(said)!
    const key = await readFile(keyFile, 'utf8')
    expect([(await stat(keyFile)).mode & 0o777, said.includes(key)]).toEqual([0o600, false])
    const ask = async (path: string, body: object, secret: string) => {
      const headers = { 'content-type': 'application/json', authorization: `Bearer ${secret}` }
      const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) })
      // biome-ignore lint/suspicious/noExplicitAny: tests read what they expect.
      return { status: response.status, json: (await response.json()) as any }
    }
    /** Makes a session, and asks in it. */
    const asked = async (place: object) => {
      const { json: session } = await ask('/sessions', place, key)
      expect((await ask('/v1/messages', { model: 'any', max_tokens: 4, messages }, session.key)).status).toBe(200)
      return (reward: number) => ask(`/sessions/${session.id}/reward`, { reward }, key)
    }
    return { started, ask, asked }
  }
  const messages = [{ role: 'user', content: 'hi' }]
  const killed = await begin()
  expect((await killed.ask('/sessions', {}, 'guess')).status).toBe(401)
  const reward = await killed.asked({ group: 2, prompt_id: 5 })
  expect((await reward(0.5)).json).toMatchObject({ rows: 1, calls: 1 })
  await killed.asked({}) // Nobody has been told that it is kept.
  killed.started.process.kill('SIGKILL')
  await killed.started.ended
  const { started, asked } = await begin()
  await (await asked({}))(1)
  await asked({})
  started.process.kill('SIGINT')
  const { code, stdout } = await started.ended
  expect([code, JSON.parse(stdout)]).toMatchObject([130, { name: 'tiny', calls: 2, ended: 2, abandoned: 1 }])
  const files = (await readdir(join(folder, 'sessions'))).filter((name) => name.endsWith('.arrow')).sort()
  expect(files).toEqual([0, 1, 2].map((number) => `session-00000${number}.arrow`))
  const { trajectories, words: told } = await readTrajectories(...files.map((name) => join(folder, 'sessions', name)))
  expect(trajectories.row(0)).toMatchObject({ group: 2, promptId: 5, reward: 0.5, turns: 1 })
  expect([1, 2].map((i) => trajectories.row(i))).toMatchObject([{ reward: 1 }, { reward: null, error: ABANDONED }])
  expect(JSON.parse(told[0]!.prompt)).toEqual(messages)
})

test('colonnade gateway says what it lacks', async () => {
  const folder = await temporaryFolder()
  await writeQwen3(join(folder, 'tiny'))
  const { COLONNADE_GATEWAY_KEY: _, ...env } = process.env
  const run = async (...words: string[]) => {
    const { code, stderr } = await start(process.execPath, [MAIN, 'gateway', 'tiny', ...words], { cwd: folder, env })
      .ended
    return [code, stderr]
  }
  expect(await run()).toEqual([1, expect.stringContaining('COLONNADE_GATEWAY_KEY: got nothing, and no out=')])
  expect(await run('out=x', 'engine=ollama')).toEqual([
    1,
    expect.stringMatching(/engine: got "ollama".*, expected one of local/),
  ])
})

test('the engine of this process is none to be found, and servers are found by their kind', async () => {
  expect(await findEngine(['local'], [], 'caller')).toBe(null)
  expect((await findEngine(['vllm:http://127.0.0.1:9'], ['retries=0'], 'caller'))!.id).toBe('vllm')
})
