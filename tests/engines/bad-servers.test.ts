/** What engines do about servers that are not what they were meant to be: each fault of a list, on each kind of server. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, describe, expect, test } from 'vitest'
import { deliverWeights } from '../../src/engines/engine.ts'
import { createTrainer, rl } from '../../src/index.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'
import {
  errorOf,
  type Lie,
  liar,
  lyingServer,
  pair,
  type ServerKind,
  serverKinds,
  talkPolicy,
} from '../support/server-engines.ts'
import { temporaryFolder } from '../support/temporary.ts'

const closing: (() => void)[] = []
afterAll(() => {
  for (const close of closing) close()
})

/** Where nobody listens any more. */
async function abandonedPort(): Promise<number> {
  const http = createServer()
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const { port } = http.address() as AddressInfo
  await new Promise((resolve) => http.close(resolve))
  return port
}

describe.each(Object.keys(serverKinds) as ServerKind[])('the engine of a %s server', (kind) => {
  const { make, turn } = serverKinds[kind]
  const isTurn = (path: string) => path === turn
  const ofTurns = (lie: Lie) => (path: string) => (isTurn(path) ? lie : {})

  test('says of an address where nothing listens, and of one without TLS, what the connection said', async () => {
    const options = { retries: 0, weights: await temporaryFolder() }
    const port = await abandonedPort()
    expect(await errorOf(make({ url: `http://127.0.0.1:${port}`, ...options }))).toMatch(/ECONNREFUSED/)
    const { server } = await pair(kind)
    expect(await errorOf(make({ url: server.url.replace('http:', 'https:'), ...options }))).toMatch(
      /https:\/\/127.0.0.1:\d+\/\S+: .*(SSL|TLS|wrong version number)/i,
    )
  })

  test.each([401, 402, 403, 404, 409, 410])(
    'ends a turn that is answered with %i at once, with the server’s words',
    async (status) => {
      const { engine, asked } = await liar(kind, ofTurns({ status, json: { error: { message: 'no more' } } }), {
        retries: 3,
      })
      expect(await errorOf(engine)).toMatch(new RegExp(`status ${status}, no more`))
      expect(asked.filter(({ path }) => isTurn(path)).length).toBe(1)
    },
  )

  test.each([408, 425, 429, 500, 502, 503, 504])(
    'asks again for a turn that is answered with %i, as it was',
    async (status) => {
      let left = 1
      const { engine, asked } = await liar(
        kind,
        (path) => (isTurn(path) && left-- > 0 ? { status, json: { message: 'later' } } : {}),
        { retries: 1 },
      )
      expect(await errorOf(engine)).toBe(null)
      const [first, second] = asked.filter(({ path }) => isTurn(path))
      expect(second!.body).toBe(first!.body)
    },
  )

  test('fails turns of half a JSON, of events that stop, and of no ids, and says what came', async () => {
    for (const [lie, message] of [
      [{ text: '{"output_ids": [1, 2' }, /got "\{\\"output_ids\\": \[1, 2", expected a JSON object/],
      [
        { text: 'data: {"choices": []}\n\ndata: {"cho', headers: { 'content-type': 'text/event-stream' } },
        /got "data: .*, expected a JSON object/,
      ],
      [
        { json: { output_mode: 'tokens', choices: [{ text: 'abc' }], text: 'abc', meta_info: {} } },
        /token ids: got undefined/,
      ],
    ] as const) {
      expect(await errorOf((await liar(kind, ofTurns(lie))).engine)).toMatch(message)
    }
  })

  test('trains nothing by a server of another tokenizer: it ends before anything is sampled', async () => {
    const { engine, asked } = await liar(kind, (path) =>
      path === '/tokenize' ? { json: { tokens: [1, 2, 3], max_model_len: 64 } } : {},
    )
    const world = await talkWorld({ engine, numLanes: 4, groupSize: 4 })
    const trainer = createTrainer(world, rl({ groupsPerUpdate: 1, groupSize: 4, updates: 1 }))
    await expect(trainer.updates({}).next()).rejects.toThrow(/tokenizer: got ids \[1,2,3\] for a probe text/)
    await trainer.close()
    expect(asked.filter(({ path }) => isTurn(path)).length).toBe(0)
  })

  test('ends a delivery to a server whose adapter slots are exhausted, with its words, and lets it go on', async () => {
    const { engine, asked } = await liar(
      kind,
      (path) =>
        /\/load_lora_adapter$/.test(path) ? { status: 400, json: { error_message: 'no adapter slot is left' } } : {},
      { settings: { loraRank: 2 } },
    )
    const { engine: made, adapter } = (await talkWorld({ engine, policy: talkPolicy({ loraRank: 2 }) })).cohort()
    await expect(deliverWeights(made, { version: 1, weights: adapter!.weights })).rejects.toThrow(
      /weights of engine .*: got .*load_lora_adapter: status 400, no adapter slot is left, expected a server that accepts them/,
    )
    expect(asked.map(({ path }) => path).filter((path) => /resume|continue/.test(path)).length).toBe(1)
  })

  test('reads the version before and behind turns of a server that names none, and asks again where it changed', async () => {
    let changes = 0
    const { engine, asked } = await liar(kind, (path, json) => {
      if (isTurn(path)) {
        for (const each of [json, json.meta_info, ...(json.choices ?? [])]) delete each?.weight_versions
        return { json }
      }
      // The second reading after the first turn was asked for is another, once.
      const isReading = /weight_info|model_info/.test(path) && asked.some(({ path }) => isTurn(path))
      return isReading && changes++ === 0 ? { json: { ...json, weight_version: 'other' } } : {}
    })
    const world = await talkWorld({ engine, numLanes: 1 })
    const [row] = await talkUntil(world, 1)
    expect([row!.error, asked.filter(({ path }) => isTurn(path)).length]).toEqual([null, 2])
    const { engine: made, weights } = world.cohort()
    await deliverWeights(made, { version: 6, weights })
    const rows = await talkUntil(world, 4)
    const versions = rows.flatMap(({ version, lossMask }) => version.filter((_, t) => lossMask[t] === 1))
    expect(new Set(versions)).toEqual(new Set([-1, 6]))
  })

  test('breaks a turn off at the server, which confirms it, before the same turn is asked for again', async () => {
    let [isConfirmed, turns] = [false, 0]
    const confirmed: boolean[] = []
    const { asked, url } = await lyingServer(async (path) => {
      if (path.includes('abort')) {
        await new Promise((resolve) => setTimeout(resolve, 100))
        isConfirmed = true
      } else if (isTurn(path)) {
        confirmed.push(isConfirmed)
        if (turns++ === 0) await new Promise<void>((resolve) => closing.push(resolve))
      }
      return {}
    })
    const world = await talkWorld({ engine: make({ url, retries: 0 }), numLanes: 1 })
    const { engine, sampling, explore, stopStrings } = world.cohort()
    const rest = { generated: 0, unchanged: 0, maxTokens: 4, key: [0, 0, 0] as const }
    const drawing = { sampling, explore, stopStrings, ...rest }
    engine.submit({ ...drawing, slot: 0, ids: Int32Array.of(1, 2) })
    while (turns === 0) await new Promise((resolve) => setTimeout(resolve, 2))
    engine.abort(0)
    expect(engine.poll().ends).toEqual([{ slot: 0, reason: 'aborted' }])
    engine.submit({ ...drawing, slot: 0, ids: Int32Array.of(1, 2) })
    await engine.arrival
    expect(engine.poll().ends.map(({ reason }) => reason)).not.toContain('failed')
    const paths = asked.map(({ path }) => path).filter((path) => isTurn(path) || path.includes('abort'))
    expect(paths).toEqual([turn, expect.stringContaining('abort'), turn])
    expect(confirmed).toEqual([false, true])
    const [first, abort, second] = asked.filter(({ path }) => paths.includes(path)).map(({ body }) => body)
    expect(second).toBe(first)
    const id = JSON.parse(first!).request_id ?? JSON.parse(first!).rid
    expect(abort).toContain(id)
  })
})

test('log-probabilities at temperature 1 of tokens that were drawn at another are not learned from: all are evaluated anew', async () => {
  for (const [temperature, isKnown] of [
    [1, true],
    [0.7, false],
  ] as const) {
    const { engine } = await liar(
      'vllm',
      (path, json) => (path.startsWith('/server_info') ? { json: { ...json, logprobs_mode: 'raw_logprobs' } } : {}),
      { logprobs: 'raw' },
    )
    const world = await talkWorld({ engine, sampling: { temperature }, numLanes: 8, groupSize: 4 })
    const trainer = createTrainer(world, rl({ groupsPerUpdate: 2, groupSize: 4, updates: 1, temperature }))
    const { value } = await trainer.updates({}).next()
    await trainer.close()
    const { numRecomputed, sampledTokens } = value!.rl as unknown as Record<string, number>
    expect(sampledTokens).toBeGreaterThan(0)
    expect(numRecomputed).toBe(isKnown ? 0 : sampledTokens)
  }
})

test('two runs that ask one vLLM server share nothing of what it caches, though their weights have the same number', async () => {
  const { asked, engine } = await liar('vllm', () => ({}))
  const saltsOf = async () => {
    asked.length = 0
    await talkUntil(await talkWorld({ engine }), 4)
    const turns = asked.filter(({ path }) => path === serverKinds.vllm.turn)
    return [...new Set(turns.map(({ body }) => JSON.parse(body).cache_salt as unknown))]
  }
  const [first, second] = [await saltsOf(), await saltsOf()]
  expect([first.length, second.length, typeof first[0], first[0] === second[0]]).toEqual([1, 1, 'string', false])
})
