/**
 * A training service of Tinker's protocol: sessions train and sample adapters of one base model. The requests of a model run in the
 * order of their numbers. A repeated request runs once.
 */
import { randomInt, randomUUID } from 'node:crypto'
import { resolve } from 'node:path'
import { show } from '../../base/errors.ts'
import { type Body, HttpDocument, RequestError, type Route, type RouteRequest } from '../../base/http/server.ts'
import { VERSION } from '../../base/version.ts'
import { encodeAnswer, type PassInput, PROTOBUF, readPassRequest } from '../../engines/tinker/tinker-codec.ts'
import { badField, booleanField, integerField, objectField, textField } from '../serving/fields.ts'
import { ADAPTER_ALPHA, AdapterHost, type AdapterShape, type AdapterState } from './adapter-host.ts'
import { KNOWN_REQUESTS, type KnownRequest, once } from './known-requests.ts'
import { type KeptAdapter, TinkerCheckpoints } from './tinker-checkpoints.ts'
import { checkInputs, MAX_DATUMS, readDatums } from './tinker-datums.ts'
import { type FutureAnswer, TinkerFutures } from './tinker-futures.ts'
import { type DatumLoss, findTinkerLoss } from './tinker-losses.ts'
import { type NewSampler, TinkerSamplers } from './tinker-samplers.ts'
import { sampled } from './tinker-sampling.ts'

/** The model of a service, and its sizes. */
export interface TinkerServiceOptions {
  /** The base model: a folder with config.json, weights and tokenizer, or an id of the Hugging Face hub. */
  readonly model: string
  /** Its name for clients; default `model`. */
  readonly name?: string
  /** Folder of saved weights; default `tinker`. */
  readonly folder?: string
  /** Maximum tokens of a sequence; default and maximum: the model's. */
  readonly context?: number
  /** Answers to sample at the same time; default 8. */
  readonly slots?: number
}

/** Maximum samples per request. */
const MAX_SAMPLES = 1024
/** A session ends after this many milliseconds without a heartbeat. Clients send one every 10 s. */
const SESSION_MS = 600_000

interface Session {
  lastBeat: number
  /** Requests for new models, by model_seq_id. */
  readonly known: Map<number, KnownRequest>
}

interface TrainedModel {
  readonly id: string
  readonly sessionId: string
  readonly host: AdapterHost
  readonly shape: AdapterShape
  state: AdapterState
  /** Number of the next request to run. */
  next: number
  /** The requests that arrived before a lower number, by number. */
  readonly early: Map<number, { begin(): void; fail(reason: RequestError): void }>
  readonly known: Map<number, KnownRequest>
  last: Promise<unknown>
}

/** The service behind the routes. */
export class TinkerService {
  readonly name: string
  readonly notes: readonly string[]
  readonly #model: string
  readonly #options: { readonly context?: number; readonly slots: number }
  readonly #hosts = new Map<string, Promise<AdapterHost>>()
  readonly #checkpoints: TinkerCheckpoints
  readonly #futures = new TinkerFutures()
  readonly #sessions = new Map<string, Session>()
  readonly #models = new Map<string, TrainedModel>()
  readonly #samplers: TinkerSamplers
  readonly #first: AdapterHost
  readonly #sweep: NodeJS.Timeout

  static async open({ model, context, slots = 8, ...options }: TinkerServiceOptions): Promise<TinkerService> {
    const sizes = { slots, ...(context === undefined ? {} : { context }) }
    // Samples the base model, with an adapter of zeros.
    const first = await AdapterHost.open(model, { rank: 1, attention: true, perceptron: false }, sizes)
    return new TinkerService({ model, ...options }, sizes, first)
  }

  private constructor(
    { model, name = model, folder = 'tinker' }: TinkerServiceOptions,
    sizes: { readonly context?: number; readonly slots: number },
    first: AdapterHost,
  ) {
    this.#model = model
    this.name = name
    this.notes = first.notes
    this.#options = sizes
    this.#first = first
    this.#checkpoints = new TinkerCheckpoints(folder)
    this.#samplers = new TinkerSamplers(this.#checkpoints, first.base)
    this.#sweep = setInterval(() => this.#endSessions(), SESSION_MS / 10).unref()
  }

  /** Ends sessions and their work. */
  close(): void {
    clearInterval(this.#sweep)
    for (const id of [...this.#sessions.keys()]) this.#endSession(id)
    this.#futures.close()
    this.#first.close()
    for (const host of this.#hosts.values()) host.then((each) => each.close()).catch(() => {}) // Its future reports the error.
  }

  routes(): Map<string, Route> {
    const routes = new Map<string, Route>()
    const add = (key: string, answer: Route, reads: Route['reads'] = undefined): void => {
      const [method, path] = key.split(' ') as [string, string]
      const own: Route = Object.assign((request: RouteRequest) => answer(request), {
        errorBody: ({ message }: RequestError) => ({ detail: message }),
        ...(reads === undefined ? {} : { reads }),
      })
      routes.set(`${method} /api/v1/${path}`, own)
    }
    add('GET healthz', () => ({ status: 'ok' }))
    add('GET get_server_capabilities', () => ({
      supported_models: [
        { model_name: this.name, max_context_length: this.#first.context, trainable: true, sampleable: true },
      ],
    }))
    add('POST client/config', () => ({
      ...{ fwdbwd_max_chunk_len: MAX_DATUMS, fwdbwd_max_chunk_bytes_count: 5_000_000 },
      proto_compress_fwdbwd: false, // Node has zstd only since 22.15, so bodies are not compressed.
    }))
    add('POST client/dynamic_config', () => ({ sample_cancel_enabled: true }))
    add('POST telemetry', () => ({ status: 'accepted' }))
    add('POST create_session', () => this.#createSession())
    add('POST session_heartbeat', ({ body }) => {
      this.#session(body)
      return { type: 'session_heartbeat' }
    })
    add('POST sessions/:id/finish', ({ params }) => {
      this.#endSession(params.id!)
      return {}
    })
    add('POST create_model', ({ body }) => this.#createModel(body))
    add('POST get_info', ({ body }) => this.#info(this.#modelOf(body)))
    add('POST unload_model', ({ body }) => {
      const { id } = this.#modelOf(body)
      this.#removeModel(id)
      return { request_id: this.#futures.add(async () => ({ model_id: id, type: 'unload_model' })), model_id: id }
    })
    const readPass = { [PROTOBUF]: (bytes: Uint8Array) => readPassRequest(bytes).body as Body }
    const pass: Route = ({ body }) => this.#pass(body)
    add('POST forward_backward', pass, readPass)
    add('POST forward', pass)
    add('POST optim_step', ({ body }) => this.#inOrder(body, (model) => this.#step(model, body)))
    add('POST save_weights', ({ body }) => this.#inOrder(body, (model) => this.#save(model, body)))
    add('POST save_weights_for_sampler', ({ body }) =>
      this.#inOrder(body, (model) => this.#saveForSampler(model, body)),
    )
    add('POST load_weights', ({ body }) => this.#load(body))
    add('POST weights_info', async ({ body }) => {
      const shape = await this.#checkpoints.shapeOf(await this.#checkpoints.find(body.tinker_path ?? body.path))
      return { base_model: this.name, is_lora: true, lora_rank: shape.rank, ...trainsOf(shape) }
    })
    add('GET training_runs/:id/checkpoints', async ({ params }) => ({
      checkpoints: await this.#checkpoints.list(params.id!),
    }))
    add('GET training_runs/:id/checkpoints/:kind/:name/archive', async ({ params: { id, kind, name } }) => {
      const kept = await this.#checkpoints.find(`tinker://${id}/${kind}/${name}`)
      return new HttpDocument('application/gzip', await this.#checkpoints.archive(kept))
    })
    add('POST create_sampling_session', ({ body }) => this.#createSampler(body))
    add('POST join_sampling_session', ({ body }) => ({
      ...{ type: 'join_sampling_session', client_counter: ++this.#samplers.of(body.sampling_session_id).clients },
    }))
    add('GET samplers/:id', ({ params }) => {
      const { id, path } = this.#samplers.of(params.id)
      return { sampler_id: id, base_model: this.name, model_path: path }
    })
    add('POST asample', ({ body }) => this.#sample(body))
    add('POST cancel_future', ({ body }) => {
      this.#futures.cancel(body.request_id)
      return {}
    })
    add('POST retrieve_future', async ({ body, headers, signal }) => {
      const answer = await this.#futures.retrieve(body.request_id, signal)
      const encoded = headers.accept?.includes(PROTOBUF) ? encodeAnswer(answer) : null
      return encoded === null ? answer : new HttpDocument(PROTOBUF, encoded)
    })
    return routes
  }

  #createSession(): object {
    const id = randomUUID()
    this.#sessions.set(id, { lastBeat: performance.now(), known: new Map() })
    return {
      ...{ session_id: id, type: 'create_session', info_message: `Colonnade ${VERSION}, ${this.name} on this machine` },
      warning_message: 'adapters leave the unembedding out: train_unembed counts as false',
    }
  }

  #session({ session_id: id }: Body): string {
    const session = typeof id === 'string' ? this.#sessions.get(id) : undefined
    if (session === undefined) throw new RequestError(404, `session_id: got ${show(id)}, expected one of this service`)
    session.lastBeat = performance.now()
    return id as string
  }

  #endSessions(): void {
    for (const [id, { lastBeat }] of this.#sessions) {
      if (performance.now() - lastBeat > SESSION_MS) this.#endSession(id)
    }
  }

  /** Removes a session with its models and samplers. Saved weights stay. */
  #endSession(id: string): void {
    this.#sessions.delete(id)
    for (const [key, { sessionId }] of this.#models) if (sessionId === id) this.#removeModel(key)
    this.#samplers.endSession(id)
  }

  /** Removes a model. Requests that wait for a lower number fail; those before finish. */
  #removeModel(id: string): void {
    const { early } = this.#models.get(id)!
    this.#models.delete(id)
    for (const { fail } of early.values()) fail(new RequestError(404, `model_id: ${show(id)} was unloaded`))
    early.clear()
  }

  #host(shape: AdapterShape): Promise<AdapterHost> {
    const key = JSON.stringify(shape)
    let host = this.#hosts.get(key)
    if (host === undefined) {
      host = AdapterHost.open(this.#model, shape, this.#options)
      host.catch(() => this.#hosts.delete(key))
      this.#hosts.set(key, host)
    }
    return host
  }

  #checkBase(base: unknown): void {
    if (base === this.name || base === this.#model || base === resolve(this.#model)) return
    throw new RequestError(400, `base_model: got ${show(base)}, expected ${show(this.name)}, which this service has`)
  }

  #createModel(body: Body): object {
    const sessionId = this.#session(body)
    this.#checkBase(body.base_model)
    const config = objectField(body, 'lora_config')
    const optimizer = (body.optimizer_config as { type?: unknown } | undefined)?.type ?? 'adamw'
    if (optimizer !== 'adamw') throw badField('optimizer_config.type', optimizer, '"adamw"')
    const shape = {
      rank: integerField(config, 'rank', 32, 1),
      attention: booleanField(config, 'train_attn', true),
      perceptron: booleanField(config, 'train_mlp', true),
    }
    if (!shape.attention && !shape.perceptron) {
      throw new RequestError(400, 'lora_config: got train_attn and train_mlp false, expected one of them')
    }
    const seed = integerField(config, 'seed', randomInt(2 ** 31), 0)
    return this.#newModel(sessionId, body, async (id) => {
      const host = await this.#host(shape)
      this.#addModel({ id, sessionId, host, shape, state: host.create(seed) })
      const made = { rank: shape.rank, alpha: ADAPTER_ALPHA, seed, ...trainsOf(shape) }
      return { model_id: id, type: 'create_model', base_model: this.name, lora_config: made }
    })
  }

  /** Returns the future of a new model, the same one if the request is repeated. */
  #newModel(sessionId: string, body: Body, make: (id: string) => Promise<FutureAnswer>): object {
    const number = integerField(body, 'model_seq_id', 0, 0)
    const model_id = `${sessionId}:train:${number}`
    const { known } = this.#sessions.get(sessionId)!
    const answer = () => ({ request_id: this.#futures.add(() => make(model_id)), model_id })
    return once(known, 'model_seq_id', number, body, answer)
  }

  #addModel(model: Pick<TrainedModel, 'id' | 'sessionId' | 'host' | 'shape' | 'state'>): void {
    this.#session({ session_id: model.sessionId }) // It may have ended while the model was opened.
    if (this.#models.has(model.id)) throw new RequestError(409, `${model.id} exists already`)
    const order = { next: 1, early: new Map(), known: new Map(), last: Promise.resolve() }
    this.#models.set(model.id, { ...model, ...order })
  }

  #modelOf({ model_id: id }: Body): TrainedModel {
    const model = typeof id === 'string' ? this.#models.get(id) : undefined
    if (model !== undefined) return model
    throw new RequestError(404, `model_id: got ${show(id)}, expected a model of an open session`)
  }

  #info({ id, shape }: TrainedModel): object {
    return {
      ...{ type: 'get_info', model_id: id, model_name: this.name, is_lora: true, lora_rank: shape.rank },
      model_data: { model_name: this.name, arch: 'transformer', tokenizer_id: this.#model },
    }
  }

  /** Returns the future of a model's request, which runs after the requests with lower numbers. */
  #inOrder(body: Body, work: (model: TrainedModel) => Promise<FutureAnswer>): object {
    const model = this.#modelOf(body)
    const seq = integerField(body, 'seq_id', model.next + model.early.size, 1)
    return once(model.known, 'seq_id', seq, body, () => {
      const { next } = model
      if (seq < next) throw new RequestError(409, `seq_id: got ${seq}, expected at least ${next}`)
      if (seq >= next + KNOWN_REQUESTS)
        throw badField('seq_id', seq, `less than ${next + KNOWN_REQUESTS}: ${next} is next`)
      let begin = (): void => {}
      let fail = (_: RequestError): void => {}
      const turn = new Promise<void>((settle, refuse) => {
        begin = settle
        fail = refuse
      })
      const done = turn.then(() => work(model))
      const request_id = this.#futures.add(() => done)
      const queue = () => {
        model.last = model.last.then(() => {
          begin()
          return done.catch(() => {}) // The future reports it.
        })
      }
      model.early.set(seq, { begin: queue, fail })
      for (let first = model.early.get(model.next); first !== undefined; first = model.early.get(model.next)) {
        model.early.delete(model.next++)
        first.begin()
      }
      return { request_id, model_id: model.id }
    })
  }

  #pass(body: Body): object {
    const isForward = body.forward_input !== undefined
    const input = (isForward ? body.forward_input : body.forward_backward_input) as PassInput | undefined
    return this.#inOrder(body, async ({ host, state }) => {
      const datums = readDatums(input, host.context)
      const name = String(input!.loss_fn)
      const { loss, config } = findTinkerLoss(name, input!.loss_fn_config)
      for (const [index, datum] of datums.entries()) checkInputs(index, name, loss, datum)
      const losses: DatumLoss[] = []
      const lossOf = (index: number, logprob: Float32Array): DatumLoss => {
        const written = { elementwise: new Float32Array(logprob.length), dLogprob: new Float32Array(logprob.length) }
        loss.of(logprob, datums[index]!.inputs, config, written)
        losses[index] = written
        return written
      }
      const logprobs = await host.pass(state, datums, isForward ? null : lossOf)
      if (isForward) for (const [index, logprob] of logprobs.entries()) lossOf(index, logprob)
      let sum = 0
      for (const { elementwise } of losses) for (const each of elementwise) sum += each
      const tensor = (data: Float32Array, index: number) => {
        return { data: Array.from(data), dtype: 'float32', shape: datums[index]!.shape }
      }
      return {
        loss_fn_output_type: 'ArrayRecord',
        loss_fn_outputs: logprobs.map((logprob, index) => ({
          ...{ logprobs: tensor(logprob, index), elementwise_loss: tensor(losses[index]!.elementwise, index) },
        })),
        metrics: { 'loss:sum': sum },
      }
    })
  }

  async #step({ host, state }: TrainedModel, body: Body): Promise<FutureAnswer> {
    if (body.optimizer_params !== undefined) throw badField('optimizer_params', body.optimizer_params, 'adam_params')
    const adam = objectField(body, 'adam_params')
    const read = (name: string, initial: number, isRight: (value: number) => boolean, expected: string): number => {
      const value = adam[name] ?? initial
      if (typeof value === 'number' && isRight(value)) return value
      throw badField(`adam_params.${name}`, value, expected)
    }
    const isBeta = (value: number) => value >= 0 && value < 1
    const isSize = (value: number) => value >= 0 && value < Number.POSITIVE_INFINITY
    const clip = read('grad_clip_norm', 0, Number.isFinite, 'a number; 0: no clipping')
    const norm = await host.step(state, {
      learningRate: read('learning_rate', 1e-4, isSize, 'a number ≥ 0'),
      beta1: read('beta1', 0.9, isBeta, 'a number from 0 to below 1'),
      beta2: read('beta2', 0.95, isBeta, 'a number from 0 to below 1'),
      epsilon: read('eps', 1e-12, isSize, 'a number ≥ 0'),
      weightDecay: read('weight_decay', 0, isSize, 'a number ≥ 0'),
      maxNorm: clip > 0 ? clip : Number.POSITIVE_INFINITY,
    })
    return { metrics: { grad_norm: norm }, type: 'optim_step' }
  }

  async #save({ id, host, state }: TrainedModel, body: Body): Promise<FutureAnswer> {
    const kept = this.#checkpoints.place(id, 'weights', body.path ?? randomUUID())
    if (!booleanField(body, 'overwrite', false) && (await this.#checkpoints.has(kept))) {
      throw new RequestError(409, `path: got ${show(body.path)}, which exists, expected another name or overwrite`)
    }
    await host.save(kept.folder, state, true, this.name)
    return { path: kept.path, type: 'save_weights' }
  }

  async #saveForSampler(model: TrainedModel, body: Body): Promise<FutureAnswer> {
    const { id, host, state, sessionId } = model
    const number = integerField(body, 'sampling_session_seq_id', null, 0)
    if (number !== null) {
      const sampler = {
        id: `${sessionId}:sample:${number}`,
        host,
        weights: Promise.resolve(state.weights.slice()),
        path: null,
      }
      this.#addSampler(sessionId, sampler)
      return { sampling_session_id: sampler.id, path: null, type: 'save_weights_for_sampler' }
    }
    const kept = this.#checkpoints.place(id, 'sampler_weights', body.path ?? randomUUID())
    await host.save(kept.folder, state, false, this.name)
    return { path: kept.path, type: 'save_weights_for_sampler' }
  }

  /** Loads saved weights into a model, or into a new one. */
  #load(body: Body): object {
    // The path is checked in the future: a request that is refused at once would leave a gap in the model's numbers.
    const find = async () => {
      const kept = await this.#checkpoints.find(body.path)
      const hasOptimizer = booleanField(body, 'optimizer', false)
      if (!hasOptimizer || kept.kind === 'weights') return { kept, hasOptimizer }
      throw badField('optimizer', true, 'false: sampler weights have no optimizer')
    }
    const answer = (path: string, model_id: string) => ({ path, model_id, type: 'load_weights' })
    if (body.model_id !== undefined && body.model_id !== null) {
      return this.#inOrder(body, async (model) => {
        const { kept, hasOptimizer } = await find()
        model.state = await model.host.load(kept.folder, hasOptimizer)
        return answer(kept.path, model.id)
      })
    }
    const sessionId = this.#session(body)
    if (body.base_model !== undefined) this.#checkBase(body.base_model)
    return this.#newModel(sessionId, body, async (id) => {
      const { kept, hasOptimizer } = await find()
      const shape = await this.#checkpoints.shapeOf(kept)
      const host = await this.#host(shape)
      this.#addModel({ id, sessionId, host, shape, state: await host.load(kept.folder, hasOptimizer) })
      return answer(kept.path, id)
    })
  }

  async #createSampler(body: Body): Promise<object> {
    const sessionId = this.#session(body)
    const number = integerField(body, 'sampling_session_seq_id', 0, 0)
    const sampler = await this.#openSampler(`${sessionId}:sample:${number}`, body)
    this.#addSampler(sessionId, sampler)
    return { sampling_session_id: sampler.id, type: 'create_sampling_session' }
  }

  #addSampler(sessionId: string, sampler: NewSampler): void {
    this.#session({ session_id: sessionId }) // It may have ended meanwhile.
    this.#samplers.add(sampler)
  }

  async #openSampler(id: string, body: Body): Promise<NewSampler> {
    const path = textField(body, 'model_path', null)
    if (path === null) {
      this.#checkBase(body.base_model)
      return { id, host: this.#first, weights: this.#samplers.base, path }
    }
    const kept: KeptAdapter = await this.#checkpoints.find(path)
    const host = await this.#host(await this.#checkpoints.shapeOf(kept))
    const { weights } = await host.load(kept.folder, false)
    return { id, host, weights: Promise.resolve(weights), path }
  }

  async #sample(body: Body): Promise<object> {
    for (const name of ['target_prompt_logprobs', 'prompt_alt_tokens_k']) {
      if ((body[name] ?? 0) !== 0) throw badField(name, body[name], 'none: this service does not compute them')
    }
    const isOwn = body.sampling_session_id !== undefined && body.sampling_session_id !== null
    const sampler = isOwn
      ? this.#samplers.of(body.sampling_session_id)
      : { ...(await this.#openSampler(randomUUID(), body)), known: new Map<number, KnownRequest>() }
    const count = integerField(body, 'num_samples', 1, 1, MAX_SAMPLES)
    const { host } = sampler
    return once(sampler.known, 'seq_id', integerField(body, 'seq_id', -1, 0), body, () => ({
      request_id: this.#futures.add(async (signal) =>
        sampled({ host, weights: await this.#samplers.weightsOf(sampler) }, body, count, signal),
      ),
      sample_sequence_ids: Array.from({ length: count }, (_, i) => `${sampler.id}:${body.seq_id ?? 0}:${i}`),
    }))
  }
}

function trainsOf({ attention, perceptron }: AdapterShape): object {
  return { train_attn: attention, train_mlp: perceptron, train_unembed: false }
}
