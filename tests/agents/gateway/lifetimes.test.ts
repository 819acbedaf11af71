/** How long sessions live, on a clock that stands until it is moved on. */
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { SESSION_LIMITS, Sessions } from '../../../src/agents/gateway/sessions.ts'
import type { ServedModel } from '../../../src/agents/serving/served-model.ts'
import type { Gateway } from '../../../src/entries/engines.ts'
import { loadTokenizer } from '../../../src/language/tokenizers/load-tokenizer.ts'
import { readTrajectories } from '../../../src/tables/trajectories/trajectory-table.ts'
import { made, operate, scriptedGateway } from '../../support/gateway.ts'
import { writeQwen3 } from '../../support/qwen3-folder.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const CHAT = '/v1/chat/completions'
const BODY = { model: 'x', messages: [{ role: 'user', content: 'hi' }] }

describe('a session', () => {
  const limits = { ...SESSION_LIMITS, idleSeconds: 10, sessionSeconds: 100 }
  const opened = async (isHeld = false) => {
    const folder = join(await temporaryFolder(), 'tiny')
    await writeQwen3(folder, { context: 400 })
    const served = { tokenizer: await loadTokenizer(folder) } as unknown as ServedModel
    const sessions = new Sessions(limits, 0)
    const session = sessions.open({}, served, 'test', 1000, isHeld)
    const whyAt = (seconds: number) => [...sessions.abandoned(1000 * seconds)].map(([, why]) => why)
    return { sessions, session, whyAt }
  }
  const IDLE = ['abandoned: idle for 10 s']
  const LATE = ['abandoned: not ended after 100 s']

  test('is abandoned when it has asked nothing for as long as it may, to the millisecond', async () => {
    const { whyAt, sessions, session } = await opened()
    expect(whyAt(10.999)).toEqual([])
    expect(whyAt(11)).toEqual(IDLE)
    sessions.remove(session)
    expect(whyAt(11)).toEqual([])
  })

  test('is idle from the end of its last call on, and never in the middle of one', async () => {
    const { session, whyAt } = await opened()
    session.begin() // The times are those at which it is looked after.
    expect(whyAt(15)).toEqual([])
    expect(whyAt(90)).toEqual([])
    session.begin()
    session.end(40_000)
    expect(whyAt(90)).toEqual([]) // Of two calls one is under way.
    session.end(50_000)
    expect(whyAt(59.999)).toEqual([])
    expect(whyAt(60)).toEqual(IDLE)
  })

  test('is abandoned at its deadline, also in the middle of a call', async () => {
    const { session, whyAt } = await opened()
    session.begin()
    expect(whyAt(100.999)).toEqual([])
    expect(whyAt(101)).toEqual(LATE)
    session.end(101_000)
    expect(whyAt(101)).toEqual(LATE)
  })
})

describe('a gateway', () => {
  beforeEach(() => void vi.useFakeTimers({ toFake: ['Date', 'setInterval', 'clearInterval'] }))
  afterEach(() => void vi.useRealTimers())
  /** Lets so many seconds pass; sweeps that are due are over then. */
  const pass = async (seconds: number) => {
    await vi.advanceTimersByTimeAsync(1000 * seconds)
    for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve))
  }
  /** Lets seconds pass until that is so: files are written in the machine's time. */
  const passUntil = async (isSo: () => boolean) => {
    for (; !isSo(); await new Promise((resolve) => setTimeout(resolve, 5))) await pass(1)
  }
  const openIn = ({ counts: { open, ended, abandoned } }: Gateway) => ({ open, ended, abandoned })

  test('sweeps sessions that nobody ends, with an unknown reward, and their keys and ids with them', async () => {
    const { gateway } = await scriptedGateway(() => 'x', { idleSeconds: 30 })
    const [left, used] = [await made(gateway), await made(gateway)]
    await left.ask(CHAT, BODY)
    await pass(20)
    expect((await used.ask(CHAT, BODY)).status).toBe(200)
    await pass(9)
    expect(openIn(gateway)).toEqual({ open: 2, ended: 0, abandoned: 0 })
    await pass(2)
    expect(openIn(gateway)).toEqual({ open: 1, ended: 1, abandoned: 1 })
    const { reward, error } = gateway.trajectories.row(0)
    expect([reward, error]).toEqual([null, 'abandoned: idle for 30 s'])
    expect((await left.ask(CHAT, BODY)).status).toBe(401)
    expect((await left.ask(`/sessions/${left.id}${CHAT}`, BODY)).status).toBe(404)
    expect((await left.end({ reward: 1 })).status).toBe(404)
    expect((await used.ask(CHAT, BODY)).status).toBe(200)
    await pass(29)
    expect(gateway.counts.open).toBe(1)
    await pass(2)
    expect(openIn(gateway)).toEqual({ open: 0, ended: 2, abandoned: 2 })
  })

  test('sweeps no session in the middle of a call, however long the answer takes, until its deadline', async () => {
    const { gateway, seen } = await scriptedGateway(() => null, { idleSeconds: 30, sessionSeconds: 100 })
    const { ask } = await made(gateway)
    const asking = ask(CHAT, BODY)
    await vi.waitUntil(() => seen.length === 1)
    await pass(90)
    expect(openIn(gateway)).toEqual({ open: 1, ended: 0, abandoned: 0 })
    await pass(11)
    expect((await asking).status).toBe(410)
    expect(openIn(gateway)).toEqual({ open: 0, ended: 1, abandoned: 1 })
  })

  test('begins to count when a stream has ended, also one that its reader left', async () => {
    let waits = true
    const { gateway, seen } = await scriptedGateway(() => (waits ? null : 'x'), { idleSeconds: 30 })
    const { key } = await made(gateway)
    const leaving = new AbortController()
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${key}` }
    const asked = { method: 'POST', headers, body: JSON.stringify({ ...BODY, stream: true }), signal: leaving.signal }
    const reading = fetch(gateway.url + CHAT, asked)
      .then((response) => response.text())
      .catch(({ name }) => name)
    await vi.waitUntil(() => seen.length === 1)
    await pass(80)
    expect(gateway.counts.open).toBe(1)
    leaving.abort()
    expect(await reading).toBe('AbortError')
    waits = false
    const other = await made(gateway) // Its answer comes after the gateway has heard of that.
    expect((await other.ask(CHAT, BODY)).status).toBe(200)
    await pass(28)
    expect(gateway.counts.open).toBe(2)
    await pass(3)
    expect(openIn(gateway)).toEqual({ open: 0, ended: 2, abandoned: 2 })
  })

  test('never sweeps a session that a program holds, whatever has passed', async () => {
    const { gateway } = await scriptedGateway(() => 'x', { idleSeconds: 30, sessionSeconds: 100 })
    const held = gateway.openSession()
    const other = await made(gateway)
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${held.key}` }
    const ask = () =>
      fetch(`${held.openaiUrl}/chat/completions`, { method: 'POST', headers, body: JSON.stringify(BODY) })
    expect((await ask()).status).toBe(200)
    await pass(200)
    expect(openIn(gateway)).toEqual({ open: 1, ended: 1, abandoned: 1 })
    expect((await other.ask(CHAT, BODY)).status).toBe(401)
    expect((await ask()).status).toBe(200)
    expect((await operate(gateway, `/sessions/${held.id}/reward`, { reward: 2 })).status).toBe(200)
    await pass(200)
    expect(held.said).toMatchObject({ reward: 2 })
    expect(held.end({ reward: 1 }).rows).toHaveLength(2)
    expect(openIn(gateway)).toEqual({ open: 0, ended: 2, abandoned: 1 })
  })

  test('has room for another session when one is swept', async () => {
    const { gateway } = await scriptedGateway(() => 'x', { idleSeconds: 30, maxSessions: 1 })
    await made(gateway)
    expect((await operate(gateway, '/sessions', {})).status).toBe(429)
    await pass(31)
    expect((await operate(gateway, '/sessions', {})).status).toBe(200)
  })

  test('tells of sessions whose files cannot be written, stops new ones, and writes them when it can', async () => {
    const printed = vi.spyOn(console, 'error').mockImplementation(() => {})
    const folder = join(await temporaryFolder(), 'sessions')
    const { gateway } = await scriptedGateway(() => 'x', { idleSeconds: 30, folder })
    const [rewarded, left] = [await made(gateway), await made(gateway)]
    for (const { ask } of [rewarded, left]) await ask(CHAT, BODY)
    await writeFile(folder, 'no folder')
    const refused = await rewarded.end({ reward: 0.5 })
    expect([refused.status, refused.json.error]).toMatchObject([
      500,
      { code: 'not_written', message: expect.stringContaining('1 sessions are not written') },
    ])
    await passUntil(() => gateway.counts.unwritten === 2)
    expect((await operate(gateway, '/sessions', {})).status).toBe(503)
    expect((await fetch(`${gateway.url}/health`)).status).toBe(503)
    expect((await rewarded.ask(CHAT, BODY)).status).toBe(410)
    await pass(5) // They are tried again each second.
    expect([gateway.trajectories.count, gateway.counts]).toMatchObject([0, { open: 2, ended: 0, abandoned: 0 }])
    expect(printed.mock.calls.map(String)).toEqual([
      expect.stringMatching(/^colonnade: session 0 is not written; retrying each second: .*sessions/),
      expect.stringMatching(/^colonnade: session 1 is not written/),
    ])
    await rm(folder)
    await passUntil(() => gateway.counts.unwritten === 0)
    printed.mockRestore()
    expect(gateway.counts).toMatchObject({ open: 0, ended: 2, abandoned: 1 })
    const { trajectories } = await readTrajectories(...[0, 1].map((n) => `${folder}/session-00000${n}.arrow`))
    expect([0, 1].map((i) => trajectories.row(i).reward)).toEqual([0.5, null])
    expect((await operate(gateway, '/sessions', {})).status).toBe(200)
  })
})
