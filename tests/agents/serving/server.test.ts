/** A server under load, stopped, left alone by its clients, from the command line, and asked by OpenAI's own client. */
import { get as httpsGet } from 'node:https'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { describe, expect, test, vi } from 'vitest'
import { openServedModel } from '../../../src/agents/serving/served-model.ts'
import { serveModel } from '../../../src/entries/engines.ts'
import { cached } from '../../support/cache.ts'
import { certificate } from '../../support/certificate.ts'
import { MAIN, skipLoudly, start } from '../../support/command.ts'
import { writeQwen3 } from '../../support/qwen3-folder.ts'
import { get, post, routesOf, served, smallModel } from '../../support/serving.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { thorough } from '../../support/tiers.ts'

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
    const route = routesOf({ batcher, ...rest }, weights).get('POST /v1/completions')!
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

describe('keys', () => {
  const [apiKey, controlKey] = ['a key for the clients', 'a key for the trainer']
  const body = { model: 'small', prompt: 'hi', max_tokens: 2 }

  test('are asked for by every route that answers or tells of the model, and another for control', async () => {
    const { url } = await served({ apiKey, controlKey, control: true, faults: { rate: 0 } })
    const ask = async (method: string, path: string, key?: string, header = 'authorization') => {
      const shown: Record<string, string> =
        key === undefined ? {} : { [header]: header === 'x-api-key' ? key : `Bearer ${key}` }
      const headers = { 'content-type': 'application/json', ...shown }
      const sent = method === 'POST' ? { method, headers, body: JSON.stringify(body) } : { headers }
      return (await fetch(url + path, sent)).status
    }
    for (const key of [undefined, '', 'another key of nobody']) {
      expect(await ask('POST', '/v1/completions', key)).toBe(401)
      expect(await ask('POST', '/v1/messages', key)).toBe(401)
      expect(await ask('POST', '/generate', key)).toBe(401)
      expect(await ask('GET', '/v1/models', key)).toBe(401)
      expect(await ask('GET', '/server_info', key)).toBe(401)
      expect(await ask('POST', '/pause?mode=keep', key)).toBe(401)
      expect(await ask('GET', '/faults', key)).toBe(401)
    }
    expect(await ask('GET', '/health')).toBe(200)
    expect(await ask('POST', '/v1/completions', apiKey)).toBe(200)
    expect(await ask('POST', '/v1/completions', apiKey, 'x-api-key')).toBe(200)
    expect(await ask('POST', '/v1/completions', controlKey)).toBe(200)
    for (const path of ['/pause?mode=keep', '/update_weights_from_disk', '/v1/load_lora_adapter', '/resume']) {
      expect(await ask('POST', path, apiKey)).toBe(401)
    }
    expect(await ask('POST', '/pause?mode=keep', controlKey)).toBe(200)
    expect(await ask('POST', '/resume', controlKey)).toBe(200)
    expect(await ask('GET', '/faults', controlKey)).toBe(200)
  })

  test('have to be there where other machines reach the server, and be long', async () => {
    const policy = smallModel()
    await expect(serveModel({ policy, host: '0.0.0.0' })).rejects.toThrow('host: got 0.0.0.0 without apiKey')
    await expect(serveModel({ policy, apiKey: 'short' })).rejects.toThrow(
      'apiKey: got 5 characters, expected at least 16',
    )
    await expect(serveModel({ policy, apiKey, control: true })).rejects.toThrow('expected controlKey, so')
    const plain = await served({ host: '0.0.0.0', apiKey })
    expect(plain.notes).toEqual([expect.stringContaining('give tls, or put a TLS proxy')])
    expect((await served({ host: '0.0.0.0', apiKey, tls: certificate })).notes).toEqual([])
  })

  test('go over TLS where a certificate is given', async () => {
    const { url } = await served({ apiKey, tls: certificate })
    expect(url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/)
    const told = await new Promise<string>((resolve, reject) => {
      const options = { ca: certificate.cert, headers: { authorization: `Bearer ${apiKey}` } }
      const asked = httpsGet(`${url}/v1/models/small`, options, (response) => {
        response.setEncoding('utf8').on('data', resolve)
      })
      asked.on('error', reject)
    })
    expect(JSON.parse(told)).toMatchObject({ id: 'small', object: 'model' })
    await expect(fetch(url.replace('https', 'http'))).rejects.toThrow()
    const tls = { cert: 'no certificate', key: certificate.key }
    await expect(serveModel({ policy: smallModel(), tls })).rejects.toThrow(/^tls: got .*, expected a certificate/)
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
  expect([code, stdout]).toEqual([130, expect.stringContaining('stops after the running answers')])
})

/** The client of OpenAI's that is asked with. */
const CLIENT = 'openai@7.57.0'

thorough('OpenAI’s own client completes, chats, streams, and reads errors', { timeout: 300_000 }, async (context) => {
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
