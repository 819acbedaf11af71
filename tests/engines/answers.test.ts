/** What engines send, and what they take of answers: each field of a turn, of a JSON answer and of a message in protobuf. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, onTestFinished, test } from 'vitest'
import { AnswerError, bothErrors, JsonClient, type JsonClientOptions } from '../../src/base/http/json-client.ts'
import { openaiEngine } from '../../src/engines/servers/openai.ts'
import { probeDistance } from '../../src/engines/servers/probe.ts'
import { type ClaimedTurn, readTurn } from '../../src/engines/servers/server-answer.ts'
import { TinkerClient } from '../../src/engines/tinker/tinker-client.ts'
import { TinkerSession } from '../../src/engines/tinker/tinker-session.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'

/** A server that answers as `answer` says, until the test has ended, and what it was asked. */
async function server(
  answer: (
    asked: { path: string; body: string; headers: IncomingMessage['headers'] },
    response: ServerResponse,
  ) => void,
) {
  const asked: { method: string; path: string; body: string; headers: IncomingMessage['headers'] }[] = []
  const http = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const { method, url, headers } = request
      const each = { method: method!, path: url!, body: Buffer.concat(chunks).toString(), headers }
      asked.push(each)
      answer(each, response)
    })
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    http.closeAllConnections()
    http.close()
  })
  return { asked, url: `http://127.0.0.1:${(http.address() as AddressInfo).port}` }
}

describe('a turn that a server tells', () => {
  const claimed: ClaimedTurn = {
    ...{ tokens: [3, 0], logprobs: [-1, 0], logprobTokens: null, candidates: null, versions: null, reason: 'stop' },
  }
  const read = (claim: Partial<ClaimedTurn>, kind: Parameters<typeof readTurn>[2] = 'candidates') =>
    readTurn({ ...claimed, ...claim }, 4, kind)

  test('has a log-probability a token, with sets in order and a version each where it is told', () => {
    const untold = { candidates: [], version: null }
    expect(read({})).toEqual({
      tokens: [
        { token: 3, logprob: -1, ...untold },
        { token: 0, logprob: 0, ...untold },
      ],
      ...{ reason: 'stop', hasVersions: false },
    })
    const spans = [
      { version: 7, start: 0, end: 1 },
      { version: '8', start: 1, end: 2 },
    ]
    const sets = [
      [3, 1],
      [0, 3, 1, 2],
    ]
    expect(read({ logprobTokens: [3, null], candidates: sets, versions: spans }).tokens).toEqual([
      { token: 3, logprob: -1, candidates: [1, 3], version: '7' },
      { token: 0, logprob: 0, candidates: [], version: '8' }, // All could be chosen.
    ])
    expect(read({ candidates: [null, []] }).tokens.map(({ candidates }) => candidates)).toEqual([[], []])
    expect(read({ candidates: [[], null] }, 'tempered').tokens.map(({ candidates }) => candidates)).toEqual([[], []])
    expect(read({ logprobs: [1e-5, Number.NaN] }).tokens.map(({ logprob }) => logprob)).toEqual([1e-5, Number.NaN])
    expect(read({ logprobs: null }, 'none').tokens.map(({ logprob }) => logprob)).toEqual([Number.NaN, Number.NaN])
    const nothing = { tokens: [], logprobs: [], versions: [], reason: undefined }
    expect(read(nothing)).toEqual({ tokens: [], reason: 'undefined', hasVersions: true })
  })

  test.each<[Partial<ClaimedTurn>, string]>([
    [{ tokens: null }, 'token ids: got null, expected ids below 4'],
    [{ tokens: [3, 4] }, 'token ids: got [3,4], expected ids below 4'],
    [{ tokens: [3, -1] }, 'token ids: got [3,-1]'],
    [{ tokens: [3, 0.5] }, 'token ids: got [3,0.5]'],
    [{ logprobs: null }, 'log-probabilities: got null, expected 2 of them'],
    [{ logprobs: [-1] }, 'log-probabilities: got [-1], expected 2 of them'],
    [{ logprobs: 'xy' }, 'log-probabilities: got "xy", expected 2 of them'],
    [{ logprobs: [-1, 2e-5] }, 'log-probability 1: got {"logprob":0.00002}, expected a number ≤ 0 of token 0'],
    [{ logprobs: ['-1', -1] }, 'log-probability 0: got {"logprob":"-1"}, expected a number ≤ 0 of token 3'],
    [{ logprobTokens: [3, 1] }, 'log-probability 1: got {"token":1,"logprob":0}, expected a number ≤ 0 of token 0'],
    [{ logprobTokens: [3] }, 'ids of log-probabilities: got [3], expected 2 of them'],
    [{ candidates: [[3]] }, 'candidate sets: got [[3]], expected 2 of them'],
    [{ candidates: [[3], 'all'] }, 'candidate set 1: got "all", expected ids with 0 among them'],
    [{ candidates: [[3], [0, 4]] }, 'candidate set 1: got [0,4], expected ids with 0 among them'],
    [{ candidates: [[3], [0, -1]] }, 'candidate set 1: got [0,-1]'],
    [{ candidates: [[3], [0, 0.5]] }, 'candidate set 1: got [0,0.5]'],
    [{ candidates: [[3], [1]] }, 'candidate set 1: got [1], expected ids with 0 among them'],
    ...[
      'one',
      [],
      [{ version: 1, start: 0, end: 1 }],
      [{ version: 1, start: 1, end: 2 }],
      [{ version: 1, start: 0, end: 3 }],
      [{ version: 1, start: 0, end: 1.5 }],
      [
        { version: 1, start: 0, end: 0 },
        { version: 1, start: 0, end: 2 },
      ],
    ].map((versions): [Partial<ClaimedTurn>, string] => [
      { versions },
      `versions: got ${JSON.stringify(versions).slice(0, 60)}`,
    ]),
  ])('is not taken where it cannot be: %j', (claim, message) => {
    expect(() => read(claim)).toThrow(`answer, ${message}`)
  })
})

describe('a client of JSON', () => {
  const options: JsonClientOptions = { deadline: 30, retries: 0, apiKey: '' }

  test('needs an address of http or https, and numbers in their range', () => {
    for (const url of ['', 'localhost:80', 'ftp://x', 'xhttp://x', 'https+x://x', 3 as never])
      expect(() => new JsonClient(url, options)).toThrow('expected a URL like http://127.0.0.1:8000')
    expect(new JsonClient('https://x/a//', options).url).toBe('https://x/a')
    for (const deadline of [0, Number.NaN, 2 ** 31 / 1000])
      expect(() => new JsonClient('http://x', { ...options, deadline })).toThrow('expected seconds above 0')
    for (const retries of [-1, 0.5])
      expect(() => new JsonClient('http://x', { ...options, retries })).toThrow('expected a whole number ≥ 0')
  })

  test('posts a body or gets, with the key as it was said', async () => {
    const { asked, url } = await server((_, response) => response.end('{"a":1}'))
    expect(await new JsonClient(url, options).ask('/get', null)).toEqual({ a: 1 })
    await new JsonClient(url, { ...options, apiKey: 'k' }).ask('/post', { b: 2 })
    await new JsonClient(url, { ...options, apiKey: 'k', apiKeyHeader: 'x-api-key' }).tell('/tell', {})
    const told = asked.map(({ method, path, body, headers }) => {
      const { authorization, 'x-api-key': key, 'content-type': type, accept } = headers
      return { method, path, body, authorization, key, type, accept }
    })
    const none = { authorization: undefined, key: undefined, type: undefined, accept: undefined }
    const json = { ...none, method: 'POST', type: 'application/json' }
    expect(told).toEqual([
      { ...none, method: 'GET', path: '/get', body: '' },
      { ...json, path: '/post', body: '{"b":2}', authorization: 'Bearer k' },
      { ...json, path: '/tell', body: '{}', key: 'k' },
    ])
  })

  test('sends and reads another form where both have it', async () => {
    let type = 'application/x'
    const { asked, url } = await server((_, response) => response.setHeader('content-type', type).end('{"a":1}'))
    const client = new JsonClient(url, options)
    const form = {
      type: 'application/x',
      bytes: new Uint8Array([65, 66]),
      read: (bytes: Uint8Array) => ({ bytes: bytes.length }),
    }
    expect(await client.ask('/x', {}, undefined, form)).toEqual({ bytes: 7 })
    const { read: _, ...sent } = form
    expect(await client.ask('/x', {}, undefined, sent)).toEqual({ a: 1 })
    type = 'application/json'
    expect(await client.ask('/x', { c: 3 }, undefined, { type: 'application/x', read: form.read })).toEqual({ a: 1 })
    expect(asked.map(({ body, headers }) => [body, headers['content-type'], headers.accept])).toEqual([
      ['AB', 'application/x', 'application/x'],
      ['AB', 'application/x', undefined],
      ['{"c":3}', 'application/json', 'application/x'],
    ])
    type = 'application/x'
    const broken = () => {
      throw new Error('half a message')
    }
    await expect(client.ask('/x', {}, undefined, { ...form, read: broken })).rejects.toThrow(
      `${url}/x: half a message, in an answer of application/x`,
    )
  })

  test.each([
    ['{"error":{"message":"m"},"message":"n"}', 'm'],
    ['{"error":"e","message":"n"}', 'e'],
    ['{"error":null,"message":"n","error_message":"r"}', 'n'],
    ['{"error_message":"r","detail":"d"}', 'r'],
    ['{"detail":"d"}', 'd'],
    ['{"detail":[1]}', JSON.stringify('{"detail":[1]}')],
    ['no way', '"no way"'],
    ['null', '"null"'],
  ])('says what a refusal of %s says', async (text, words) => {
    const { url } = await server((_, response) => response.writeHead(400).end(text))
    const error = await new JsonClient(url, options).ask('/x', null).catch((thrown) => thrown)
    expect(error).toBeInstanceOf(AnswerError)
    expect(error).toMatchObject({ message: `${url}/x: status 400, ${words}`, status: 400, mayPass: false })
  })

  test('asks again for what may pass, as often as it may, and not once it is broken off', async () => {
    let left = 2
    const { asked, url } = await server((_, response) => response.writeHead(left-- > 0 ? 503 : 200).end('{}'))
    await new JsonClient(url, { ...options, retries: 2 }).ask('/x', {})
    expect(asked).toHaveLength(3)
    left = 2
    await expect(new JsonClient(url, { ...options, retries: 1 }).tell('/x', {})).rejects.toThrow('status 503')
    expect(asked).toHaveLength(5)
    const work = () => Promise.reject(new AnswerError('later', 503, true))
    await expect(new JsonClient(url, { ...options, retries: 9 }).retry(work, AbortSignal.abort())).rejects.toThrow(
      'later',
    )
  })

  test('takes a route that is not there for none, and only that', async () => {
    const { url } = await server(({ path }, response) => response.writeHead(path === '/none' ? 404 : 410).end('{}'))
    const client = new JsonClient(url, options)
    expect(await client.askIfThere('/none')).toBeNull()
    await expect(client.askIfThere('/gone')).rejects.toThrow('status 410')
  })

  test('takes objects alone for answers, and says both of two errors', async () => {
    const { url } = await server(({ path }, response) => response.end(path.slice(1)))
    for (const text of ['3', 'null', 'x'])
      await expect(new JsonClient(url, options).ask(`/${text}`, null)).rejects.toThrow(
        `got ${JSON.stringify(text)}, expected a JSON object`,
      )
    const first = new Error('first')
    expect(await bothErrors(first, async () => {})).toBe(first)
    const both = await bothErrors(first, () => Promise.reject(new Error('second')))
    expect([both.message, both.cause]).toEqual(['first; and then second', first])
  })
})

describe('a sampling session', () => {
  const drawing = { max_tokens: 4, temperature: 1, top_k: -1, top_p: 1, seed: 5, stop: [3] }
  const opened = async (answer: object, session: unknown = 's') => {
    const asked: [string, object][] = []
    const client = {
      url: 'http://x',
      session: async () => 'mine',
      ask: async (path: string, body: object) => {
        asked.push([path, body])
        return { sampling_session_id: session }
      },
      run: async (path: string, body: object) => {
        asked.push([path, body])
        return answer
      },
    } as unknown as TinkerClient
    return { asked, client, session: () => TinkerSession.open(client, 'tinker://w') }
  }

  test('is numbered, and so are its requests', async () => {
    const sequence = { tokens: [1, 2], logprobs: [-1, 1e-5], stop_reason: 'length' }
    const { asked, session } = await opened({ sequences: [sequence] })
    await session()
    const second = await session()
    const sample = await second.sample([7, 8], drawing, 4)
    expect(sample).toEqual({
      tokens: [
        { token: 1, logprob: -1 },
        { token: 2, logprob: 1e-5 },
      ],
      reason: 'length',
    })
    await second.sample([7], drawing, 4)
    const open = { session_id: 'mine', model_path: 'tinker://w', type: 'create_sampling_session' }
    const of = (tokens: number[], seq_id: number) => ({
      ...{ num_samples: 1, prompt: { chunks: [{ type: 'encoded_text', tokens }] }, sampling_params: drawing },
      ...{ sampling_session_id: 's', seq_id, type: 'sample' },
    })
    expect(asked).toEqual([
      ['create_sampling_session', { ...open, sampling_session_seq_id: 0 }],
      ['create_sampling_session', { ...open, sampling_session_seq_id: 1 }],
      ['asample', of([7, 8], 1)],
      ['asample', of([7], 2)],
    ])
  })

  test.each([
    [{}, 'sequences: got undefined, expected a list of one'],
    [{ sequences: [{}, {}] }, 'sequences: got [{},{}], expected a list of one'],
    [{ sequences: [{}] }, 'tokens: got undefined, expected ids below 4'],
    [{ sequences: [{ tokens: [4], logprobs: [-1] }] }, 'tokens: got [4], expected ids below 4'],
    [{ sequences: [{ tokens: [-1], logprobs: [-1] }] }, 'tokens: got [-1], expected ids below 4'],
    [{ sequences: [{ tokens: [0.5], logprobs: [-1] }] }, 'tokens: got [0.5], expected ids below 4'],
    [{ sequences: [{ tokens: [1] }] }, 'logprobs: got undefined, expected 1 numbers ≤ 0'],
    [{ sequences: [{ tokens: [1], logprobs: '1' }] }, 'logprobs: got "1", expected 1 numbers ≤ 0'],
    [{ sequences: [{ tokens: [1], logprobs: [-1, -1] }] }, 'logprobs: got [-1,-1], expected 1 numbers ≤ 0'],
    [{ sequences: [{ tokens: [1], logprobs: [2e-5] }] }, 'logprobs: got [0.00002], expected 1 numbers ≤ 0'],
    [{ sequences: [{ tokens: [1], logprobs: ['-1'] }] }, 'logprobs: got ["-1"], expected 1 numbers ≤ 0'],
  ])('takes no sample of %j', async (answer, message) => {
    const session = await (await opened(answer)).session()
    await expect(session.sample([7], drawing, 4)).rejects.toThrow(`answer, ${message}`)
  })

  test('that has no name is refused', async () => {
    await expect((await opened({}, 3)).session()).rejects.toThrow(
      'service http://x, tinker://w: got session 3, expected the name of a sampling session',
    )
  })
})

describe('a service of Tinker’s protocol', () => {
  const clientOf = (url: string, more: object = {}) =>
    new TinkerClient({ ...{ url, apiKeyVariable: '', codec: 'json', deadline: 30, retries: 0 }, ...more })
  const keyed = { apiKeyVariable: 'COLONNADE_TEST_TINKER_KEY' }

  test('sends on who gets a file, with the key to itself alone', async () => {
    process.env.COLONNADE_TEST_TINKER_KEY = 'secret'
    onTestFinished(() => void delete process.env.COLONNADE_TEST_TINKER_KEY)
    const other = await server((_, response) => response.end('far'))
    const { asked, url } = await server(({ path }, response) => {
      if (path === '/near') return response.end('near')
      const to = path.endsWith('far') ? `${other.url}/x` : path.endsWith('near') ? '/near' : path
      response.writeHead(302, { location: to }).end()
    })
    const client = clientOf(url, keyed)
    const text = async (path: string) => Buffer.from(await client.download(path)).toString()
    expect([await text('near'), await text('far')]).toEqual(['near', 'far'])
    const keys = (all: typeof asked) => all.map(({ path, headers }) => [path, headers['x-api-key']])
    expect(keys(asked)).toEqual([
      ['/api/v1/near', 'secret'],
      ['/near', 'secret'],
      ['/api/v1/far', 'secret'],
    ])
    expect(keys(other.asked)).toEqual([['/x', undefined]])
    await expect(client.download('round')).rejects.toThrow(`${url}/api/v1/round: status 302`)
    expect(asked).toHaveLength(3 + 6) // It is sent on five times at most.
    await clientOf(url).download('near')
    expect(keys(asked.slice(-2))).toEqual([
      ['/api/v1/near', undefined],
      ['/near', undefined],
    ])
  })

  test('says of a file that is not there what it says, and asks again for what may pass', async () => {
    let left = 1
    const { asked, url } = await server(({ path }, response) => {
      if (path.endsWith('cut')) return response.destroy()
      if (path.endsWith('none')) return response.writeHead(404).end('nothing')
      response.writeHead(left-- > 0 ? 503 : 200).end('x')
    })
    await expect(clientOf(url).download('none')).rejects.toThrow(`${url}/api/v1/none: status 404, "nothing"`)
    expect(await clientOf(url, { retries: 1 }).download('busy')).toHaveLength(1)
    expect(asked).toHaveLength(3)
    await expect(clientOf(url, { retries: 1 }).download('cut')).rejects.toMatchObject({ status: 0, mayPass: true })
    expect(asked).toHaveLength(5)
  })

  const answering = (answers: Record<string, unknown>) =>
    server(({ path }, response) => {
      const answer = answers[path]
      if (answer === undefined) return response.writeHead(404).end('{}')
      response.end(JSON.stringify(answer))
    })
  const models = { '/api/v1/get_server_capabilities': { supported_models: [{ model_name: 'small' }, null] } }

  test('is held to the schemas that it publishes, and taken to know all where it publishes none', async () => {
    const whole = {
      ...{ models: ['small', 'undefined'], losses: ['cross_entropy', 'importance_sampling', 'ppo'] },
      ...{ clipsGradients: true, numbersRequests: true, loadsWeightsAlone: true },
      chunk: { datums: 1024, bytes: 5_000_000 },
    }
    expect(await clientOf((await answering(models)).url).service()).toEqual(whole)
    const seq = { properties: { seq_id: {} } }
    const schemas = {
      ForwardBackwardInput: { properties: { loss_fn: { enum: ['cross_entropy', 1] } } },
      ...{ ForwardBackwardRequest: seq, OptimStepRequest: { properties: {} }, AdamParams: { properties: {} } },
      LoadWeightsRequest: { properties: {} },
    }
    const sizes = { fwdbwd_max_chunk_len: 7, fwdbwd_max_chunk_bytes_count: 0 }
    const { url } = await answering({
      ...models,
      ...{ '/openapi.json': { components: { schemas } }, '/api/v1/client/config': sizes },
    })
    expect(await clientOf(url).service()).toEqual({
      ...{ models: whole.models, losses: ['cross_entropy', '1'], chunk: { datums: 7, bytes: 5_000_000 } },
      ...{ clipsGradients: false, numbersRequests: false, loadsWeightsAlone: false },
    })
    schemas.OptimStepRequest = seq
    expect((await clientOf(url).service()).numbersRequests).toBe(true)
    schemas.ForwardBackwardRequest = { properties: {} } as never
    expect((await clientOf(url).service()).numbersRequests).toBe(false)
  })

  test('is one where it says so, and is asked once; one that failed is asked again', async () => {
    const answers: Record<string, unknown> = { '/api/v1/get_server_capabilities': { supported_models: 'all' } }
    const { asked, url } = await answering(answers)
    const client = clientOf(url)
    await expect(client.service()).rejects.toThrow(
      `${url}: got supported_models "all", expected a list, as in Tinker's protocol`,
    )
    Object.assign(answers, models)
    const first = await client.service()
    const { length } = asked
    expect(await client.service()).toBe(first)
    expect(asked).toHaveLength(length)
  })

  test('names the session, and says what a status means', async () => {
    const { url } = await answering({ '/api/v1/create_session': { session_id: 3 } })
    await expect(clientOf(url).session()).rejects.toThrow(`${url}: got session 3, expected a text`)
    await expect(clientOf(url).ask('x', {})).rejects.toThrow(
      /status 404, .* \(the service has no such model, session, checkpoint or future\)$/,
    )
  })

  test('names a future, and is asked for it until it is done, or has failed', async () => {
    const told: object[] = []
    const { asked, url } = await server(({ path }, response) => {
      if (path !== '/api/v1/retrieve_future')
        return response.end(JSON.stringify({ request_id: path.endsWith('bad') ? '' : 'f' }))
      response.end(JSON.stringify(told.shift()))
    })
    const client = clientOf(url)
    told.push({ type: 'try_again', queue_state: 'active' }, { done: true })
    expect(await client.run('work', { a: 1 }, true)).toEqual({ done: true })
    expect(asked.map(({ path, body }) => [path, body])).toEqual([
      ['/api/v1/work', '{"a":1}'],
      ['/api/v1/retrieve_future', '{"request_id":"f"}'],
      ['/api/v1/retrieve_future', '{"request_id":"f"}'],
    ])
    for (const [category, word] of [
      ['user', 'refused'],
      ['server', 'failed'],
    ] as const) {
      told.push({ error: 'no', category })
      await expect(client.run('work', {}, true)).rejects.toThrow(`${url}/api/v1/work, future f: ${word}, no`)
    }
    await expect(client.run('bad', {}, true)).rejects.toThrow(`${url}/api/v1/bad: got request_id "", expected a text`)
    const stop = new AbortController()
    told.push({ type: 'try_again', queue_state: 'paused' })
    const waiting = client.run('work', {}, true, stop.signal)
    await expect.poll(() => told.length).toBe(0)
    stop.abort(new Error('enough'))
    await expect(waiting).rejects.toThrow('enough')
    await expect(clientOf(url, { deadline: 0.001 }).run('work', {}, true)).rejects.toThrow(/in 0.001 s/)
  })
})

describe('the engine of a server of completions', () => {
  const completing = async (choice: object | null, sampling: object = {}) => {
    const { asked, url } = await server((_, response) =>
      response.end(JSON.stringify(choice === null ? { choices: 'none' } : { choices: [choice] })),
    )
    const engine = openaiEngine({ url, model: 'small', retries: 0 })
    const [row] = await talkUntil(await talkWorld({ engine, numLanes: 1, ...sampling }), 1)
    return { row: row!, body: JSON.parse(asked[0]!.body) }
  }

  test.each([
    [{ text: 'ab', finish_reason: 'stop' }, null],
    [{ text: 'ab', finish_reason: 'length' }, null],
    [{ text: 'ab', finish_reason: 'content_filter' }, 'engine openai: finish_reason "content_filter"'],
    [{ text: 3, finish_reason: 'stop' }, 'engine openai: answer, text: got 3, expected a text'],
    [null, 'engine openai: answer, text: got undefined, expected a text'],
  ])('takes %j', async (choice, error) => {
    expect((await completing(choice)).row.error).toBe(error)
  })

  test('is asked as the cohort draws', async () => {
    const choice = { text: 'a', finish_reason: 'stop' }
    const { body } = await completing(choice, { sampling: { temperature: 0.7, topP: 0.9 } })
    const rest = { model: 'small', prompt: expect.any(String), max_tokens: expect.any(Number) }
    expect(body).toEqual({ ...rest, temperature: 0.7, top_p: 0.9 })
    const greedy = await completing(choice, { sampling: { temperature: 0.7, topP: 0.9 }, explore: false })
    expect(greedy.body).toEqual({ ...rest, temperature: 0, top_p: 1 })
    const stopped = await completing(choice, { stopStrings: ['.'] })
    expect(stopped.body).toEqual({ ...rest, temperature: 1, top_p: 1, stop: ['.'] })
  })
})

describe('the answers to a probe', () => {
  const said = (...all: [number, number][]) => all.map(([token, logprob]) => ({ token, logprob }))

  test('are as far apart as their farthest log-probability, up to where their tokens part', () => {
    expect(probeDistance(said([1, -1], [2, -2]), said([1, -1.5], [2, -2.25]))).toBe(0.5)
    expect(probeDistance(said([1, -1], [2, -2], [3, -3]), said([1, -1], [4, -2.5], [3, -9]))).toBe(0.5)
    expect(probeDistance(said([1, -1], [2, -2]), said([1, -1]))).toBeNaN()
    expect(probeDistance(said(), said([1, -1]))).toBe(0)
  })
})
