/** A training service of Tinker's protocol in this process: what raw clients get, and what the `tinker` backend learns by it. */
import { cp, readdir, readFile, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { TinkerService } from '../../../src/agents/tinker/tinker-service.ts'
import { bytesField, mapFields, messageOf, numberField } from '../../../src/base/files/protobuf.ts'
import { tinkerEngine } from '../../../src/engines/tinker/tinker.ts'
import { encodeRequest, PROTOBUF } from '../../../src/engines/tinker/tinker-codec.ts'
import { serveTinker, type TinkerServeOptions } from '../../../src/entries/engines.ts'
import { transformerLogprobs } from '../../../src/entries/text.ts'
import { createTrainer, createWorld, languageModel, rl } from '../../../src/index.ts'
import { loadTransformer } from '../../../src/language/transformer/folder.ts'
import { loadLora } from '../../../src/language/transformer/lora-folder.ts'
import { tinkerBackend } from '../../../src/training/backends/tinker-backend.ts'
import { digits } from '../../support/conversations.ts'
import { writeQwen3 } from '../../support/qwen3-folder.ts'
import { temporaryFolder } from '../../support/temporary.ts'

// biome-ignore lint/suspicious/noExplicitAny: what travels is looked at where it is used.
type Json = any

async function service(given: Partial<TinkerServeOptions> = {}) {
  const model = given.model ?? (await temporaryFolder())
  if (given.model === undefined) await writeQwen3(model)
  const folder = given.folder ?? (await temporaryFolder())
  const server = await serveTinker({ model, name: 'small', folder, ...given })
  const post = async (path: string, body: object | Uint8Array, headers: Record<string, string> = {}) => {
    const isBytes = body instanceof Uint8Array
    const answer = await fetch(`${server.url}/api/v1/${path}`, {
      method: 'POST',
      headers: { 'content-type': isBytes ? PROTOBUF : 'application/json', ...headers },
      body: isBytes ? Buffer.from(body) : JSON.stringify(body),
    })
    return { status: answer.status, json: (await answer.json()) as Json }
  }
  const ask = async (path: string, body: object): Promise<Json> => {
    const { status, json } = await post(path, body)
    if (status !== 200) throw new Error(`${path}: ${status} ${json.detail}`)
    return json
  }
  const done = async (named: Promise<Json>): Promise<Json> => {
    const { request_id } = await named
    const answer = await ask('retrieve_future', { request_id })
    if (answer.error !== undefined) throw new Error(`${answer.category}: ${answer.error}`)
    return answer
  }
  const run = (path: string, body: object) => done(ask(path, body))
  const session = async () => (await ask('create_session', { tags: [], sdk_version: '0.38.0' })).session_id as string
  const train = async (given: object = {}, model_seq_id = 0) => {
    const session_id = await session()
    const lora_config = { rank: 4, seed: 3, ...given }
    return (await run('create_model', { session_id, model_seq_id, base_model: 'small', lora_config }))
      .model_id as string
  }
  return { ...server, model, folder, post, ask, run, done, session, train }
}

const tensor = (data: number[], dtype = 'float32') => ({ data, dtype, shape: [data.length] })
const datum = (tokens: number[], inputs: Record<string, number[]> = {}) => ({
  model_input: { chunks: [{ type: 'encoded_text', tokens: tokens.slice(0, -1) }] },
  loss_fn_inputs: {
    target_tokens: tensor(tokens.slice(1), 'int64'),
    ...Object.fromEntries(Object.entries(inputs).map(([name, data]) => [name, tensor(data)])),
  },
})
const DATA = [datum([1, 2, 3, 4]), datum([9, 8, 7, 6, 5], { weights: [0, 1, 1, 0.5] })]
const passOf = (model_id: string, seq_id: number, data: object[] = DATA, loss_fn = 'cross_entropy', config = {}) => ({
  ...{ model_id, seq_id, forward_backward_input: { data, loss_fn, loss_fn_config: config } },
})
const stepOf = (model_id: string, seq_id: number, given = {}) => ({
  ...{ model_id, seq_id, adam_params: { learning_rate: 0.01, eps: 1e-8, ...given } },
})

function expectClose(values: readonly number[], expected: ArrayLike<number>): void {
  expect(values).toHaveLength(expected.length)
  for (const [i, value] of values.entries()) expect(value).toBeCloseTo(expected[i]!, 5)
}

describe('a training service', () => {
  test('asks clients to send bodies as they are, since it reads none that is compressed', async () => {
    const { ask, post, close } = await service()
    expect(await ask('client/config', { sdk_version: '0.38.0' })).toMatchObject({ proto_compress_fwdbwd: false })
    const refused = await post('forward_backward', Buffer.from('28b52ffd', 'hex'), { 'content-encoding': 'zstd' })
    expect([refused.status, refused.json.detail]).toEqual([415, `the body's encoding is "zstd", expected none`])
    await close()
  })

  test('tells the log-probabilities of the model in its folder, and lowers a loss', async () => {
    const { run, train, model, close } = await service()
    const id = await train()
    const first = await run('forward_backward', passOf(id, 1))
    const { model: shape, weights } = await loadTransformer(model)
    const expected = await transformerLogprobs({ model: shape, weights }).logprobs([
      [1, 2, 3, 4],
      [9, 8, 7, 6, 5],
    ])
    first.loss_fn_outputs.forEach(({ logprobs }: Json, i: number) => {
      expectClose(logprobs.data, expected[i]!)
    })
    const [a, b] = expected as unknown as [number[], number[]]
    const loss = -(a[0]! + a[1]! + a[2]! + b[1]! + b[2]! + 0.5 * b[3]!)
    expect(first.metrics['loss:sum']).toBeCloseTo(loss, 4)
    await run('optim_step', stepOf(id, 2))
    const second = await run('forward_backward', passOf(id, 3))
    expect(second.metrics['loss:sum']).toBeLessThan(first.metrics['loss:sum'])
    await close()
  })

  test('takes targets that are not the tokens that follow', async () => {
    const { run, train, model, close } = await service()
    const id = await train()
    const given = { ...datum([1, 2, 3, 4]), loss_fn_inputs: { target_tokens: tensor([7, 8, 9], 'int64') } }
    const { loss_fn_outputs } = await run('forward_backward', passOf(id, 1, [given, DATA[0]!]))
    const { model: shape, weights } = await loadTransformer(model)
    const { logprobs } = transformerLogprobs({ model: shape, weights })
    const prefixes = await logprobs([
      [1, 7],
      [1, 2, 8],
      [1, 2, 3, 9],
    ])
    expectClose(
      loss_fn_outputs[0].logprobs.data,
      prefixes.map((each) => each[each.length - 1]!),
    )
    await close()
  })

  describe('with several targets per token', () => {
    const K = 3
    const input = [5, 6, 7, 8]
    const targets = [9, 1, 0, 2, 3, 4, 9, 9, 1, 7, 0, 8] // The first of the third token is there twice.
    const weights = [0.5, 0.25, 0, 1, -2, 0, 0.5, 0.5, 1, 0, 0, 3]
    const columnOf = (values: number[], k: number) => values.filter((_, i) => i % K === k)
    const model_input = { chunks: [{ type: 'encoded_text', tokens: input }] }
    const shaped = (data: number[], dtype: string) => ({ data, dtype, shape: [input.length, K] })
    const dense = {
      ...{ model_input },
      loss_fn_inputs: { target_tokens: shaped(targets, 'int64'), weights: shaped(weights, 'float32') },
    }
    /** In compressed rows, as the SDK sends what is mostly zeros. */
    const sparseOf = (values: number[], dtype: string) => {
      const columns = values.flatMap((value, i) => (value === 0 ? [] : [i % K]))
      const rows = [0, ...input.map((_, row) => values.slice(0, (row + 1) * K).filter((value) => value !== 0).length)]
      const data = values.filter((value) => value !== 0)
      return { ...shaped(data, dtype), sparse_crow_indices: rows, sparse_col_indices: columns }
    }
    const sparse = {
      ...{ model_input },
      loss_fn_inputs: { target_tokens: sparseOf(targets, 'int64'), weights: sparseOf(weights, 'float32') },
    }

    test('has the log-probabilities and the gradient of as many passes of one target each', async () => {
      const { run, train, close } = await service()
      const trainBy = async (...passes: object[][]) => {
        const id = await train()
        const outputs: Json[] = []
        let seq = 0
        for (const data of passes) outputs.push(await run('forward_backward', passOf(id, ++seq, data)))
        const { metrics } = await run('optim_step', stepOf(id, ++seq, { learning_rate: 0.01, eps: 1e-3 }))
        const { loss_fn_outputs } = await run('forward_backward', passOf(id, ++seq))
        return { outputs, norm: metrics.grad_norm, next: loss_fn_outputs[0].logprobs.data }
      }
      const other = datum([1, 2, 3])
      const columns = Array.from({ length: K }, (_, k) => ({
        ...{ model_input },
        loss_fn_inputs: {
          target_tokens: tensor(columnOf(targets, k), 'int64'),
          weights: tensor(columnOf(weights, k)),
        },
      }))
      const apart = await trainBy(...columns.map((each) => [each]), [other])
      for (const several of [dense, sparse]) {
        const together = await trainBy([other, several])
        const [one, output] = together.outputs[0].loss_fn_outputs
        expect([one.logprobs.shape, output.logprobs.shape, output.elementwise_loss.shape]).toEqual([
          [2],
          [4, K],
          [4, K],
        ])
        for (let k = 0; k < K; k++) {
          const { logprobs, elementwise_loss: loss } = apart.outputs[k].loss_fn_outputs[0]
          expectClose(columnOf(output.logprobs.data, k), logprobs.data)
          expectClose(columnOf(output.elementwise_loss.data, k), loss.data)
        }
        expect(together.norm).toBeCloseTo(apart.norm, 4)
        expectClose(together.next, apart.next)
        expect(Math.abs(together.norm - (await trainBy([other])).norm)).toBeGreaterThan(0.1)
      }
      await close()
    })

    test('refuses shapes and indices that do not fit, and losses that take one target', async () => {
      const { run, train, close } = await service()
      const id = await train()
      let seq = 0
      const given = (inputs: object) => ({ ...dense, loss_fn_inputs: { ...dense.loss_fn_inputs, ...inputs } })
      const changed = (change: object) => given({ weights: { ...sparseOf(weights, 'float32'), ...change } })
      const few = { logprobs: shaped(weights, 'float32'), advantages: shaped(weights, 'float32') }
      for (const [data, message, loss = 'cross_entropy'] of [
        [
          { ...dense, loss_fn_inputs: { target_tokens: shaped(targets, 'int64'), ...few } },
          'a target per token',
          'ppo',
        ],
        [given({ weights: { ...shaped(weights, 'float32'), shape: [K, 4] } }), 'data[0].weights: got "shape [3,4]"'],
        [given({ target_tokens: { ...shaped(targets, 'int64'), shape: [K, 4] } }), 'data[0].target_tokens: got "shape'],
        [
          given({ target_tokens: { ...shaped(targets, 'int64'), shape: [4, K, 1] } }),
          'data[0].target_tokens: got "shape',
        ],
        [given({ target_tokens: shaped(targets.slice(1), 'int64') }), 'as many as the shape says'],
        [given({ target_tokens: shaped([...targets.slice(1), 999], 'int64') }), 'target_tokens: got 999'],
        [changed({ shape: [4, 2 ** 40] }), 'at most 16777216 numbers'],
        [changed({ shape: [12] }), 'do not fit'],
        [changed({ sparse_crow_indices: [0, 9, 4, 6, 8] }), 'do not fit'],
        [changed({ sparse_crow_indices: [1, 2, 4, 6, 8] }), 'do not fit'],
        [changed({ sparse_col_indices: [0, 1, 0, 1, 0, 1, 0, 3] }), 'do not fit'],
        [changed({ sparse_col_indices: [0, 1, 0, 1, 0, 1, 0, -1] }), 'do not fit'],
        [changed({ sparse_col_indices: null }), 'do not fit'],
      ] as const) {
        await expect(run('forward_backward', passOf(id, ++seq, [data], loss)), message).rejects.toThrow(message)
      }
      expect((await run('forward_backward', passOf(id, ++seq, [dense]))).metrics['loss:sum']).toBeGreaterThan(0)
      await close()
    })
  })

  test('adds up the gradients of passes, and a step is made of all of them', async () => {
    const { run, train, close } = await service()
    const stepped = async (...parts: object[][]) => {
      const id = await train()
      let seq = 0
      for (const part of parts) await run('forward_backward', passOf(id, ++seq, part))
      const { metrics } = await run('optim_step', stepOf(id, ++seq))
      const { metrics: after } = await run('optim_step', stepOf(id, ++seq, { learning_rate: 0 }))
      return { norm: metrics.grad_norm, after: after.grad_norm }
    }
    const [together, apart, half] = [
      await stepped(DATA),
      await stepped([DATA[0]!], [DATA[1]!]),
      await stepped([DATA[0]!]),
    ]
    expect(apart.norm).toBeCloseTo(together.norm, 4)
    expect(Math.abs(half.norm - together.norm)).toBeGreaterThan(0.01)
    expect(together.after).toBe(0)
    await close()
  })

  test('each number of AdamW acts', async () => {
    const { run, train, close } = await service()
    const lossAfter = async (given: object) => {
      const id = await train()
      for (let seq = 1; seq < 5; seq += 2) {
        await run('forward_backward', passOf(id, seq))
        await run('optim_step', stepOf(id, seq + 1, given))
      }
      return (await run('forward', { model_id: id, seq_id: 5, forward_input: passOf(id, 5).forward_backward_input }))
        .metrics['loss:sum']
    }
    const losses = [await lossAfter({})]
    for (const given of [
      { learning_rate: 0.02 },
      { beta1: 0.5 },
      { beta2: 0.5 },
      { eps: 1 },
      { weight_decay: 5 },
      { grad_clip_norm: 1e-3 },
    ]) {
      losses.push(await lossAfter(given))
    }
    expect(new Set(losses).size).toBe(losses.length)
    await close()
  })

  test('does the requests of a model in the order of their numbers, and each of them once', async () => {
    const { ask, done, run, post, train, close } = await service()
    const [id, other] = [await train(), await train()]
    const late = ask('optim_step', stepOf(id, 2))
    const third = ask('forward_backward', passOf(id, 3))
    await Promise.all([late, third]) // Both are named before the first has come.
    const first = await ask('forward_backward', passOf(id, 1))
    expect(await ask('forward_backward', passOf(id, 1))).toEqual(first)
    const results = await Promise.all([done(Promise.resolve(first)), done(late), done(third)])
    const inOrder = [
      await run('forward_backward', passOf(other, 1)),
      await run('optim_step', stepOf(other, 2)),
      await run('forward_backward', passOf(other, 3)),
    ]
    expect(results).toEqual(inOrder)
    expect((await post('optim_step', stepOf(id, 3))).status).toBe(409)
    await close()
  })

  test('goes on from saved weights as if it had never been stopped, in another process too', async () => {
    const one = await service()
    const id = await one.train()
    const rounds = async (run: typeof one.run, id: string, from: number) => {
      await run('forward_backward', passOf(id, from))
      await run('optim_step', stepOf(id, from + 1))
      return run('forward_backward', passOf(id, from + 2))
    }
    await rounds(one.run, id, 1)
    await one.run('optim_step', stepOf(id, 4))
    const { path } = await one.run('save_weights', { model_id: id, seq_id: 5, path: 'five' })
    expect(path).toBe(`tinker://${id}/weights/five`)
    const expected = await rounds(one.run, id, 6)
    await one.close()
    const two = await service({ model: one.model, folder: one.folder })
    const load = async (optimizer: boolean) => {
      const session_id = await two.session()
      return (await two.run('load_weights', { session_id, model_seq_id: 0, path, optimizer })).model_id
    }
    expect(await rounds(two.run, await load(true), 1)).toEqual(expected)
    // Without the optimizer's state the weights are the same, and the next ones are not.
    const alone = await load(false)
    expect(await rounds(two.run, alone, 1)).not.toEqual(expected)
    // A model that is there takes them too.
    const made = await two.train()
    await two.run('load_weights', { model_id: made, seq_id: 1, path, optimizer: true })
    expect(await rounds(two.run, made, 2)).toEqual(expected)
    await two.close()
  })

  test('clients at once get what each gets alone', async () => {
    const { run, train, close } = await service()
    const training = async (seed: number, rank: number) => {
      const id = await train({ seed, rank })
      const all: Json[] = []
      for (let seq = 1; seq < 7; seq += 2) {
        all.push(await run('forward_backward', passOf(id, seq)), await run('optim_step', stepOf(id, seq + 1)))
      }
      const { sampling_session_id } = await run('save_weights_for_sampler', {
        ...{ model_id: id, seq_id: 7, sampling_session_seq_id: 0 },
      })
      const body = { sampling_session_id, seq_id: 0, num_samples: 3, prompt: { chunks: [{ tokens: [1, 2] }] } }
      all.push(await run('asample', { ...body, sampling_params: { max_tokens: 12, seed: 1 } }))
      return all
    }
    const alone = [await training(1, 4), await training(2, 4), await training(1, 2)]
    expect(await Promise.all([training(1, 4), training(2, 4), training(1, 2)])).toEqual(alone)
    expect(alone[0]).not.toEqual(alone[1])
    await close()
  })

  test('samples by the weights of the session, and tells log-probabilities of the whole distribution', async () => {
    const { ask, run, train, session, folder, model, close } = await service()
    const id = await train()
    await run('forward_backward', passOf(id, 1))
    await run('optim_step', stepOf(id, 2, { learning_rate: 0.05 }))
    const { path } = await run('save_weights_for_sampler', { model_id: id, seq_id: 3, path: 'now' })
    const { model: shape, weights } = await loadTransformer(model)
    const kept = join(folder, id.replaceAll(':', '_'), 'sampler_weights', 'now')
    expect((await readdir(kept)).sort()).toEqual(['adapter_config.json', 'adapter_model.safetensors'])
    const adapter = await loadLora(kept, shape)
    const session_id = await session()
    const sampled = async (from: object, sampling_params: object, seq_id: number) => {
      const { sampling_session_id } = await ask('create_sampling_session', {
        ...{ session_id, sampling_session_seq_id: seq_id, ...from },
      })
      const body = { sampling_session_id, seq_id: 0, num_samples: 2, prompt: { chunks: [{ tokens: [1, 2, 3] }] } }
      return run('asample', {
        ...body,
        ...{ prompt_logprobs: true, topk_prompt_logprobs: 3 },
        sampling_params: { max_tokens: 9, seed: 4, ...sampling_params },
      })
    }
    const trained = transformerLogprobs({
      model: shape,
      weights,
      adapter: { lora: adapter.model, weights: adapter.weights },
    })
    let seq = 0
    await run('forward_backward', passOf(id, 4))
    await run('optim_step', stepOf(id, 5, { learning_rate: 0.05 }))
    const later = (await run('save_weights_for_sampler', { model_id: id, seq_id: 6, path: 'later' })).path
    const { weights: laterAdapter } = await loadLora(kept.replace(/now$/, 'later'), shape)
    for (const [from, logprobs] of [
      [{ model_path: path }, trained],
      [
        { model_path: later },
        transformerLogprobs({ model: shape, weights, adapter: { lora: adapter.model, weights: laterAdapter } }),
      ],
      [{ base_model: 'small' }, transformerLogprobs({ model: shape, weights })],
    ] as const) {
      for (const drawing of [{}, { temperature: 0.5, top_k: 5 }, { temperature: 0 }]) {
        const answer = await sampled(from, drawing, seq++)
        expect(answer.sequences).toHaveLength(2)
        for (const { tokens, logprobs: told } of answer.sequences) {
          const [expected] = await logprobs.logprobs([[1, 2, 3, ...tokens]])
          const own = [...answer.prompt_logprobs.slice(1), ...told]
          expectClose(own, expected!)
        }
        const [none, ...tops] = answer.topk_prompt_logprobs as [number, number][][]
        expect([none, tops.length]).toEqual([null, 2])
        for (const [i, top] of tops.entries()) {
          const said = Array.from(await logprobs.nextLogprobs!([1, 2].slice(0, i + 1)))
          const all = said.map((value, token) => [token, value] as const)
          const best = all.toSorted(([, a], [, b]) => b - a).slice(0, 3)
          expect(top.map(([token]) => token)).toEqual(best.map(([token]) => token))
          expectClose(
            top.map(([, value]) => value),
            best.map(([, value]) => value),
          )
        }
      }
    }
    await close()
  })

  test('ends answers at the ids and texts of stop, and goes on behind end tokens where stop is empty', async () => {
    const { run, ask, session, close } = await service()
    const session_id = await session()
    const { sampling_session_id } = await ask('create_sampling_session', {
      ...{ session_id, sampling_session_seq_id: 0, base_model: 'small' },
    })
    let seq = 0
    const sample = async (sampling_params: object) => {
      const body = { sampling_session_id, seq_id: seq++, prompt: { chunks: [{ tokens: [1, 2, 3] }] } }
      const { sequences } = await run('asample', {
        ...body,
        sampling_params: { seed: 4, max_tokens: 40, ...sampling_params },
      })
      return sequences[0]
    }
    const whole = await sample({ stop: [] })
    expect(whole).toMatchObject({ stop_reason: 'length' })
    expect(whole.tokens).toHaveLength(40)
    const stop = whole.tokens[7]
    const first = whole.tokens.indexOf(stop)
    expect(await sample({ stop: [stop] })).toMatchObject({
      stop_reason: 'stop',
      tokens: whole.tokens.slice(0, first + 1),
    })
    await close()
  })

  test('gives kept weights away as an archive, lists them, and tells their shape', async () => {
    const { run, ask, train, post, url, close } = await service()
    const id = await train({ train_mlp: false })
    const { path } = await run('save_weights', { model_id: id, seq_id: 1, path: 'first' })
    const listed = await (await fetch(`${url}/api/v1/training_runs/${id}/checkpoints`)).json()
    expect(listed).toMatchObject({ checkpoints: [{ checkpoint_id: 'weights/first', tinker_path: path }] })
    expect(await ask('weights_info', { tinker_path: path })).toEqual({
      ...{ base_model: 'small', is_lora: true, lora_rank: 4, train_attn: true, train_mlp: false, train_unembed: false },
    })
    const again = { model_id: id, path: 'first' }
    await expect(run('save_weights', { ...again, seq_id: 2 })).rejects.toThrow('which exists')
    await run('save_weights', { ...again, seq_id: 3, overwrite: true })
    await expect(run('save_weights', { ...again, seq_id: 4, path: '../up' })).rejects.toThrow(
      'expected a name of letters',
    )
    expect((await post('weights_info', { tinker_path: 'tinker://a/weights/b' })).status).toBe(404)
    await close()
  })

  test('refuses what it cannot do, by name, and goes on', async () => {
    const { post, run, train, session, close } = await service()
    const id = await train()
    let seq = 0
    const refused = async (data: object[], message: string, loss = 'cross_entropy', config = {}) =>
      expect(run('forward_backward', passOf(id, ++seq, data, loss, config))).rejects.toThrow(message)
    await refused([], 'data: got "0 datums", expected 1 to 1024 datums')
    await refused([datum([1, 2, 999])], 'target_tokens: got 999, expected a whole number from 0 to 424')
    for (const target of [null, '2', true, [2]]) {
      const [one, two] = [
        [2, target],
        [2, target, 1, 1],
      ]
      const given = { ...datum([1, 2, 3]), loss_fn_inputs: { target_tokens: tensor(one as number[], 'int64') } }
      await refused([given], `target_tokens: got ${JSON.stringify(target)}, expected`)
      const shaped = { ...tensor(two as number[], 'int64'), shape: [2, 2] }
      await refused([{ ...given, loss_fn_inputs: { target_tokens: shaped } }], 'target_tokens: got')
    }
    await refused([datum([999, 2, 1])], 'got')
    await refused([datum([1, 2, 3], { weights: [1] })], 'data[0].weights: got "1 numbers", expected 2')
    await refused([datum([1, 2, 3], { weights: [1, null as never] })], 'data[0].weights[1]: got null')
    await refused([datum([1, 2, 3], { mask: [1, 1] })], 'data[0].mask')
    await refused([datum([1, 2, 3])], 'logprobs', 'ppo')
    await refused([datum([1, 2, 3])], 'loss_fn: got', 'stable_reinforce')
    await refused([datum(Array(200).fill(1))], '199 tokens')
    await refused([{ ...datum([1, 2]), model_input: { chunks: [{ type: 'image', data: '' }] } }], 'image')
    expect((await run('forward_backward', passOf(id, ++seq))).metrics['loss:sum']).toBeGreaterThan(0)
    await expect(run('optim_step', stepOf(id, ++seq, { beta1: 1 }))).rejects.toThrow('adam_params.beta1')
    const session_id = await session()
    for (const [path, body, status] of [
      ['create_model', { session_id: 'none', base_model: 'small', lora_config: { rank: 4 } }, 404],
      ['create_model', { session_id, base_model: 'big', lora_config: { rank: 4 } }, 400],
      [
        'create_model',
        { session_id, base_model: 'small', lora_config: { rank: 4, train_attn: false, train_mlp: false } },
        400,
      ],
      [
        'create_model',
        { session_id, base_model: 'small', lora_config: { rank: 4 }, optimizer_config: { type: 'dimuon' } },
        400,
      ],
      ['forward_backward', passOf('none', 1), 404],
      ['forward_backward', messageOf([numberField(1, 5)]), 400],
      ['asample', { sampling_session_id: 'none' }, 404],
      ['retrieve_future', { request_id: 'none' }, 404],
      ['optim_step', messageOf([numberField(1, 5)]), 415],
    ] as const) {
      expect([path, (await post(path, body)).status]).toEqual([path, status])
    }
    await expect(
      run('create_model', { session_id, model_seq_id: 9, base_model: 'small', lora_config: { rank: 99 } }),
    ).rejects.toThrow('rank: got 99')
    await close()
  })

  test('refuses malformed datums, losses and sampling parameters with the field, and its model goes on', async () => {
    const { run, ask, train, session, close } = await service()
    const id = await train()
    let seq = 0
    const [right] = DATA
    const inputs = (given: object) => [{ ...right!, loss_fn_inputs: { ...right!.loss_fn_inputs, ...given } }]
    for (const [data, message] of [
      [[null], 'user: data[0].model_input.chunks: got undefined'],
      [[{ ...right, model_input: { chunks: [null] } }], 'user: data[0].model_input.chunks: got null'],
      [inputs({ target_tokens: null }), 'user: data[0].target_tokens: got null, expected a tensor'],
      [inputs({ target_tokens: {} }), 'user: data[0].target_tokens'],
      [inputs({ weights: null }), 'user: data[0].weights'],
    ] as const) {
      await expect(run('forward_backward', passOf(id, ++seq, data as object[]))).rejects.toThrow(message)
    }
    const sparse = bytesField(3, [
      bytesField(1, [bytesField(1, [bytesField(1, new Uint8Array(4))])]),
      ...mapFields(2, { target_tokens: 0 }, () =>
        bytesField(2, [bytesField(2, [bytesField(1, new Uint8Array(4))]), numberField(3, 1)]),
      ),
    ])
    const refused = run('forward_backward', messageOf([bytesField(1, id), numberField(2, ++seq), sparse]))
    await expect(refused).rejects.toThrow('data[0].target_tokens: got "indices that do not fit')
    await run('forward_backward', passOf(id, ++seq, DATA, 'cross_entropy', null as never))
    const { sampling_session_id } = await ask('create_sampling_session', {
      ...{ session_id: await session(), sampling_session_seq_id: 0, base_model: 'small' },
    })
    const sample = (given: object) => {
      const body = { sampling_session_id, prompt: { chunks: [{ tokens: [1, 2] }] } }
      return run('asample', { ...body, sampling_params: { max_tokens: 20, seed: 1, ...given } })
    }
    for (const given of [{ temperature: '1' }, { top_k: 1.5 }, { top_p: 2 }, { stop: 5 }, { stop: [null] }]) {
      await expect(sample(given)).rejects.toThrow(`user: ${Object.keys(given)[0]}: got`)
    }
    expect(await sample({ temperature: null, top_k: null, top_p: null })).toEqual(await sample({}))
    await close()
  })

  test('refuses a pass whose gradient is not finite, and the model learns on as without it', async () => {
    const { run, train, close } = await service()
    const [id, other] = [await train(), await train()]
    const wild = [datum([1, 2, 3], { logprobs: [-1e30, -1e30], advantages: [1, -1] })]
    await expect(run('forward_backward', passOf(id, 1, wild, 'importance_sampling'))).rejects.toThrow('user: gradient')
    await run('forward_backward', passOf(id, 2))
    await run('forward_backward', passOf(other, 1))
    expect(await run('optim_step', stepOf(id, 3))).toEqual(await run('optim_step', stepOf(other, 2)))
    await close()
  })

  test('finds nothing outside its folder', async () => {
    const folder = await temporaryFolder()
    const { run, train, url, post, close } = await service({ folder: join(folder, 'inner') })
    const id = await train()
    await run('save_weights', { model_id: id, seq_id: 1, path: 'kept' })
    await cp(join(folder, 'inner', id.replaceAll(':', '_')), folder, { recursive: true })
    expect((await post('weights_info', { tinker_path: 'tinker://../weights/kept' })).status).toBe(404)
    const get = (path: string) =>
      new Promise((resolve) => {
        request(url, { path: `/api/v1/training_runs/${path}` }, ({ statusCode }) => resolve(statusCode)).end()
      })
    expect(await get(`${id}/checkpoints/weights/kept/archive`)).toBe(200)
    expect(await get('../checkpoints/weights/kept/archive')).toBe(404)
    expect(await get('../checkpoints')).toBe(404)
    await close()
  })

  test('goes on after weights that are not there, and makes a model once where its request is repeated', async () => {
    const { run, ask, done, post, session, close } = await service()
    const session_id = await session()
    const body = { session_id, model_seq_id: 0, base_model: 'small', lora_config: { rank: 4 } }
    const first = await ask('create_model', body)
    expect(await ask('create_model', body)).toEqual(first)
    expect((await post('create_model', { ...body, lora_config: { rank: 2 } })).status).toBe(409)
    expect((await done(Promise.resolve(first))).type).toBe('create_model')
    const model_id = first.model_id
    const lost = { model_id, seq_id: 1, path: 'tinker://a/weights/b' }
    await expect(run('load_weights', lost)).rejects.toThrow('expected weights that were saved here')
    expect((await run('optim_step', stepOf(model_id, 2))).type).toBe('optim_step')
    await close()
  })

  test('leaves saved weights as they were when it refuses to save over them, and tells of a damaged configuration', async () => {
    const { run, post, train, folder, close } = await service()
    const id = await train()
    await run('forward_backward', passOf(id, 1))
    await run('optim_step', stepOf(id, 2))
    const { path } = await run('save_weights', { model_id: id, seq_id: 3, path: 'kept' })
    const kept = join(folder, id.replaceAll(':', '_'), 'weights', 'kept')
    const before = await readFile(join(kept, 'optimizer.safetensors'))
    await run('forward_backward', passOf(id, 4, [DATA[0]!]))
    await run('optim_step', stepOf(id, 5, { learning_rate: 1e39 }))
    const over = { model_id: id, seq_id: 6, path: 'kept', overwrite: true }
    await expect(run('save_weights', over)).rejects.toThrow('expected finite weights')
    expect(await readFile(join(kept, 'optimizer.safetensors'))).toEqual(before)
    expect((await post('weights_info', { tinker_path: path })).status).toBe(200)
    await writeFile(join(kept, 'adapter_config.json'), '{"r":4}')
    expect((await post('weights_info', { tinker_path: path })).json.detail).toMatch('target_modules: got undefined')
    await close()
  })

  test('fails the requests that wait for a lower number when their model or session ends', async () => {
    const { ask, done, post, train, close } = await service()
    const [unloaded, ended] = [await train(), await train()]
    const waiting = await ask('optim_step', stepOf(unloaded, 2))
    const other = await ask('optim_step', stepOf(ended, 3))
    expect((await post('optim_step', stepOf(ended, 1025))).status).toBe(400)
    await ask('unload_model', { model_id: unloaded })
    await ask(`sessions/${ended.split(':')[0]}/finish`, {})
    await expect(done(Promise.resolve(waiting))).rejects.toThrow('was unloaded')
    await expect(done(Promise.resolve(other))).rejects.toThrow('was unloaded')
    await close()
  })

  test('adds no model or sampler to a session that has ended', async () => {
    const { ask, done, session, train, close } = await service()
    const [first, second, id] = [await session(), await session(), await train()]
    const lora_config = { rank: 3 }
    const made = await ask('create_model', { session_id: first, base_model: 'small', lora_config })
    await ask(`sessions/${first}/finish`, {})
    await expect(done(Promise.resolve(made))).rejects.toThrow(`session_id: got "${first}"`)
    const saved = await ask('save_weights_for_sampler', { model_id: id, seq_id: 2, sampling_session_seq_id: 0 })
    await ask('forward_backward', passOf(id, 1, Array(512).fill(datum([...Array(100).keys()]))))
    const own = id.split(':')[0]
    await ask(`sessions/${own}/finish`, {})
    await expect(done(Promise.resolve(saved))).rejects.toThrow(`session_id: got "${own}"`)
    await ask('session_heartbeat', { session_id: second })
    await close()
  })

  test('keeps the weights of the last used samplers in memory, and loads saved ones again', async () => {
    const { ask, run, done, post, train, close } = await service()
    const id = await train()
    const session_id = id.split(':')[0]
    const { path } = await run('save_weights_for_sampler', { model_id: id, seq_id: 1, path: 'kept' })
    const body = { session_id, sampling_session_seq_id: 0, model_path: path }
    const { sampling_session_id: kept } = await ask('create_sampling_session', body)
    const sample = (sampling_session_id: string, seq_id: number) =>
      post('asample', {
        ...{ sampling_session_id, seq_id, prompt: { chunks: [{ tokens: [1, 2] }] } },
        sampling_params: { max_tokens: 5, seed: 1 },
      })
    const sampled = async (seq_id: number) => done(sample(kept, seq_id).then(({ json }) => json))
    const before = await sampled(0)
    const unsaved: string[] = []
    for (let n = 1; n <= 20; n++) {
      const save = { model_id: id, seq_id: n + 1, sampling_session_seq_id: n }
      unsaved.push((await run('save_weights_for_sampler', save)).sampling_session_id)
    }
    expect(await sampled(1)).toEqual(before)
    expect((await sample(unsaved[0]!, 0)).status).toBe(404)
    expect((await sample(unsaved[19]!, 0)).status).toBe(200)
    await close()
  })

  test('a sample that is cancelled while it waits for its weights does not run', async () => {
    const { ask, done, train, run, close } = await service()
    const id = await train()
    const sessions: string[] = []
    for (const seq_id of [1, 2]) {
      const save = { model_id: id, seq_id, sampling_session_seq_id: seq_id }
      sessions.push((await run('save_weights_for_sampler', save)).sampling_session_id)
    }
    const [first, second] = await Promise.all(
      sessions.map((sampling_session_id) =>
        ask('asample', {
          ...{ sampling_session_id, num_samples: 20, prompt: { chunks: [{ tokens: [1, 2] }] } },
          sampling_params: { max_tokens: 50, stop: [] },
        }),
      ),
    )
    await ask('cancel_future', second)
    await expect(done(Promise.resolve(second))).rejects.toThrow('cancelled')
    expect((await done(Promise.resolve(first))).sequences).toHaveLength(20)
    await close()
  })

  test('ends its work when it closes', async () => {
    const options = { model: await temporaryFolder(), folder: await temporaryFolder() }
    await writeQwen3(options.model)
    const tinker = await TinkerService.open(options)
    const routes = tinker.routes()
    const call = (path: string, body: object): Json =>
      routes.get(`POST /api/v1/${path}`)!({
        ...{ body, headers: {}, params: {}, query: new URLSearchParams(), signal: new AbortController().signal },
      } as never)
    const { session_id } = await call('create_session', {})
    const made = await call('create_model', { session_id, base_model: options.model, lora_config: { rank: 4 } })
    await call('retrieve_future', made)
    const pass = await call(
      'forward_backward',
      passOf(made.model_id, 1, Array(1024).fill(datum([...Array(100).keys()]))),
    )
    const early = await call('optim_step', stepOf(made.model_id, 3))
    const sample = await call('asample', {
      ...{ base_model: options.model, num_samples: 1024, prompt: { chunks: [{ tokens: [1, 2] }] } },
      sampling_params: { stop: [] },
    })
    tinker.close()
    const answers = await Promise.all([pass, early, sample].map((named) => call('retrieve_future', named)))
    expect(answers.map(({ error }) => error)).toEqual([
      'the service is stopping',
      expect.stringContaining('was unloaded'),
      expect.stringMatching(/cancelled|stopping/),
    ])
  })

  test('takes passes as protocol buffers, and answers them so', async () => {
    const { post, run, train, url, close } = await service()
    const [id, other] = [await train(), await train()]
    const { bytes } = encodeRequest('forward_backward', passOf(id, 1))!
    const { json } = await post('forward_backward', bytes)
    const answer = await fetch(`${url}/api/v1/retrieve_future`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', accept: PROTOBUF },
      body: JSON.stringify({ request_id: json.request_id }),
    })
    expect(answer.headers.get('content-type')).toBe(PROTOBUF)
    const { answerReader } = await import('../../../src/engines/tinker/tinker-codec.ts')
    const read = answerReader('forward_backward')!(new Uint8Array(await answer.arrayBuffer()))
    const expected = await run('forward_backward', passOf(other, 1))
    expect(read).toEqual({ ...expected, loss_fn_outputs: read.loss_fn_outputs })
    ;(read.loss_fn_outputs as Json[]).forEach(({ logprobs }, i) => {
      expect(logprobs.data).toEqual(expected.loss_fn_outputs[i].logprobs.data)
    })
    await close()
  })

  test('asks strangers of other machines for its key', async () => {
    await expect(service({ host: '0.0.0.0' })).rejects.toThrow('host: got 0.0.0.0 without apiKey')
    const { post, close } = await service({ apiKey: 'a key of sixteen letters' })
    const body = { tags: [], sdk_version: '0.38.0' }
    expect((await post('create_session', body)).status).toBe(401)
    expect((await post('create_session', body, { 'x-api-key': 'a key of sixteen letters' })).status).toBe(200)
    await close()
  })

  test('is one that the tinker backend and engine learn by', async () => {
    const { url, model, close } = await service()
    const policy = languageModel({ folder: model, context: 24, loraRank: 4, loraAlpha: 32 })
    const environment = digits({
      ...{ numExamples: 2, maxTokens: 4 },
      respond: ({ completion }) => ({ reward: completion.length % 2 }),
    })
    const engine = tinkerEngine({ url, tolerance: 1e-4 })
    const world = await createWorld({ environment, policy, seed: 2, numLanes: 8, groupSize: 4, engine })
    const settings = { loss: 'grpo', lossSettings: { klCoef: 0 }, groupsPerUpdate: 2, groupSize: 4, updates: 3 }
    const backend = tinkerBackend({ url, reduction: 'sum' })
    const trainer = await createTrainer(world, rl({ ...settings, learningRate: 0.01, maxGradNorm: 1e9 } as never), {
      backend,
    })
    const norms: number[] = []
    for await (const metrics of trainer.updates()) norms.push((metrics as Json).gradNorm)
    expect(norms).toHaveLength(3)
    expect(Math.max(...norms)).toBeGreaterThan(0)
    trainer.close()
    await close()
  })
})
