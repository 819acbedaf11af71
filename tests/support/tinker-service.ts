/**
 * A training service with Tinker's protocol, as in its SDK 0.38 and SkyRL 0.3, over the learner of this process. It
 * implements the protocol's numbered requests, futures, sessions and places for adapters, and the faults that a test
 * sets.
 */
import { execFile } from 'node:child_process'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import { tokenLearnerPlan } from '../../src/algorithms/tokens/token-learner.ts'
import { Clock } from '../../src/base/clock.ts'
import { Random } from '../../src/base/random.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { encodeAnswer, PROTOBUF, readPassRequest } from '../../src/engines/tinker/tinker-codec.ts'
import { transformerLogprobs } from '../../src/entries/text.ts'
import { reverse } from '../../src/environments/tasks/sequences.ts'
import { createKernels, spansOf } from '../../src/kernels/bind.ts'
import { saveLora } from '../../src/language/transformer/lora-folder.ts'
import type { BackendContext, TrainingBackend } from '../../src/training/backends/backend.ts'
import { localBackend } from '../../src/training/backends/local-backend.ts'
import type { ConversationCohortOptions } from '../../src/world/conversations/cohort.ts'
import { createWorld } from '../../src/world/world.ts'
import { atEnd } from './end.ts'
import { temporaryFolder } from './temporary.ts'

const run = promisify(execFile)

// biome-ignore lint/suspicious/noExplicitAny: what travels is looked at where it is used.
type Json = any

/** The service's properties and faults. */
export interface TinkerServiceOptions {
  readonly environment: ConversationCohortOptions['environment']
  /** A language model with an adapter. */
  readonly policy: ConversationCohortOptions['policy']
  readonly seed: number
  /** How it combines losses; `mean` as in SkyRL on JAX. */
  readonly reduction: 'sum' | 'mean'
  /** Properties missing in its published schemas; null: it publishes none. */
  readonly lacks: readonly string[] | null
  readonly slots: number
  /**
   * Whether weights for training and sampling share one place, as in SkyRL on JAX: saved weights are loaded there
   * unless they were the last ones, whatever was learned since.
   */
  readonly samplesByLearner: boolean
  readonly tellsNorms: boolean
  /** How often a future is not done when requested. */
  readonly notDone: number
  /** Maximum datums per request. */
  readonly datums: number
  readonly apiKey: string
  /** Whether passes may be JSON. */
  readonly takesJson: boolean
  /** Replaces the service's answer; undefined: its own. `text` is sent unchanged, null cuts the connection. */
  answer(path: string, body: Json): { status?: number; json?: Json; text?: string } | null | undefined
}

interface Datum {
  readonly tokens: readonly number[]
  readonly inputs: Readonly<Record<string, readonly number[]>>
}

interface ServedModel {
  readonly backend: TrainingBackend
  readonly weights: Float32Array
  readonly requests: Map<number, { readonly text: string; readonly id: string }>
  next: number
  /** The last loaded weights. */
  loaded: string | null
  /** Sequences and derivatives that wait for a step. */
  readonly gathered: { datum: Datum; derivatives: number[] }[]
}

/** Serves until the end of the test file. */
export async function tinkerService(given: Partial<TinkerServiceOptions> = {}) {
  const options: TinkerServiceOptions = {
    ...{
      environment: reverse(),
      seed: 3,
      reduction: 'sum',
      lacks: null,
      slots: 8,
      samplesByLearner: false,
      tellsNorms: true,
      notDone: 0,
    },
    ...{ datums: 1024, apiKey: '', takesJson: true, answer: () => undefined, ...given },
    policy: given.policy!,
  }
  const { environment, policy, seed } = options
  const world = await createWorld({ environment, policy, seed, numLanes: 1 })
  const cohort = world.cohort()
  const { model, weights: base, context, tokenizer } = cohort
  if (!('adapter' in cohort) || cohort.adapter === null) throw new Error('the service trains adapters')
  const { lora } = cohort.adapter
  const folder = await temporaryFolder()
  const asked: { path: string; body: Json }[] = []
  const sessions = new Map<string, number>()
  const models = new Map<string, ServedModel>()
  const futures = new Map<string, { work: Promise<Json>; notDone: number }>()
  const kept = new Map<string, { file: string; weights: Float32Array; of: string }>()
  const samplers = new Map<string, () => ReturnType<typeof transformerLogprobs>>()
  let names = 0
  let notes = 0

  const makeModel = (key: number): ServedModel => {
    const { arena, columns } = takeArena({
      weights: column('f32', model.numParameters),
      adapter: column('f32', lora.numParameters),
      learner: tokenLearnerPlan(model, context - 1, context, { optimizer: 'adam' }, false, lora),
    })
    columns.weights.set(base as Float32Array)
    lora.initialize(columns.adapter, new Random(key), 1)
    const kernels = createKernels(arena.memory, 'plain')
    const made: BackendContext = {
      ...{ model, weights: columns.weights, trained: columns.adapter, context, rows: context - 1 },
      weightBits: 32,
      ...{ adapter: { lora, weights: columns.adapter, random: new Random(0) } },
      ...{ optimizer: 'adam', hasReference: false, columns: columns.learner as never, kernels },
      ...{ clock: new Clock(), kernelBuild: 'plain', sampledWhileLearning: false, team: null },
    }
    const backend = localBackend.create(made)
    void backend.start()
    return { backend, weights: columns.adapter, requests: new Map(), next: 1, loaded: null, gathered: [] }
  }
  const batchOf = (datums: readonly Datum[]) => {
    const offsets = [0]
    for (const { tokens } of datums) offsets.push(offsets.at(-1)! + tokens.length)
    const token = datums.flatMap(({ tokens }) => tokens)
    const batch = packBatch({ ...spansOf(Int32Array.from(offsets)), token, lossMask: token.map(() => 1) }, context - 1)
    return { batch, offsets, token }
  }
  const logprobsOf = async ({ backend }: ServedModel, datums: readonly Datum[]): Promise<number[][]> => {
    const { batch, offsets, token } = batchOf(datums)
    const [logprob, entropy] = [new Float32Array(token.length), new Float32Array(token.length)]
    await backend.forward(batch, 'policy', 1, { logprob, entropy, value: new Float32Array(0) })
    return datums.map((_, i) => Array.from(logprob.subarray(offsets[i]! + 1, offsets[i + 1]!)))
  }
  const read = ({ data, loss_fn, loss_fn_config }: Json) => ({
    name: loss_fn as string,
    config: { clip_low_threshold: 0.8, clip_high_threshold: 1.2, ...loss_fn_config },
    datums: (data as Json[]).map(({ model_input: { chunks }, loss_fn_inputs }): Datum => {
      const input = (chunks as { tokens: number[] }[]).flatMap(({ tokens }) => tokens)
      const targets = loss_fn_inputs.target_tokens.data as number[]
      if (targets.slice(0, -1).some((token, i) => token !== input[i + 1])) throw new Error('targets of other tokens')
      const inputs = Object.entries(loss_fn_inputs).map(([name, { data }]: Json) => [name, data])
      for (const [name, values] of inputs) {
        if (values.length !== targets.length) throw new Error(`${name} of ${values.length} tokens of ${targets.length}`)
        if (!values.every(Number.isFinite)) throw new Error(`${name} with what is no number`)
      }
      return { tokens: [...input, targets.at(-1)!], inputs: Object.fromEntries(inputs) }
    }),
  })
  /** ∂loss/∂ℓ of each token, by the formulas of the protocol. */
  const derive = (name: string, config: Json, { inputs }: Datum, logprobs: readonly number[]): number[] => {
    const weights = inputs.weights ?? logprobs.map(() => 1)
    const sum = weights.reduce((a, b) => a + b, 0)
    const scale = options.reduction === 'sum' ? 1 : 1 / Math.max(sum, 1e-9)
    return logprobs.map((logprob, t) => {
      const weight = scale * weights[t]!
      if (name === 'cross_entropy') return -weight
      const ratio = Math.exp(logprob - inputs.logprobs![t]!)
      const advantage = inputs.advantages![t]!
      const isIn = ratio >= config.clip_low_threshold && ratio <= config.clip_high_threshold
      const clipped = Math.min(Math.max(ratio, config.clip_low_threshold), config.clip_high_threshold)
      const isFlat = name === 'ppo' && !isIn && clipped * advantage < ratio * advantage
      return isFlat ? 0 : -weight * ratio * advantage
    })
  }
  const requests: Record<string, (body: Json, served: ServedModel) => Promise<Json>> = {
    async forward({ forward_input }, served) {
      const { datums } = read(forward_input)
      const logprobs = await logprobsOf(served, datums)
      return {
        loss_fn_output_type: 'x',
        loss_fn_outputs: logprobs.map((data) => ({ logprobs: { data, dtype: 'float32', shape: [data.length] } })),
        metrics: {},
      }
    },
    async forward_backward({ forward_backward_input }, served) {
      const { name, config, datums } = read(forward_backward_input)
      if (datums.length > options.datums) throw new Error(`${datums.length} datums`)
      const logprobs = await logprobsOf(served, datums)
      datums.forEach((datum, i) => {
        served.gathered.push({ datum, derivatives: derive(name, config, datum, logprobs[i]!) })
      })
      return {
        loss_fn_output_type: 'x',
        loss_fn_outputs: logprobs.map((data) => ({ logprobs: { data, dtype: 'float32', shape: [data.length] } })),
        metrics: {},
      }
    },
    async optim_step({ adam_params: adam }, { backend, gathered }) {
      const { batch, offsets, token } = batchOf(gathered.map(({ datum }) => datum))
      const dLogprob = new Float32Array(token.length)
      const count = options.reduction === 'sum' ? 1 : gathered.length
      gathered.forEach(({ derivatives }, i) => {
        dLogprob.set(
          derivatives.map((value) => value / count),
          offsets[i]! + 1,
        )
      })
      gathered.length = 0
      await backend.backward(batch, { dLogprob, dEntropy: new Float32Array(token.length) }, { temperature: 1, step: 0 })
      const settings = {
        ...{ optimizer: 'adam' as const, momentum: 0, beta1: adam.beta1, beta2: adam.beta2, epsilon: adam.eps },
        weightDecay: adam.weight_decay,
      }
      const clip = options.lacks?.includes('grad_clip_norm') ? 0 : adam.grad_clip_norm
      const norm = await backend.optimStep(settings, adam.learning_rate, clip || Number.POSITIVE_INFINITY)
      return { metrics: options.tellsNorms ? { 'skyrl.ai/grad_norm': norm } : {} }
    },
    async save_weights({ model_id, path }, { backend, weights }) {
      const name = `tinker://${model_id}/weights/${path}`
      if (kept.has(name)) throw Object.assign(new Error(`${name} is there`), { status: 409 })
      const file = join(folder, path)
      await backend.saveCheckpoint(file)
      kept.set(name, { file, weights: weights.slice(), of: model_id })
      return { path: name, type: 'save_weights' }
    },
    async load_weights({ path, optimizer }, { backend, weights, next }) {
      if (next !== 2) throw new Error('a load is the first request of a model')
      const { file, weights: before } = kept.get(path) ?? {}
      if (file === undefined) throw Object.assign(new Error(`no ${path}`), { status: 404 })
      await backend.loadCheckpoint(file)
      if (!optimizer && !options.lacks?.includes('optimizer')) {
        weights.set(before!)
        await backend.start()
      }
      return { type: 'load_weights' }
    },
    async save_weights_for_sampler({ model_id, path }, { weights }) {
      // SkyRL, which publishes its schemas, omits the kind of weights.
      const name = `tinker://${model_id}${options.lacks === null ? '/sampler_weights' : ''}/${path}`
      const below = join(folder, `sampler-${path}`)
      await saveLora(below, lora, weights)
      kept.set(name, { file: below, weights: weights.slice(), of: model_id })
      return { path: name, type: 'save_weights_for_sampler' }
    },
  }
  /** Does the work of a future after the earlier ones of its model. */
  const future = (work: () => Promise<Json>, after: Promise<unknown> = Promise.resolve()): [string, Promise<Json>] => {
    const id = `future-${++names}`
    const begun = after.then(work).catch((error: Error & { category?: string }) => {
      return { error: error.message, category: error.category ?? 'user' }
    })
    futures.set(id, { work: begun, notDone: options.notDone })
    return [id, begun]
  }
  const last = new Map<string, Promise<unknown>>()

  const handle = async (path: string, body: Json): Promise<{ status?: number; json: Json }> => {
    const refuse = (status: number, detail: string) => ({ status, json: { detail } })
    switch (path) {
      case 'get_server_capabilities':
        return { json: { supported_models: [{ model_name: 'tiny' }] } }
      case 'client/config':
        return { json: { fwdbwd_max_chunk_len: options.datums } }
      case 'create_session': {
        const id = `session-${++names}`
        sessions.set(id, 0)
        return { json: { session_id: id, type: 'create_session' } }
      }
      case 'session_heartbeat': {
        const beats = sessions.get(body.session_id)
        if (beats === undefined) return refuse(404, 'Session not found')
        sessions.set(body.session_id, beats + 1)
        return { json: { type: 'session_heartbeat' } }
      }
      case 'create_model': {
        const { base_model, lora_config } = body
        const work = async () => {
          if (base_model !== 'tiny') throw new Error(`no model ${base_model}`)
          if (models.size >= options.slots)
            throw new Error(`Maximum number of LoRA adapters (${options.slots}) reached`)
          const id = `model-${++names}`
          models.set(id, makeModel(lora_config.seed))
          return { model_id: id, base_model, lora_config: { rank: lora_config.rank, alpha: lora.settings.alpha } }
        }
        return { json: { request_id: future(work)[0] } }
      }
      case 'unload_model': {
        models.delete(body.model_id)
        return { json: { request_id: future(async () => ({ type: 'unload_model' }))[0] } }
      }
      case 'retrieve_future': {
        const found = futures.get(body.request_id)
        if (found === undefined) return refuse(404, 'Future not found')
        if (found.notDone-- > 0) {
          const state = ['active', 'paused_capacity', 'paused_rate_limit'][notes++ % 3]
          return { json: { type: 'try_again', request_id: body.request_id, queue_state: state } }
        }
        return { json: await found.work }
      }
      case 'create_sampling_session': {
        const found = kept.get(body.model_path)
        if (!sessions.has(body.session_id) || found === undefined) return refuse(404, 'no such session or checkpoint')
        const id = `sampling-${++names}`
        const logprobsBy = (weights: Float32Array) =>
          transformerLogprobs({ model, weights: base as Float32Array, adapter: { lora, weights } })
        const own = logprobsBy(found.weights)
        samplers.set(id, () => {
          const served = models.get(found.of)
          if (!options.samplesByLearner || served === undefined) return own
          if (served.loaded !== body.model_path) served.weights.set(found.weights)
          served.loaded = body.model_path
          return logprobsBy(served.weights.slice())
        })
        return { json: { sampling_session_id: id } }
      }
      case 'asample': {
        const sampler = samplers.get(body.sampling_session_id)
        if (sampler === undefined) return refuse(404, 'Sampling session not found')
        return { json: { request_id: future(() => sample(sampler(), body))[0] } }
      }
    }
    const served = models.get(body.model_id)
    const request = requests[path]
    if (request === undefined) return refuse(404, 'Not Found')
    if (served === undefined) return refuse(404, 'Model not found')
    const text = JSON.stringify(body)
    const before = served.requests.get(body.seq_id)
    if (before !== undefined)
      return before.text === text ? { json: { request_id: before.id } } : refuse(409, 'another body')
    if (body.seq_id !== served.next) return refuse(400, `seq_id ${body.seq_id}, expected ${served.next}`)
    served.next++
    const [id, work] = future(() => request(body, served), last.get(body.model_id))
    last.set(body.model_id, work)
    served.requests.set(body.seq_id, { text, id })
    return { json: { request_id: id } }
  }
  const sample = async (logprobs: ReturnType<typeof transformerLogprobs>, body: Json) => {
    const { max_tokens, temperature, seed, stop } = body.sampling_params
    const ids: number[] = body.prompt.chunks.flatMap(({ tokens }: Json) => tokens)
    const [tokens, chosen]: [number[], number[]] = [[], []]
    const random = new Random(seed)
    let reason = 'length'
    while (tokens.length < max_tokens && reason === 'length') {
      const next = Array.from(await logprobs.nextLogprobs!([...ids, ...tokens]))
      random.draw(1, 0, 0, tokens.length)
      const token = temperature === 0 ? next.indexOf(Math.max(...next)) : draw(next, random.uniform(0), temperature)
      tokens.push(token)
      chosen.push(next[token]!)
      if (stop.includes(token)) reason = 'stop'
    }
    return { sequences: [{ tokens, logprobs: chosen, stop_reason: reason }] }
  }

  const http = createServer((request, response) => void serve(request, response))
  async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const bytes = Buffer.concat(chunks)
    const isProtobuf = request.headers['content-type'] === PROTOBUF
    const { path, body } = isProtobuf
      ? readPassRequest(bytes)
      : { path: request.url!.replace('/api/v1/', ''), body: bytes.length === 0 ? null : JSON.parse(bytes.toString()) }
    asked.push({ path, body })
    if (!options.takesJson && !isProtobuf && (path === 'forward' || path === 'forward_backward')) {
      response.writeHead(415)
      return void response.end('{"detail": "passes are protobuf"}')
    }
    const told = options.answer(path, body)
    if (told === null) return void request.socket.destroy()
    const send = (status: number, json: Json, raw?: string) => {
      response.writeHead(status, { 'content-type': 'application/json' })
      response.end(raw ?? JSON.stringify(json))
    }
    if (told !== undefined) return send(told.status ?? 200, told.json, told.text)
    if (options.apiKey !== '' && request.headers['x-api-key'] !== options.apiKey) return send(401, { detail: 'key' })
    if (path === '/openapi.json') {
      return options.lacks === null ? send(404, {}) : send(200, schemasWithout(options.lacks))
    }
    const archive = /^training_runs\/(.*)\/checkpoints\/(.*)\/archive$/.exec(path)
    if (archive !== null) {
      const found = kept.get(`tinker://${archive[1]}/${archive[2]}`)
      if (found === undefined) return send(404, { detail: 'no such checkpoint' })
      response.writeHead(302, { location: `/files/${archive[2]!.split('/').at(-1)}` })
      return void response.end()
    }
    if (path.startsWith('/files/')) {
      const below = join(folder, `sampler-${path.slice('/files/'.length)}`)
      const { stdout } = await run('tar', ['-czf', '-', '-C', below, '.'], { encoding: 'buffer', maxBuffer: 2 ** 26 })
      response.writeHead(200)
      return void response.end(stdout)
    }
    const { status = 200, json } = await handle(path, body)
    const encoded = request.headers.accept === PROTOBUF && status === 200 ? encodeAnswer(json) : null
    if (encoded === null) return send(status, json)
    response.writeHead(200, { 'content-type': PROTOBUF })
    response.end(encoded)
  }
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  atEnd(() => http.close())
  const url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
  return { url, asked, sessions, models, kept, tokenizer, futures }
}

/** The token at which the cumulative probability exceeds `part`. */
function draw(logprobs: readonly number[], part: number, temperature: number): number {
  const weights = logprobs.map((logprob) => Math.exp(logprob / temperature))
  let left = part * weights.reduce((a, b) => a + b, 0)
  const at = weights.findIndex((weight) => {
    left -= weight
    return left < 0
  })
  return at < 0 ? weights.length - 1 : at
}

/** Schemas as a server on FastAPI publishes them. */
function schemasWithout(lacks: readonly string[]) {
  const of = (...names: string[]) => ({
    properties: Object.fromEntries(names.filter((name) => !lacks.includes(name)).map((name) => [name, {}])),
  })
  const losses = ['cross_entropy', 'importance_sampling', 'ppo'].filter((name) => !lacks.includes(name))
  return {
    components: {
      schemas: {
        ForwardBackwardInput: { properties: { data: {}, loss_fn: { enum: losses } } },
        AdamParams: of('learning_rate', 'grad_clip_norm'),
        ForwardBackwardRequest: of('model_id', 'seq_id'),
        OptimStepRequest: of('model_id', 'seq_id'),
        LoadWeightsRequest: of('path', 'optimizer'),
      },
    },
  }
}
