/** Answers of a form from the engine that computes in this process: what it says is of the form, and what is recorded is what evaluating gives. */
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { defineTextEnvironment } from '../../../src/environments/text.ts'
import { createWorld } from '../../../src/index.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import type { Sampling } from '../../../src/language/transformer/sampling.ts'
import { Trajectories } from '../../../src/tables/trajectories/trajectories.ts'
import { readTrajectories, writeTrajectories } from '../../../src/tables/trajectories/trajectory-table.ts'
import { packTrajectories, unpackTrajectories } from '../../../src/training/text/collect/trajectory-snapshot.ts'
import { compared } from '../../support/evaluated.ts'
import { made, opened, TOOL_TEMPLATE } from '../../support/gateway.ts'
import { outside, randomSchema } from '../../support/json-schema.ts'
import { writeQwen3 } from '../../support/qwen3-folder.ts'
import { post, served, stream } from '../../support/serving.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { seeded, thorough } from '../../support/tiers.ts'

const CHAT = '/v1/chat/completions'
const CONTEXT = 160
const messages = [{ role: 'user', content: 'hi' }]
const policy = () => languageModel({ width: 16, layers: 1, heads: 2, context: CONTEXT, anyText: true })

describe('serve', () => {
  test('answers with an object where one is asked for, at a temperature at which a random model says anything', async () => {
    const { url } = await served({ policy: policy() })
    const body = { model: 'small', messages, temperature: 1.5, response_format: { type: 'json_object' } }
    const answers = await Promise.all(Array.from({ length: 24 }, (_, seed) => post(url + CHAT, { ...body, seed })))
    let finished = 0
    for (const { status, json } of answers) {
      expect(status, JSON.stringify(json)).toBe(200)
      const [{ finish_reason, message }] = json.choices
      expect(message.content).toMatch(/^\{/)
      if (finish_reason === 'length') continue
      expect(finish_reason).toBe('stop')
      expect(JSON.parse(message.content)).toBeInstanceOf(Object)
      finished++
    }
    expect(finished).toBeGreaterThan(8)
  })

  test.each<[object, RegExp]>([
    [{ guided_regex: '[a-c]{3}-\\d{2}' }, /^[a-c]{3}-\d{2}$/],
    [{ guided_choice: ['yes', 'no', 'ünknown'] }, /^(yes|no|ünknown)$/],
    [{ grammar: 'root ::= word (" " word){1,3}\nword ::= [é-ü]{2}' }, /^[é-ü]{2}( [é-ü]{2}){1,3}$/],
    [{ response_format: { type: 'json_schema', json_schema: { schema: { enum: ['red', 7] } } } }, /^("red"|7)$/],
  ])(
    'answers within a constraint alone, by chance and by the most probable tokens, whole and streamed: %j',
    async (fields, pattern) => {
      const { url } = await served({ policy: policy() })
      for (const body of [{ seed: 1, temperature: 1.5 }, { seed: 2, top_k: 3 }, { temperature: 0 }]) {
        const asked = { model: 'small', messages, ...fields, ...body }
        const { json } = await post(url + CHAT, asked)
        expect([json.choices?.[0].finish_reason, json.choices?.[0].message.content]).toEqual([
          'stop',
          expect.stringMatching(pattern),
        ])
        const events = await stream(url + CHAT, asked)
        expect(events.map(({ choices }) => choices[0]?.delta.content ?? '').join('')).toBe(
          json.choices[0].message.content,
        )
      }
    },
  )

  thorough('answers validly by 500 schemas, 20 times each, at temperature 1.5', { timeout: 600_000 }, async () => {
    const { url } = await served({ policy: policy(), slots: 20 })
    let finished = 0
    for (let seed = 0; seed < 500; seed++) {
      const schema = randomSchema(seeded(seed))
      const asked = { model: 'small', messages, temperature: 1.5, seed, n: 20, json_schema: schema }
      const { status, json } = await post(url + CHAT, asked)
      expect([schema, status]).toEqual([schema, 200])
      for (const { finish_reason, message } of json.choices) {
        if (finish_reason === 'length') continue
        finished++
        const why = outside(schema, JSON.parse(message.content))
        expect([schema, message.content, why]).toEqual([schema, message.content, null])
      }
    }
    expect(finished).toBeGreaterThan(5000)
  })

  test('calls tools and writes JSON in each dialect, by a chat template of Qwen', { timeout: 60_000 }, async () => {
    const folder = join(await temporaryFolder(), 'tiny')
    await writeQwen3(folder, { context: 800, template: TOOL_TEMPLATE })
    const { url } = await served({ policy: languageModel({ folder }), slots: 8 })
    const a = { enum: ['x', 'y', 7] }
    const parameters = { type: 'object', properties: { a, b: { type: 'boolean' } }, required: ['a'] }
    const tools = ['add', 'sub'].map((name) => ({ type: 'function', function: { name, parameters } }))
    const named = { type: 'function', function: { name: 'sub' } }
    for (const [more, names, most] of [
      [{ tool_choice: 'required' }, ['add', 'sub'], 99],
      [{ tool_choice: 'required', parallel_tool_calls: false }, ['add', 'sub'], 1],
      [{ tool_choice: named }, ['sub'], 1],
    ] as const) {
      const { json } = await post(url + CHAT, {
        model: 'small',
        messages,
        tools,
        n: 8,
        seed: 1,
        max_tokens: 200,
        ...more,
      })
      const over = json.choices.filter((choice: { finish_reason: string }) => choice.finish_reason !== 'length')
      expect(over.length).toBeGreaterThan(0)
      for (const { finish_reason, message } of over) {
        expect(finish_reason).toBe('tool_calls')
        expect(message.content ?? '<tool_call>').toMatch(/^<tool_call>/) // One behind the first may be cut off.
        expect(message.tool_calls.length).toBeLessThanOrEqual(most)
        for (const { function: called } of message.tool_calls) {
          expect(names).toContain(called.name)
          const given = JSON.parse(called.arguments)
          expect(a.enum).toContain(given.a)
          expect([undefined, true, false]).toContain(given.b)
        }
      }
    }
    const format = {
      type: 'json_schema',
      name: 'n',
      schema: { type: 'object', properties: { a: { type: 'boolean' } }, required: ['a'] },
    }
    const response = await post(`${url}/v1/responses`, { model: 'small', input: 'hi', text: { format } })
    expect(typeof JSON.parse(response.json.output[0].content[0].text).a).toBe('boolean')
    const own = {
      model: 'small',
      max_tokens: 99,
      messages,
      output_config: { format: { type: 'json_schema', schema: format.schema } },
    }
    const message = await post(`${url}/v1/messages`, own)
    expect(typeof JSON.parse(message.json.content[0].text).a).toBe('boolean')
  })

  test('cuts an answer off where its tokens end', async () => {
    const { url } = await served({ policy: policy() })
    const { json } = await post(url + CHAT, { model: 'small', messages, guided_regex: 'a{40}', max_tokens: 7 })
    expect([json.choices[0].finish_reason, json.choices[0].message.content]).toEqual(['length', 'aaaaaaa'])
  })

  test('goes on with other answers where one has too many readings, and refuses what no answer meets', async () => {
    const { url } = await served({ policy: policy(), slots: 4 })
    const grammar = 'root ::= "(" root ")" | "(" root "]"'
    const other = post(url + CHAT, { model: 'small', messages, guided_regex: 'a{60}' })
    const { status, json } = await post(url + CHAT, { model: 'small', messages, grammar, max_tokens: 60 })
    expect([status, json.error.message]).toEqual([502, expect.stringContaining('readings of one text')])
    expect((await other).json.choices[0].message.content).toBe('a'.repeat(60))
    for (const refused of [{ regex: '[]' }, { grammar: 'root ::= ""{1000000000}' }, { regex: '(a?){20000}' }]) {
      const answer = await post(url + CHAT, { model: 'small', messages, ...refused })
      expect([answer.status, answer.json.error.param]).toEqual([400, Object.keys(refused)[0]])
    }
    expect((await post(url + CHAT, { model: 'small', messages, guided_choice: ['yes'] })).status).toBe(200)
  })

  test('ends an answer at a stop string within it', async () => {
    const { url } = await served({ policy: policy() })
    const asked = { model: 'small', messages, guided_regex: 'a{9}b', stop: ['aab'], max_tokens: 20 }
    const { json } = await post(url + CHAT, asked)
    expect([json.choices?.[0].finish_reason, json.choices?.[0].message.content]).toEqual(['stop', 'aaaaaaa'])
    const events = await stream(url + CHAT, asked)
    expect(events.map(({ choices }) => choices[0]?.delta.content ?? '').join('')).toBe('aaaaaaa')
    const { messages: _, ...plain } = asked
    expect((await post(`${url}/v1/completions`, { ...plain, prompt: 'x' })).json.choices?.[0].text).toBe('aaaaaaa')
  })

  test('refuses what is no form, by the name of the field', async () => {
    const { url } = await served({ policy: policy() })
    const ask = async (schema: unknown) => {
      const response_format = { type: 'json_schema', json_schema: { name: 'x', schema } }
      const { status, json } = await post(url + CHAT, { model: 'small', messages, response_format })
      return [status, json.error.param, json.error.message] as const
    }
    const [status, param, message] = await ask({ type: 'objec' })
    expect([status, param]).toEqual([400, 'response_format'])
    expect(message).toContain('schema.type: got "objec", expected one or several of null, boolean')
    expect((await ask({ type: 'array', uniqueItems: true }))[2]).toContain('schema.uniqueItems: got true')
  })
})

const environment = defineTextEnvironment({
  id: 'structured',
  settings: {},
  make: () => ({ numExamples: 1, example: () => ({ prompt: 'x' }), respond: () => ({ reward: 0 }) }),
})

const NONE = { temperature: 1, topK: 0, topP: 1, minP: 0 }

/** Rows of sessions that ask for an object, then for anything, in a world that draws like this. */
async function recorded(sampling: Partial<Sampling>) {
  const world = await createWorld({ environment: environment(), policy: policy(), numLanes: 4, sampling, seed: 1 })
  const gateway = await opened({ world })
  for (let i = 0; i < 4; i++) {
    const { ask, end } = await made(gateway, { group: i })
    const first = await ask(CHAT, { model: 'x', messages, max_tokens: 30, response_format: { type: 'json_object' } })
    const said = [...messages, first.json.choices[0].message, { role: 'user', content: 'y' }]
    expect((await ask(CHAT, { model: 'x', messages: said, max_tokens: 10 })).status).toBe(200)
    await end({ reward: 1 })
  }
  const { trajectories } = gateway
  return { world, rows: Array.from({ length: trajectories.count }, (_, i) => trajectories.row(i)) }
}

describe('what is recorded of an answer of a form', () => {
  test.each<Partial<Sampling>>([
    {},
    { temperature: 1.5 },
    { topK: 5 },
    { topK: 40, topP: 0.9, temperature: 0.7 },
    { minP: 0.2 },
  ])('is, to the bit, what evaluating gives within the form: %o', async (sampling) => {
    const run = await recorded(sampling)
    const { pairs, masks } = compared(run, { ...NONE, ...sampling })
    expect(pairs.length).toBeGreaterThan(60)
    for (const [recorded, evaluated] of pairs) expect(evaluated).toBe(recorded)
    expect(masks!.words.length).toBeGreaterThan(0)
    for (const { forms } of run.rows) expect(forms).toEqual([{ turn: 0, constraint: { schema: { type: 'object' } } }])
    // Without the form it is another distribution.
    const { pairs: free } = compared(
      { ...run, rows: run.rows.map(({ forms: _, ...row }) => row) },
      { ...NONE, ...sampling },
    )
    const isFiltered = Object.keys(sampling).some((name) => name !== 'temperature')
    expect(free.every(([recorded, evaluated]) => recorded === evaluated)).toBe(isFiltered)
  })

  test('is the same from an Arrow file, and from a checkpoint', async () => {
    const run = await recorded({ temperature: 1.2 })
    const trajectories = new Trajectories()
    for (const row of run.rows) trajectories.append(row)
    const path = join(await temporaryFolder(), 'rows.arrow')
    const origin = { environment: 'e', model: 'm', tokenizer: 't', algorithm: 'a', seed: 0, promptOf: () => '"x"' }
    await writeTrajectories(path, trajectories, origin)
    const { trajectories: read } = await readTrajectories(path)
    const { rows, tensors } = packTrajectories(trajectories, 'log')
    const unpacked = new Trajectories()
    const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]))
    unpackTrajectories(unpacked, 'log', JSON.parse(JSON.stringify(rows)), byName)
    for (const other of [read, unpacked]) {
      const again = { ...run, rows: run.rows.map((_, i) => other.row(i)) }
      expect(again.rows.map(({ forms }) => forms)).toEqual(run.rows.map(({ forms }) => forms))
      const { pairs } = compared(again, { ...NONE, temperature: 1.2 })
      for (const [recorded, evaluated] of pairs) expect(evaluated).toBe(recorded)
    }
  })

  test('that has tokens which its form leaves out is an error', async () => {
    const run = await recorded({})
    const [first] = run.rows
    const at = Array.from(first!.lossMask).indexOf(1)
    const token = Array.from(first!.token, (id, t) => (t === at ? 97 : id))
    expect(() => compared({ ...run, rows: [{ ...first!, token }] }, NONE)).toThrow(
      `token ${at}: got id 97, expected a token that the constraint of turn 0 allows`,
    )
  })
})
