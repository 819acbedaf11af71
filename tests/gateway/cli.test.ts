/** `colonnade gateway` from the command line. */
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { findEngine } from '../../src/entries/engines.ts'
import { readTrajectories } from '../../src/tables/trajectory-table.ts'
import { MAIN, start } from '../support/command.ts'
import { writeQwen3 } from '../support/qwen3-folder.ts'
import { temporaryFolder } from '../support/temporary.ts'

test('colonnade gateway makes sessions, writes those that end, and stops at a signal', async () => {
  const folder = await temporaryFolder()
  await writeQwen3(join(folder, 'tiny'))
  const { COLONNADE_GATEWAY_KEY: _, ...env } = process.env
  const words = [MAIN, 'gateway', 'tiny', 'port=0', 'out=sessions', 'slots=2', '--json']
  const started = start(process.execPath, words, { cwd: folder, env })
  let said = ''
  started.process.stderr!.on('data', (chunk) => {
    said += chunk
  })
  await started.printed('with the key of')
  const [, url] = /^tiny at (http:\/\/127\.0\.0\.1:\d+);/m.exec(said)!
  const keyFile = join(folder, 'sessions/operator.key')
  const key = await readFile(keyFile, 'utf8')
  expect([(await stat(keyFile)).mode & 0o777, said.includes(key)]).toEqual([0o600, false])
  const ask = async (path: string, body: object, secret: string) => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${secret}` }
    const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) })
    // biome-ignore lint/suspicious/noExplicitAny: tests read what they expect.
    return { status: response.status, json: (await response.json()) as any }
  }
  expect((await ask('/sessions', {}, 'guess')).status).toBe(401)
  const { json: session } = await ask('/sessions', { group: 2, prompt_id: 5 }, key)
  const messages = [{ role: 'user', content: 'hi' }]
  const asked = { model: 'any', max_tokens: 4, messages }
  expect((await ask('/v1/messages', asked, session.key)).status).toBe(200)
  expect((await ask(`/sessions/${session.id}/reward`, { reward: 0.5 }, key)).json).toMatchObject({ rows: 1, calls: 1 })
  const { trajectories, words: told } = await readTrajectories(join(folder, 'sessions/session-000000.arrow'))
  expect(trajectories.row(0)).toMatchObject({ group: 2, promptId: 5, reward: 0.5, turns: 1 })
  expect(JSON.parse(told[0]!.prompt)).toEqual(messages)
  started.process.kill('SIGINT')
  const { code, stdout } = await started.ended
  expect([code, JSON.parse(stdout)]).toMatchObject([0, { name: 'tiny', calls: 1, ended: 1, abandoned: 0 }])
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
    expect.stringContaining('engine: got "ollama", expected one of local'),
  ])
})

test('the engine of this process is none to be found, and servers are found by their kind', async () => {
  expect(await findEngine(['local'], [], 'caller')).toBe(null)
  expect((await findEngine(['vllm:http://127.0.0.1:9'], ['retries=0'], 'caller'))!.id).toBe('vllm')
})
