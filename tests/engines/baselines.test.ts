/** Engines that no policy is trained by: llama.cpp's server, and any of OpenAI's completions. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, describe, expect, test } from 'vitest'
import { type LlamaCppOptions, llamaCppEngine } from '../../src/engines/servers/llama-cpp.ts'
import { openaiEngine } from '../../src/engines/servers/openai.ts'
import { transformerLogprobs } from '../../src/entries/text.ts'
import { createTrainer, rl } from '../../src/index.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'
import { errorOf, talkServer } from '../support/server-engines.ts'
import { post } from '../support/serving.ts'

const closing: (() => void)[] = []
afterAll(() => {
  for (const close of closing) close()
})

/** A server in llama.cpp's shapes, over one of ours. `change` makes another answer of an answer. */
async function llamaServer(change: (path: string, json: Record<string, unknown>) => object = (_, json) => json) {
  const ours = await talkServer()
  const asked: Record<string, unknown>[] = []
  const answers: Readonly<Record<string, (body: Record<string, unknown>) => Promise<object> | object>> = {
    '/props': () => ({ default_generation_settings: { n_ctx: 64 }, model_alias: 'ours', model_path: '/ours.gguf' }),
    '/lora-adapters': () => [{ id: 0, path: 'a.gguf', scale: 0 }],
    '/tokenize': async ({ content, ...how }) => {
      // Ids of the text as it stands: no token before it, and none read out of its words.
      if (JSON.stringify(how) !== '{"add_special":false,"parse_special":false}') throw new Error(JSON.stringify(how))
      return (await post(`${ours.url}/tokenize`, { prompt: content, add_special_tokens: false })).json
    },
    '/completion': async (body) => {
      asked.push(body)
      const { prompt, n_predict, stop, seed, temperature } = body
      const sampling_params = { max_new_tokens: n_predict, stop, sampling_seed: seed, temperature }
      const { json } = await post(`${ours.url}/generate`, { input_ids: prompt, sampling_params, return_logprob: true })
      const entries = json.meta_info.output_token_logprobs as [number, number][]
      const key = body.post_sampling_probs === true ? 'prob' : 'logprob'
      return {
        ...{ content: json.text, tokens: json.output_ids, stop: true },
        stop_type: json.meta_info.finish_reason.type === 'stop' ? 'eos' : 'limit',
        completion_probabilities: entries.map(([logprob, id]) => ({
          ...{ id, token: '', [key]: key === 'prob' ? Math.exp(logprob) : logprob },
        })),
      }
    },
  }
  const http = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const text = Buffer.concat(chunks).toString()
    const made = await answers[request.url!]!(text === '' ? {} : JSON.parse(text))
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify(change(request.url!, made as Record<string, unknown>)))
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  closing.push(() => {
    http.closeAllConnections()
    http.close()
  })
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
  return { asked, engine: (options: LlamaCppOptions = {}) => llamaCppEngine({ url, retries: 0, ...options }) }
}

describe('the engine of llama.cpp’s server', () => {
  test('has the ids and log-probabilities that the server tells, and names all that draws', async () => {
    for (const [logprobs, sampling] of [
      ['raw', {}],
      ['tempered', { temperature: 0.7 }],
    ] as const) {
      const { engine, asked } = await llamaServer()
      const world = await talkWorld({ engine: engine({ logprobs }), sampling })
      const { model, weights } = world.cohort()
      const rows = await talkUntil(world, 6)
      if (logprobs === 'raw') {
        const expected = await transformerLogprobs({ model, weights: weights.slice() }).logprobs(
          rows.map(({ token }) => token),
        )
        for (const [r, { lossMask, logprob }] of rows.entries()) {
          for (const [t, flag] of lossMask.entries()) {
            if (flag === 1) expect(logprob[t]).toBeCloseTo(expected[r]![t - 1]!, 4)
          }
        }
      }
      for (const { lossMask, logprob, error } of rows) {
        expect([error, lossMask.includes(1)]).toEqual([null, true])
        expect(logprob.filter((_, t) => lossMask[t] === 1).every((value) => value < 0)).toBe(true)
      }
      const { seed, prompt, ...named } = asked[0]!
      expect(Number.isInteger(seed) && (seed as number) >= 0 && (seed as number) < 2 ** 32 - 1).toBe(true)
      expect(prompt).toEqual(
        rows.find(({ token }) => token.join().startsWith(String(prompt)))!.token.slice(0, (prompt as number[]).length),
      )
      expect(named).toMatchObject({
        ...{ return_tokens: true, repeat_penalty: 1, top_k: 0, top_p: 1, min_p: 0, n_probs: 1, ...sampling },
        ...{ samplers: ['temperature', 'top_k', 'top_p', 'min_p'], post_sampling_probs: logprobs === 'tempered' },
      })
    }
  })

  test('holds an answer to a schema or a grammar, whose log-probabilities are of no distribution that is known', async () => {
    const schema = { type: 'object' }
    for (const [constraint, field] of [
      [{ schema }, { json_schema: schema }],
      [{ grammar: 'root ::= "x"' }, { grammar: 'root ::= "x"' }],
    ] as const) {
      const { engine: definition, asked } = await llamaServer()
      const { engine, sampling } = (await talkWorld({ engine: definition(), numLanes: 1 })).cohort()
      expect(engine.constrains).toBe(true)
      const turn = { slot: 0, ids: Int32Array.of(1, 2), generated: 0, unchanged: 0, maxTokens: 3, explore: true }
      engine.submit({ ...turn, sampling, stopStrings: [], key: [0, 0, 0], constraint })
      await engine.arrival
      const { tokens } = engine.poll()
      expect(asked[0]).toMatchObject(field)
      const logprobs = tokens.flatMap(({ logprob, count }) => Array.from(logprob.subarray(0, count)))
      expect([logprobs.length > 0, logprobs.every(Number.isNaN)]).toEqual([true, true])
    }
  })

  test('changes logits by biases and repetition, which have the same meaning there', async () => {
    const { engine: definition, asked } = await llamaServer()
    const { engine, sampling } = (await talkWorld({ engine: definition(), numLanes: 1 })).cohort()
    expect(engine.changes).toEqual(['bias', 'repetition'])
    const turn = { slot: 0, ids: Int32Array.of(1, 2), generated: 0, unchanged: 0, maxTokens: 3, explore: true }
    const changes = { bias: { 3: -1.5 }, repetition: 1.5 }
    engine.submit({ ...turn, sampling, stopStrings: [], key: [0, 0, 0], changes })
    await engine.arrival
    expect(asked[0]).toMatchObject({
      ...{ logit_bias: [[3, -1.5]], repeat_penalty: 1.5, repeat_last_n: -1, presence_penalty: 0 },
      samplers: ['penalties', 'temperature', 'top_k', 'top_p', 'min_p'],
    })
  })

  test('knows no log-probability of a turn of which the server left some out', async () => {
    const { engine } = await llamaServer((path, json) =>
      path === '/completion'
        ? { ...json, completion_probabilities: (json.completion_probabilities as []).slice(1) }
        : json,
    )
    const [row] = await talkUntil(await talkWorld({ engine: engine(), numLanes: 1 }), 1)
    expect(row!.error).toBe(null)
    expect(row!.logprob.filter((_, t) => row!.lossMask[t] === 1).every(Number.isNaN)).toBe(true)
  })

  test.each([
    ['eos', null],
    ['word', null],
    ['limit', /engine llama-cpp: finish reason length after 1 of \d+ tokens/],
    ['none', /engine llama-cpp: finish reason none after 1 of \d+ tokens/],
  ])('takes a turn that the server ends early by %s for what it is', async (stop_type, message) => {
    const { engine } = await llamaServer((path, json) => {
      if (path !== '/completion') return json
      const [first] = json.completion_probabilities as { id: number }[]
      return { ...json, stop_type, tokens: [first!.id], completion_probabilities: [first] }
    })
    const error = await errorOf(engine())
    if (message === null) expect(error).toBe(null)
    else expect(error).toMatch(message)
  })

  test('applies adapters that the server has, and refuses others, another model, and to learn', async () => {
    const { engine, asked } = await llamaServer()
    expect(await errorOf(engine({ adapters: [0], model: 'ours' }))).toBe(null)
    expect(asked[0]).toMatchObject({ lora: [{ id: 0, scale: 1 }] })
    expect(await errorOf(engine({ adapters: [0, 3] }))).toMatch(/adapters: got 3, expected ids of its adapters: 0/)
    expect(await errorOf(engine({ model: 'theirs' }))).toMatch(/model: got "theirs", expected the served model: "ours"/)
    expect(() => engine({ logprobs: 'candidates' })).toThrow('it returns no candidate sets')
    const world = await talkWorld({ engine: engine(), numLanes: 4, groupSize: 4 })
    expect(() => createTrainer(world, rl({ groupSize: 4 }))).toThrow(
      /got engine llama-cpp at .* accepts no weights over HTTP/,
    )
  })
})

describe('the engine of OpenAI’s completions', () => {
  test('says what the server says, by ids of the policy’s tokenizer and without log-probabilities', async () => {
    const { url } = await talkServer()
    const world = await talkWorld({ engine: openaiEngine({ url, model: 'small' }) })
    const rows = await talkUntil(world, 6)
    for (const { error, lossMask, logprob, version } of rows) {
      expect(error).toBe(null)
      const told = logprob.filter((_, t) => lossMask[t] === 1)
      expect(told.every(Number.isNaN)).toBe(true)
      expect(new Set(version.filter((_, t) => lossMask[t] === 1))).toEqual(new Set(told.length > 0 ? [-1] : []))
    }
    expect(rows.some(({ lossMask }) => lossMask.includes(1))).toBe(true)
  })

  test('is told a model, draws without top-k and min-p, and nothing is trained by it', async () => {
    const { url } = await talkServer()
    expect(() => openaiEngine({ url })).toThrow('openai.model: got ""')
    const engine = openaiEngine({ url, model: 'small' })
    expect(await errorOf(openaiEngine({ url, model: 'none', retries: 0 }))).toMatch(
      /status 404, the model "none" is not served/,
    )
    const world = await talkWorld({ engine, sampling: { topK: 3 } })
    expect(() => world.cohort()).toThrow('engine openai: got topK 3, minP 0, expected 0: the server supports neither')
    const learning = await talkWorld({ engine, numLanes: 4, groupSize: 4 })
    expect(() => createTrainer(learning, rl({ groupSize: 4 }))).toThrow(/reports no token ids/)
  })
})
