/** A server under load, stopped, left alone by its clients, from the command line, and asked by OpenAI's own client. */
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { describe, expect, test, vi } from 'vitest'
import { openaiRoutes } from '../../../src/agents/serving/openai.ts'
import { openServedModel } from '../../../src/agents/serving/served-model.ts'
import { serveModel } from '../../../src/entries/engines.ts'
import { cached } from '../../support/cache.ts'
import { MAIN, skipLoudly, start } from '../../support/command.ts'
import { writeQwen3 } from '../../support/qwen3-folder.ts'
import { get, post, served, smallModel } from '../../support/serving.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const LONG = { model: 'small', prompt: 'hi', max_tokens: 60, seed: 5, logit_bias: {} }

describe('a server', () => {
  test('lets turns wait, and refuses those that the queue has no room for with 429, then takes others', async () => {
    const { url } = await served({ slots: 1, queue: 2 })
    const answers = await Promise.all(Array.from({ length: 6 }, () => post(`${url}/v1/completions`, LONG)))
    const statuses = answers.map(({ status }) => status).sort()
    expect(statuses).toEqual([200, 200, 200, 429, 429, 429])
    const refused = answers.find(({ status }) => status === 429)!
    expect(refused.json.error).toMatchObject({ type: 'rate_limit_error', code: 'queue_full' })
    expect(refused.headers.get('retry-after')).toBe('1')
    expect((await post(`${url}/v1/completions`, LONG)).status).toBe(200)
  })

  test('decodes turns of several clients together', async () => {
    const { url } = await served({ slots: 4 })
    const asking = Promise.all([1, 2, 3, 4].map((seed) => post(`${url}/v1/completions`, { ...LONG, seed })))
    let most = 0
    for (let isOver = false; !isOver; ) {
      isOver = await Promise.race([asking.then(() => true), sleep(1).then(() => false)])
      most = Math.max(most, (await get(`${url}/health`)).json.running)
    }
    expect(most).toBe(4)
  })

  test('keeps what a prompt shares with the turn before it in the slot, and computes what differs', async () => {
    const { url } = await served({ slots: 1 })
    const ask = async (prompt: number[], to = url) => {
      const body = { ...LONG, prompt, max_tokens: 8, logprobs: 0, return_token_ids: true }
      const { choices, usage } = (await post(`${to}/v1/completions`, body)).json
      return { choice: choices[0], numCached: usage.prompt_tokens_details.cached_tokens }
    }
    expect((await ask([256, 1, 2, 3])).numCached).toBe(0)
    expect((await ask([256, 1, 2, 4])).numCached).toBe(3)
    const warm = await ask([256, 9, 2, 4])
    const cold = await ask([256, 9, 2, 4], (await served({ slots: 1 })).url)
    expect([warm.numCached, cold.numCached]).toEqual([1, 0])
    expect(warm.choice).toEqual(cold.choice)
  })

  test('breaks off the turns of a client that goes away', async () => {
    const { url } = await served({ slots: 1, control: true })
    await post(`${url}/pause?mode=keep`, {}) // Else they might end by themselves.
    const leaving = new AbortController()
    const asking = [1, 2].map((seed) =>
      post(`${url}/v1/completions`, { ...LONG, seed }, { signal: leaving.signal }).catch((error) => error.name),
    )
    const waiting = async () => (await get(`${url}/health`)).json.waiting
    while ((await waiting()) < 2) await sleep(1)
    leaving.abort()
    expect(await Promise.all(asking)).toEqual(['AbortError', 'AbortError'])
    while ((await waiting()) > 0) await sleep(1)
  })

  test('ends what it has begun when it is closed, and takes nothing new', async () => {
    const server = await served({ slots: 1 })
    const { url } = server
    const asking = [1, 2].map((seed) => post(`${url}/v1/completions`, { ...LONG, seed }))
    for (let isThere = false; !isThere; ) isThere = (await get(`${url}/health`)).json.waiting === 1
    const closing = server.close()
    const late = await post(`${url}/v1/completions`, LONG)
    expect([late.status, late.json.error.code]).toEqual([503, 'stopping'])
    for (const { status, json } of await Promise.all(asking)) {
      expect([status, ['stop', 'length'].includes(json.choices[0].finish_reason)]).toEqual([200, true])
    }
    await closing
    await expect(fetch(`${url}/health`)).rejects.toThrow()
  })

  test('tells that its engine failed with 500, and takes nothing more', async () => {
    const { batcher, weights, ...rest } = await openServedModel('small', { policy: smallModel() })
    const route = openaiRoutes({ batcher, ...rest }, weights).get('POST /v1/completions')!
    const ask = async () =>
      route({
        body: { model: 'small', prompt: 'hi' },
        ...{ query: new URLSearchParams(), headers: {}, params: {} },
        signal: new AbortController().signal,
      })
    batcher.engine.advance = () => {
      throw new Error('no memory left')
    }
    const told = vi.spyOn(console, 'error').mockImplementation(() => {})
    await expect(ask()).rejects.toMatchObject({ status: 500, code: 'engine_failed' })
    expect(String(told.mock.calls)).toContain('no memory left')
    told.mockRestore()
    await expect(ask()).rejects.toMatchObject({ status: 503, code: 'stopping' })
    await batcher.idle()
  })

  test('refuses options that do not fit', async () => {
    const policy = smallModel()
    await expect(serveModel({ policy, slots: 0 })).rejects.toThrow('slots: got 0, expected a whole number ≥ 1')
    await expect(serveModel({ policy, context: 65 })).rejects.toThrow(
      'context: got 65, expected a whole number from 2 to 64',
    )
    await expect(serveModel({ policy, port: 8000, slot: 3 } as never)).rejects.toThrow(/slot.*did you mean "slots"/)
    await expect(serveModel({ policy, adapter: new Float32Array(3) })).rejects.toThrow(
      'adapter: got one, expected none',
    )
    const { url } = await served()
    const port = Number(new URL(url).port)
    await expect(serveModel({ policy, port })).rejects.toThrow(/port: got 127.0.0.1:\d+ .*EADDRINUSE/)
  })
})

test('colonnade serve answers for a folder, and ends at a signal with code 0', async () => {
  const folder = await temporaryFolder()
  await writeQwen3(join(folder, 'tiny'))
  const started = start(process.execPath, [MAIN, 'serve', 'tiny', 'port=0', 'slots=2'], { cwd: folder })
  let said = ''
  started.process.stdout!.on('data', (chunk) => {
    said += chunk
  })
  await started.printed('Ctrl-C')
  const [, url] = /^tiny at (http:\/\/127\.0\.0\.1:\d+)\/v1, up to 160 tokens/.exec(said)!
  const body = { model: 'tiny', messages: [{ role: 'user', content: 'hi' }], max_tokens: 4, return_token_ids: true }
  const { status, json } = await post(`${url}/v1/chat/completions`, body)
  expect([status, json.choices[0].token_ids.length > 0]).toEqual([200, true])
  started.process.kill('SIGINT')
  const { code, stdout } = await started.ended
  expect([code, stdout]).toEqual([130, expect.stringContaining('stops when what it has begun is over')])
})

/** The client of OpenAI's that is asked with; the newest major version. */
const CLIENT = 'openai@7'

test('OpenAI’s own client completes, chats, streams, and reads errors', { timeout: 300_000 }, async (context) => {
  const words = ['install', CLIENT, '--no-audit', '--no-fund', '--silent']
  const made = await cached(CLIENT, (folder, run) => run('npm', [...words, '--prefix', folder]))
  if ('why' in made) return skipLoudly(context, `the npm package ${CLIENT} cannot be installed from here: ${made.why}`)
  const entry = join(made.folder, 'node_modules/openai/index.mjs')
  const { default: OpenAI } = await import(pathToFileURL(entry).href)
  const { url } = await served()
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
  const models = []
  for await (const { id } of await client.models.list()) models.push(id)
  expect(models).toEqual(['small'])
  const asked = { model: 'small', max_tokens: 6, seed: 4, messages: [{ role: 'user', content: 'hi' }] }
  const { choices } = await client.chat.completions.create({ ...asked, logprobs: true, top_logprobs: 1 })
  expect(choices[0].logprobs.content.length).toBeGreaterThan(0)
  const streamed = await client.chat.completions.create({ ...asked, stream: true })
  let text = ''
  for await (const chunk of streamed) text += chunk.choices[0]?.delta.content ?? ''
  expect(text).toBe(choices[0].message.content)
  const helped = client.chat.completions.stream(asked)
  expect((await helped.finalChatCompletion()).choices[0].message.content).toBe(text)
  const { choices: completed, usage } = await client.completions.create({
    model: 'small',
    prompt: 'hi',
    max_tokens: 3,
    n: 2,
  })
  expect([completed.length, usage.completion_tokens <= 6]).toEqual([2, true])
  for (const [fields, name, code] of [
    [{ model: 'other' }, 'NotFoundError', 'model_not_found'],
    [{ temperature: -1 }, 'BadRequestError', 'bad_field'],
  ] as const) {
    const error = await client.chat.completions.create({ ...asked, ...fields }).catch((caught: unknown) => caught)
    expect([error.constructor.name, error.code, error.param]).toEqual([name, code, Object.keys(fields)[0]])
  }
})
