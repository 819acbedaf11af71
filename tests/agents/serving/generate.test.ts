/** vLLM's and SGLang's token routes, and what whoever trains asks of a server. */
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { Random } from '../../../src/base/random.ts'
import { saveLora, saveTransformer, transformerLogprobs } from '../../../src/entries/text.ts'
import { languageModel } from '../../../src/language/language-model.ts'
import { deliverFolder } from '../../../src/language/transformer/delivery.ts'
import { get, post, served, smallModel } from '../../support/serving.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const { url } = await served({ slots: 3 })
const PROMPT = [256, 104, 105, 33]
const asked = (sampling: object = {}) => ({
  token_ids: PROMPT,
  sampling_params: { max_tokens: 8, seed: 5, logprobs: 0, ...sampling },
})
const generate = async (sampling: object = {}, to = url) =>
  (await post(`${to}/inference/v1/generate`, asked(sampling))).json.choices[0]

/** Reads server-sent events. */
async function events(path: string, body: object) {
  const headers = { 'content-type': 'application/json' }
  const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify({ ...body, stream: true }) })
  const lines = (await response.text()).split('\n\n').filter((line) => line !== '')
  expect(lines.pop()).toBe('data: [DONE]')
  return lines.map((line) => JSON.parse(line.slice(6)))
}

describe('ids in, ids out', () => {
  test('vLLM’s route has what the completion of the same ids and seed has', async () => {
    const { json } = await post(`${url}/inference/v1/generate`, { ...asked({ top_k: 3 }), request_id: 'one' })
    expect(json).toMatchObject({ request_id: 'generate-tokens-one', output_mode: 'tokens', prompt_token_ids: PROMPT })
    const [choice] = json.choices
    const body = {
      model: 'small',
      prompt: PROMPT,
      max_tokens: 8,
      seed: 5,
      top_k: 3,
      logprobs: 0,
      return_token_ids: true,
    }
    const [same] = (await post(`${url}/v1/completions`, body)).json.choices
    expect(choice.token_ids).toEqual(same.token_ids)
    expect(choice.logprobs.content.map(({ logprob }: { logprob: number }) => logprob)).toEqual(
      same.logprobs.token_logprobs,
    )
    expect(choice.logprobs.content.map(({ token_id }: { token_id: number }) => token_id)).toEqual(same.token_ids)
    expect(choice.finish_reason).toBe(same.finish_reason)
    for (const [t, set] of choice.sampling_mask.entries()) {
      expect(set.length).toBeLessThanOrEqual(3)
      expect(set).toContain(choice.token_ids[t])
    }
    expect(choice.weight_versions).toEqual([{ version: 'default', start: 0, end: choice.token_ids.length }])
    expect((await generate()).sampling_mask).toBe(null)
  })

  test('SGLang’s route has the same, in its own words', async () => {
    const choice = await generate({ n: 2 })
    const body = {
      input_ids: PROMPT,
      sampling_params: { max_new_tokens: 8, sampling_seed: 5 },
      return_logprob: true,
      rid: 'a',
    }
    const { json } = await post(`${url}/generate`, body)
    expect(json.output_ids).toEqual(choice.token_ids)
    const { id, output_token_logprobs, weight_versions, prompt_tokens, completion_tokens, finish_reason } =
      json.meta_info
    expect(output_token_logprobs).toEqual(
      choice.logprobs.content.map((each: { logprob: number; token_id: number }) => [each.logprob, each.token_id, null]),
    )
    const count = choice.token_ids.length
    expect([id, prompt_tokens, completion_tokens, weight_versions]).toEqual(['a', 4, count, [['default', 0, count]]])
    expect(finish_reason.type).toBe(choice.finish_reason)
    const both = await post(`${url}/generate`, { ...body, input_ids: [PROMPT, [1, 2]] })
    expect(both.json.map((each: { output_ids: number[] }) => each.output_ids)[0]).toEqual(choice.token_ids)
    expect(both.json.length).toBe(2)
    const last = (await events('/generate', body)).at(-1)
    expect([last.output_ids, last.text, last.meta_info.finish_reason]).toEqual([
      json.output_ids,
      json.text,
      finish_reason,
    ])
  })

  test('SGLang’s route tells candidate sets, and log-probabilities among them, where it is asked for them', async () => {
    const choice = await generate({ top_k: 3 })
    const asks = { return_sampling_mask: true, sampling_logprobs_mode: 'selected' }
    const sampling_params = { max_new_tokens: 8, sampling_seed: 5, top_k: 3 }
    const { json } = await post(`${url}/generate`, { input_ids: PROMPT, sampling_params, ...asks })
    expect(json.output_ids).toEqual(choice.token_ids)
    expect(json.meta_info.output_token_sampling_mask).toEqual(choice.sampling_mask)
    expect(json.meta_info.output_token_sampling_logprobs).toEqual(
      choice.logprobs.content.map(({ logprob }: { logprob: number }) => logprob),
    )
    for (const wrong of [{ sampling_logprobs_mode: 'selected' }, { ...asks, sampling_logprobs_mode: 'support' }]) {
      const refused = await post(`${url}/generate`, { input_ids: PROMPT, ...wrong })
      expect([refused.status, refused.json.error.param]).toEqual([400, 'sampling_logprobs_mode'])
    }
  })

  test('a stream has each token once, and the versions with the last', async () => {
    const whole = await generate()
    const parts = (await events('/inference/v1/generate', asked())).map(({ choices }) => choices[0])
    expect(parts.length).toBeGreaterThan(1)
    expect(parts.flatMap(({ token_ids }) => token_ids)).toEqual(whole.token_ids)
    expect(parts.map(({ weight_versions }) => weight_versions)).toEqual([
      ...parts.slice(1).map(() => undefined),
      whole.weight_versions,
    ])
  })

  test('a text’s ids are told, and ids’ text', async () => {
    const { json } = await post(`${url}/tokenize`, { prompt: 'hi!', add_special_tokens: false })
    expect(json).toEqual({ tokens: [104, 105, 33], count: 3, max_model_len: 64 })
    expect((await post(`${url}/detokenize`, { tokens: [104, 105] })).json).toEqual({ prompt: 'hi' })
  })

  test.each<[object, string]>([
    [{ token_ids: [] }, 'token_ids'],
    [{ output_mode: 'text' }, 'output_mode'],
    [{ sampling_params: { stop_token_ids: [3] } }, 'sampling_params.stop_token_ids'],
    [{ sampling_params: { max_token: 3 } }, 'sampling_params.max_token'],
    [{ model: 'other' }, 'model'],
  ])('vLLM’s route refuses %o', async (fields, param) => {
    const { status, json } = await post(`${url}/inference/v1/generate`, { ...asked(), ...fields })
    expect([status, json.error.param]).toEqual([param === 'model' ? 404 : 400, param])
  })

  test('nobody controls a server that was not told so', async () => {
    for (const path of ['/pause', '/update_weights_from_disk', '/v1/load_lora_adapter', '/abort_requests']) {
      expect((await post(url + path, {})).status).toBe(404)
    }
  })
})

const FOREVER = { token_ids: PROMPT, request_id: 'long', sampling_params: { max_tokens: 60, seed: 1 } }

describe('control', () => {
  /** A frozen server with a turn under way, so that nothing depends on who is faster. */
  async function frozen() {
    const { url } = await served({ slots: 1, control: true })
    await post(`${url}/pause?mode=keep`, {})
    const asking = post(`${url}/inference/v1/generate`, FOREVER)
    for (let isThere = false; !isThere; ) isThere = (await get(`${url}/health`)).json.waiting === 1
    return { url, asking }
  }

  test('keep holds turns, new ones too, until resume', async () => {
    const { url, asking } = await frozen()
    expect((await get(`${url}/is_paused`)).json).toEqual({ is_paused: true })
    expect((await get(`${url}/health`)).json).toMatchObject({ running: 0, waiting: 1 })
    await post(`${url}/resume`, {})
    expect((await asking).json.choices[0].token_ids.length).toBeGreaterThan(0)
    expect((await get(`${url}/is_paused`)).json).toEqual({ is_paused: false })
  })

  test('abort ends turns and refuses new ones with 503; wait lets them end', async () => {
    const { url, asking } = await frozen()
    expect((await post(`${url}/pause`, { mode: 'abort' })).json).toEqual({ status: 'paused' })
    expect((await asking).json.choices[0]).toMatchObject({ finish_reason: 'abort', token_ids: [] })
    const refused = await post(`${url}/inference/v1/generate`, FOREVER)
    expect([refused.status, refused.json.error.code]).toEqual([503, 'paused'])
    const other = await frozen()
    await post(`${other.url}/pause?mode=wait`, {})
    expect((await other.asking).json.choices[0].finish_reason).not.toBe('abort')
    expect((await post(`${other.url}/pause`, { mode: 'later' })).status).toBe(400)
  })

  test('a request is broken off by its id, and no other', async () => {
    const { url, asking } = await frozen()
    expect((await post(`${url}/inference/v1/abort_requests`, { request_ids: ['other'] })).json.aborted).toBe(0)
    expect((await post(`${url}/abort_requests`, { request_ids: ['long'] })).json.aborted).toBe(1)
    expect((await asking).json.choices[0].finish_reason).toBe('abort')
    expect((await post(`${url}/inference/v1/abort_requests`, {})).status).toBe(400)
  })
})

/** Weights of the small model by another seed, in a folder as a delivery writes it. */
async function otherWeights(version: number) {
  const { model } = await smallModel().open({} as never)
  const weights = new Float32Array(model.numParameters)
  model.initialize(weights, new Random(77), 0)
  const folder = join(await temporaryFolder(), `model-${version}`)
  await deliverFolder(folder, version, (temporary) => saveTransformer(temporary, model, weights))
  return { folder, logprobs: transformerLogprobs({ model, weights }) }
}

describe('weights', () => {
  test('of a folder are taken by SGLang’s route, with their version, and are those that the model then goes by', async () => {
    const { url } = await served({ control: true })
    const { folder, logprobs } = await otherWeights(4)
    const before = await post(`${url}/weight_checker`, { action: 'checksum' })
    const { json } = await post(`${url}/update_weights_from_disk`, { model_path: folder, weight_version: 'four' })
    expect(json).toMatchObject({ success: true, weight_version: 'four', num_paused_requests: 0 })
    expect((await get(`${url}/model_info`)).json.weight_version).toBe('four')
    const choice = await generate({}, url)
    expect(choice.weight_versions).toEqual([{ version: 'four', start: 0, end: choice.token_ids.length }])
    const [expected] = await logprobs.logprobs([[...PROMPT, ...choice.token_ids]])
    for (const [t, { logprob }] of choice.logprobs.content.entries()) {
      expect(logprob).toBeCloseTo(expected![PROMPT.length - 1 + t]!, 4)
    }
    const after = await post(`${url}/weight_checker`, { action: 'checksum' })
    const names = Object.keys(before.json.checksums).filter((name) => /proj|embed/.test(name))
    expect(names.length).toBeGreaterThan(10)
    for (const name of names) expect(after.json.checksums[name]).not.toBe(before.json.checksums[name])
  })

  test('take effect in the middle of a turn, whose tokens say which chose them', async () => {
    const { url } = await served({ control: true, slots: 1 })
    const { folder } = await otherWeights(1)
    const whole = await generate({ max_tokens: 50, seed: 2 }, url)
    const asking = generate({ max_tokens: 50, seed: 2 }, url)
    for (let isThere = false; !isThere; ) isThere = (await get(`${url}/health`)).json.running === 1
    await post(`${url}/pause?mode=keep`, {})
    await post(`${url}/start_weight_update`, {})
    const again = await post(`${url}/start_weight_update`, {})
    expect([again.status, again.json.error.code]).toEqual([400, 'update_under_way'])
    await post(`${url}/update_weights`, { update_info: { path: folder } })
    expect((await get(`${url}/weight_info`)).json.weight_version).toBe('default')
    await post(`${url}/finish_weight_update`, { weight_version: '9' })
    await post(`${url}/resume`, {})
    const split = await asking
    const [first, second, ...others] = split.weight_versions
    expect([first.version, second?.version ?? '9', others]).toEqual(['default', '9', []])
    expect(split.token_ids.slice(0, first.end)).toEqual(whole.token_ids.slice(0, first.end))
    const now = await generate({ max_tokens: 50, seed: 2 }, url)
    expect(now.token_ids).not.toEqual(whole.token_ids)
  })

  test('that are damaged, of another model, or not there, change nothing', async () => {
    const { url } = await served({ control: true })
    const before = (await post(`${url}/weight_checker`, { action: 'checksum' })).json
    const { folder } = await otherWeights(2)
    const damaged = `${folder}-damaged`
    await cp(folder, damaged, { recursive: true })
    const file = join(damaged, 'model.safetensors')
    const bytes = await readFile(file)
    bytes[bytes.length - 2]! ^= 1
    await writeFile(file, bytes)
    const wide = join(await temporaryFolder(), 'wide')
    const { model } = await languageModel({ width: 32, layers: 2, heads: 2, anyText: true }).open({} as never)
    await saveTransformer(wide, model, new Float32Array(model.numParameters).fill(0.1))
    for (const [path, message] of [
      [damaged, /model\.safetensors: got SHA-256 .*, as delivery\.json says/],
      [wide, /as the served model/],
      [`${folder}-none`, /config\.json/],
    ] as const) {
      const { status, json } = await post(`${url}/update_weights_from_disk`, { model_path: path })
      expect([status, json.error.param, json.error.code]).toEqual([400, 'model_path', 'bad_weights'])
      expect(json.error.message).toMatch(message)
    }
    expect((await post(`${url}/weight_checker`, { action: 'checksum' })).json).toEqual(before)
    expect((await get(`${url}/weight_info`)).json.weight_version).toBe('default')
    expect((await post(`${url}/finish_weight_update`, {})).json.error.code).toBe('no_update')
  })

  test('of an adapter are loaded by path under its name, and unloaded', async () => {
    const policy = languageModel({ width: 16, layers: 2, heads: 2, context: 64, anyText: true, loraRank: 2 })
    const { url } = await served({ policy, control: true })
    const plain = await served()
    expect((await generate({}, url)).token_ids).toEqual((await generate({}, plain.url)).token_ids)
    const { model, adapter } = await policy.open({} as never)
    const weights = new Float32Array(adapter!.numParameters).map((_, i) => Math.sin(i))
    const folder = join(await temporaryFolder(), 'sine')
    await mkdir(folder)
    await saveLora(folder, adapter!, weights)
    const load = await post(`${url}/v1/load_lora_adapter`, { lora_name: 'sine', lora_path: folder, load_inplace: true })
    expect(load.status).toBe(200)
    expect((await get(`${url}/v1/models`)).json.data.map(({ id }: { id: string }) => id)).toEqual(['sine'])
    expect((await post(`${url}/v1/completions`, { model: 'small', prompt: 'x' })).status).toBe(404)
    const base = new Float32Array(model.numParameters)
    model.initialize(base, new Random(3), 0)
    const twin = transformerLogprobs({ model, weights: base, adapter: { lora: adapter!, weights } })
    const choice = await generate({}, url)
    const [expected] = await twin.logprobs([[...PROMPT, ...choice.token_ids]])
    for (const [t, { logprob }] of choice.logprobs.content.entries()) {
      expect(logprob).toBeCloseTo(expected![PROMPT.length - 1 + t]!, 4)
    }
    expect((await post(`${url}/unload_lora_adapter`, { lora_name: 'other' })).status).toBe(404)
    const { json } = await post(`${url}/unload_lora_adapter`, { lora_name: 'sine' })
    expect(json).toEqual({ success: true, loaded_adapters: ['small'] })
    expect((await generate({}, url)).token_ids).toEqual((await generate({}, plain.url)).token_ids)
    const none = await served({ control: true })
    const refused = await post(`${none.url}/load_lora_adapter`, { lora_name: 'sine', lora_path: folder })
    expect([refused.status, refused.json.error.code]).toEqual([400, 'bad_weights'])
  })
})
