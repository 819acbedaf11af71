/** What each API refuses: a table of hostile requests for every dialect, each answered by a 4xx with one line, and a right request afterwards. */
import { beforeAll, describe, expect, test } from 'vitest'
import { serveTinker } from '../../../src/entries/engines.ts'
import { atEnd } from '../../support/end.ts'
import { writeQwen3 } from '../../support/qwen3-folder.ts'
import { connected, rawAsk } from '../../support/raw-http.ts'
import { served } from '../../support/serving.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const KIBI = 1024
const MAX_BODY = 256 * KIBI
const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)

type Fields = Readonly<Record<string, unknown>>

/** An API: where it is asked, a right request, the text that carries words in it, and what only it can get wrong. */
interface Dialect {
  readonly path: string
  readonly right: Fields
  readonly fields: readonly Fields[]
}

const user = (content: unknown) => ({ messages: [{ role: 'user', content }] })
const drawing: Fields[] = [
  ...[-1, 'hot', [], Number.MAX_VALUE].map((temperature) => ({ temperature })),
  ...[-0.1, 2, '1', {}].map((top_p) => ({ top_p })),
  ...['yes', 1, {}].map((stream) => ({ stream })),
  ...[5, null, '', 'another', ['small'], {}].map((model) => ({ model })),
]
const messages: Fields[] = [
  ...[null, 'hi', {}, [], [null], [5], ['hi'], [[]], [{}]].map((messages) => ({ messages })),
  ...[5, {}, [5], [null], [{ type: 'text' }], [{ type: 'text', text: 5 }], [{ type: 'hologram' }], '\ud800'].map(user),
  { messages: [{ content: 'hi' }] },
  { messages: [{ role: 5, content: 'hi' }] },
  { messages: [{ role: '', content: 'hi' }] },
]
/** Calls of tools that say not which. */
const calls: Fields[] = [5, {}, [5], [{}], [{ function: {} }], [{ type: 'function', function: { name: 5 } }]].flatMap(
  (tool_calls) =>
    [null, 'hm'].map((content) => ({
      messages: [
        { role: 'user', content: 'hi' },
        { role: 'assistant', content, tool_calls },
      ],
    })),
)
const counts = (name: string): Fields[] =>
  [0, -1, 1.5, 'ten', [], {}, true, 2 ** 53, 1e308].map((value) => ({ [name]: value }))

const dialects: Readonly<Record<string, Dialect>> = {
  chat: {
    path: '/v1/chat/completions',
    right: { model: 'small', max_tokens: 2, ...user('hi') },
    fields: [
      ...[...drawing, ...messages, ...counts('max_tokens'), ...counts('max_completion_tokens')],
      ...[0, -1, 1e9, 'two'].map((n) => ({ n })),
      ...[5, [5], Array(99).fill('x'), {}].map((stop) => ({ stop })),
      ...['x', 1.5, {}].map((seed) => ({ seed })),
      ...[99, -1, 'x'].map((top_logprobs) => ({ logprobs: true, top_logprobs })),
      ...[{ x: 1 }, { 999999: 1 }, { 1: 'x' }, 5, [5]].map((logit_bias) => ({ logit_bias })),
      ...[5, 'x', {}, { type: 'x' }, { type: 'json_schema' }].map((response_format) => ({ response_format })),
      { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { type: 5 } } } },
      { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { $ref: '#/nowhere' } } } },
      ...[5, 'x', [5], [{}], [{ type: 'function' }], [{ type: 'function', function: { name: 5 } }]].map((tools) => ({
        tools,
      })),
      { tool_choice: 'required' },
      { guided_regex: '(' },
      { guided_regex: 5 },
      { guided_json: `${'{"not":'.repeat(20_000)}{}${'}'.repeat(20_000)}` },
      { guided_grammar: 'root ::= other' },
      ...calls,
    ],
  },
  responses: {
    path: '/v1/responses',
    right: { model: 'small', max_output_tokens: 2, input: 'hi' },
    fields: [
      ...[...drawing, ...counts('max_output_tokens')],
      ...[null, 5, {}, [], [null], [5], [{}], [{ role: 'user' }], [{ role: 'user', content: 5 }], '\ud800'].map(
        (input) => ({ input }),
      ),
      { input: [{ type: 'hologram' }] },
      { input: [{ type: 'function_call_output' }] },
      ...[undefined, null, 5].map((name) => ({
        input: [{ type: 'function_call', call_id: 'a', name, arguments: '{}' }],
      })),
      ...[5, 'x', {}].map((previous_response_id) => ({ previous_response_id })),
      ...[5, [], {}].map((instructions) => ({ instructions })),
      ...[5, { format: 5 }, { format: { type: 'x' } }, { format: { type: 'json_schema' } }].map((text) => ({ text })),
      ...[5, 'x', [5], [{}], [{ type: 'function' }], [{ type: 'web_search' }]].map((tools) => ({ tools })),
    ],
  },
  anthropic: {
    path: '/v1/messages',
    right: { model: 'small', max_tokens: 2, ...user('hi') },
    fields: [
      ...[...drawing, ...messages, ...counts('max_tokens')],
      ...[5, {}, [5], [{}], [{ type: 'text' }]].map((system) => ({ system })),
      ...[5, [5], {}].map((stop_sequences) => ({ stop_sequences })),
      ...[5, 'x', [5], [{}], [{ name: 5 }], [{ name: 'x', input_schema: 5 }]].map((tools) => ({ tools })),
      ...[5, { type: 'x' }, { type: 'any' }].map((tool_choice) => ({ tool_choice })),
      ...[1.5, 'x', {}].map((top_k) => ({ top_k })),
      { messages: [{ role: 'user', content: [{ type: 'tool_result' }] }] },
      { messages: [{ role: 'assistant', content: [{ type: 'tool_use' }] }] },
      { messages: [{ role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 5, input: {} }] }] },
    ],
  },
  completions: {
    path: '/v1/completions',
    right: { model: 'small', max_tokens: 2, prompt: 'hi' },
    fields: [
      ...[...drawing, ...counts('max_tokens')],
      ...[5, {}, [], [null], [{}], [-1], [1.5], [1e9], [[]], [[-1]], ['a', 5], '\ud800'].map((prompt) => ({
        prompt,
      })),
      ...[0, 1e9, 'x'].map((n) => ({ n })),
      ...['x', -1, 99].map((logprobs) => ({ logprobs })),
    ],
  },
}

const datum = (given: object = {}) => ({
  model_input: { chunks: [{ type: 'encoded_text', tokens: [1, 2] }] },
  loss_fn_inputs: { target_tokens: { data: [2, 3], dtype: 'int64', shape: [2] } },
  ...given,
})
const pass = <Given extends object>(given: Given) => ({ model_id: 'model-1', seq_id: 1, ...given })
const inputs = (data: unknown, loss_fn: unknown = 'cross_entropy') =>
  pass({ forward_backward_input: { data, loss_fn, loss_fn_config: {} } })
const ids = [undefined, null, 5, '', 'none', '../x', '__proto__', {}, [], 'x'.repeat(10_000)]
const tinker: readonly (readonly [path: string, body: Fields])[] = [
  ...ids.map((session_id) => ['session_heartbeat', { session_id }] as const),
  ...ids.map((request_id) => ['retrieve_future', { request_id }] as const),
  ...ids.map((model_id) => ['optim_step', { model_id, seq_id: 1, adam_params: { learning_rate: 1 } }] as const),
  ...ids.map((model_id) => ['save_weights', { model_id, seq_id: 1, path: 'x' }] as const),
  ...ids.map((session_id) => ['create_model', { session_id, base_model: 'small', lora_config: { rank: 4 } }] as const),
  ...ids.map((session_id) => ['create_sampling_session', { session_id, base_model: 'small' }] as const),
  ...[null, 5, 'x', [], {}].map(
    (forward_backward_input) => ['forward_backward', pass({ forward_backward_input })] as const,
  ),
  ...[null, 5, [], [null], [datum({ model_input: 5 })], [datum({ loss_fn_inputs: 5 })]].map(
    (data) => ['forward_backward', inputs(data)] as const,
  ),
  ...[null, 5, 'none', '__proto__', {}].map((loss) => ['forward_backward', inputs([datum()], loss)] as const),
  ...[-1, 1.5, 'x', 2 ** 60, {}].map((seq_id) => ['forward_backward', { ...inputs([datum()]), seq_id }] as const),
  ['asample', { sampling_session_id: 'none', prompt: { chunks: [] } }],
  ['asample', { prompt: 5 }],
  ['nowhere', {}],
]

/** Bodies that no API takes, as bytes, and what is said of them. */
const bodies = (right: Fields): readonly (readonly [name: string, body: string | Buffer, headers?: object])[] => {
  const text = JSON.stringify(right)
  const utf8 = { 'content-type': 'application/json' }
  return [
    ['half of JSON', text.slice(0, -5)],
    ['JSON and more', `${text}}`],
    ['two values', text + text],
    ['a comma too many', text.replace(/}$/, ',}')],
    ['single quotes', text.replaceAll('"', "'")],
    ['no quotes', '{model: small}'],
    ['a comment', `/* x */${text}`],
    ['a line break in a text', text.replace('small', 'sm\nall')],
    ['a null byte', `${text}\0`],
    ['NaN', text.replace(/}$/, ',"temperature":NaN}')],
    ['a number beyond all', text.replace(/}$/, ',"temperature":1e999}')],
    ['a wrong escape', text.replace('small', '\\x41')],
    ['a list', `[${text}]`],
    ['null', 'null'],
    ['a number', '1e308'],
    ['a text', '"hi"'],
    ['nothing', ''],
    ['blanks', ' \n\t '],
    ['brackets without end', '['.repeat(100_000)],
    ['deep lists', text.replace(/}$/, `,"metadata":${nested(10_000)}}`)],
    ['deep objects', `${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}`],
    ['a key twice, the last wrong', text.replace(/}$/, ',"model":5}')],
    ['broken UTF-8', Buffer.from(text.replace('small', 'sm\xffall'), 'latin1')],
    ['half a character', Buffer.concat([Buffer.from(text.slice(0, -2)), Buffer.from([0xe2, 0x82])])],
    ['an overlong character', Buffer.from(text.replace('small', '\xc0\xaf'), 'latin1')],
    ['UTF-16', Buffer.from(text, 'utf16le')],
    ['too many bytes', ' '.repeat(40 * 2 ** 20)],
    ['plain text', text, { 'content-type': 'text/plain' }],
    ['a form', text, { 'content-type': 'application/x-www-form-urlencoded' }],
    ['a form of parts', text, { 'content-type': 'multipart/form-data; boundary=x' }],
    ['gzip that is none', text, { ...utf8, 'content-encoding': 'gzip' }],
    ['an unknown encoding', text, { ...utf8, 'content-encoding': 'none-such' }],
  ]
}

let models = ''
let training = ''
beforeAll(async () => {
  models = (await served({ maxBodyBytes: MAX_BODY })).url
  const model = await temporaryFolder()
  await writeQwen3(model)
  const server = await serveTinker({ model, name: 'small', folder: await temporaryFolder() })
  atEnd(() => server.close())
  training = `${server.url}/api/v1`
})

async function post(url: string, body: string | Buffer, headers: object = {}) {
  const given = { 'content-type': 'application/json', connection: 'close', ...headers }
  const answer = await fetch(url, { method: 'POST', body: Buffer.from(body), headers: given })
  return { status: answer.status, text: await answer.text() }
}

/** The refusal in one line, also one that a future has. */
function lineOf(text: string): string {
  const { error, detail } = JSON.parse(text)
  return error?.message ?? error ?? detail
}

/** What of an answer is wrong; null if it is a refusal of one clear line. */
function wrong({ status, text }: { status: number; text: string }): string | null {
  if (status < 400 || status >= 500) return `${status}: ${text.slice(0, 300)}`
  try {
    const line = lineOf(text)
    return /^[^\n]{5,600}$/.test(line) ? null : `${status}, in other than one line: ${JSON.stringify(line)}`
  } catch {
    return `${status}, unreadable: ${text.slice(0, 100)}`
  }
}

describe.each(Object.entries(dialects))('the API %s', (_, { path, right, fields }) => {
  const isRight = async () => expect((await post(models + path, JSON.stringify(right))).status).toBe(200)

  test('refuses fields that it cannot take, each in one line', async () => {
    const found: string[] = []
    for (const field of fields) {
      const why = wrong(await post(models + path, JSON.stringify({ ...right, ...field })))
      if (why !== null) found.push(`${JSON.stringify(field).slice(0, 100)} → ${why}`)
    }
    expect(found).toEqual([])
    expect(fields.length).toBeGreaterThanOrEqual(30)
    await isRight()
  })

  test('refuses bodies that it cannot read, each in one line', async () => {
    const found: string[] = []
    for (const [name, body, headers] of bodies(right)) {
      const why = wrong(
        await post(models + path, body, headers).catch((error) => ({ status: 0, text: String(error.cause) })),
      )
      if (why !== null) found.push(`${name} → ${why}`)
    }
    expect(found).toEqual([])
    await isRight()
  })

  test('outlives clients that end in the middle of a request', async () => {
    const body = JSON.stringify(right)
    const head = `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n`
    for (const length of [0, 1, body.length - 1]) {
      const socket = await connected(models)
      socket.end(`${head}Content-Length: ${body.length}\r\n\r\n${body.slice(0, length)}`)
      socket.resume()
    }
    for (const lengths of ['Content-Length: -1', 'Content-Length: 5\r\nContent-Length: 6', 'Transfer-Encoding: x']) {
      const { statuses } = await rawAsk(models, [`${head}${lengths}\r\nConnection: close\r\n\r\n${body}`], 2000)
      expect([lengths, statuses.filter((status) => status < 400 || status >= 500)]).toEqual([lengths, []])
    }
    await isRight()
  })
})

test('arguments of a call, which are a text in the body, are taken however deep their brackets', async () => {
  const called = { name: 'look', arguments: nested(50_000) }
  const calls = [{ id: 'a', type: 'function', function: called }]
  const [hi, hm] = ['hi', 'hm'].map((content) => ({ role: 'user', content }))
  const asked = [
    [dialects.chat, { messages: [hi, { role: 'assistant', content: null, tool_calls: calls }, hm] }],
    [dialects.responses, { input: [hi, { type: 'function_call', call_id: 'a', ...called }, hm] }],
  ] as const
  for (const [dialect, fields] of asked) {
    const { path, right } = dialect!
    const { status, text } = await post(models + path, JSON.stringify({ ...right, ...fields }))
    expect([path, status, status === 200 || text]).toEqual([path, 200, true])
  }
})

test('a training service refuses ids, fields and bodies that it cannot take, each in one line, and goes on', async () => {
  const found: string[] = []
  const ask = (path: string, body: object) => post(`${training}/${path}`, JSON.stringify(body))
  const right = async (path: string, body: object) => JSON.parse((await ask(path, body)).text)
  const { session_id } = await right('create_session', { tags: [], sdk_version: '0.38.0' })
  const made = { session_id, model_seq_id: 0, base_model: 'small', lora_config: { rank: 4 } }
  const { model_id } = await right('retrieve_future', await right('create_model', made))
  /** The answer, or what the user of the future that it names is told. */
  const settled = async (answered: { status: number; text: string }) => {
    if (answered.status !== 200) return answered
    const { request_id } = JSON.parse(answered.text)
    if (request_id === undefined) return answered
    const told = await ask('retrieve_future', { request_id })
    return { ...told, status: JSON.parse(told.text).category === 'user' ? 400 : told.status }
  }
  const look = async (name: string, answered: { status: number; text: string }) => {
    const why = wrong(await settled(answered))
    if (why !== null) found.push(`${name} → ${why}`)
  }
  let next = 1
  for (const [path, body] of tinker) {
    const isOfModel = body.model_id === 'model-1'
    const asked = isOfModel ? { ...body, model_id, seq_id: body.seq_id === 1 ? next : body.seq_id } : body
    const answered = await ask(path, asked)
    if (isOfModel && answered.status === 200) next++
    await look(`${path} ${JSON.stringify(asked).slice(0, 120)}`, answered)
  }
  for (const [name, body, headers] of bodies({ session_id: 'small', seq_id: 0 })) {
    await look(name, await post(`${training}/session_heartbeat`, body, headers))
  }
  for (const bytes of [Buffer.from([]), Buffer.from([255]), Buffer.alloc(1000, 255), Buffer.from('{}')]) {
    const headers = { 'content-type': 'application/x-protobuf' }
    await look(`${bytes.length} bytes as protobuf`, await post(`${training}/forward_backward`, bytes, headers))
  }
  expect(found).toEqual([])
  const { forward_backward_input } = inputs([datum()])
  const told = await right(
    'retrieve_future',
    await right('forward_backward', { model_id, seq_id: next, forward_backward_input }),
  )
  expect(told.loss_fn_outputs).toHaveLength(1)
})
