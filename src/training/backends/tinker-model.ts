/** A model on a Tinker service. Numbered requests, each sent once the last was accepted, run in order and once. */
import { randomUUID } from 'node:crypto'
import { InputError, show } from '../../base/errors.ts'
import type { TinkerClient } from '../../engines/tinker/tinker-client.ts'

export interface TinkerModelOptions {
  readonly baseModel: string
  readonly rank: number
  readonly alpha: number
  readonly trainsAttention: boolean
  readonly trainsPerceptron: boolean
  readonly seed: number
}

/** A service's path: a model, the kind of weights (SkyRL omits it for sampling weights), and their name. */
const PATH = /^tinker:\/\/[\w:-]+(\/[\w-]+){1,2}$/

/** The number of models that each client has made, which number them in its session. */
const made = new WeakMap<TinkerClient, number>()

/** Seconds after which a service may delete saved sampling weights. */
const SAMPLER_SECONDS = 86_400

export type TinkerAnswer = Record<string, unknown>

export class TinkerModel {
  readonly id: string
  readonly #client: TinkerClient
  readonly #isRepeatable: boolean
  #number = 0
  /** Settles when the service has accepted the last request; rejects permanently if it refused one. */
  #sent: Promise<unknown> = Promise.resolve()

  private constructor(client: TinkerClient, id: string, isRepeatable: boolean) {
    this.#client = client
    this.id = id
    this.#isRepeatable = isRepeatable
  }

  /** @throws InputError if the service makes another adapter, and AnswerError if it makes none. */
  static async create(client: TinkerClient, options: TinkerModelOptions): Promise<TinkerModel> {
    const { baseModel, rank, alpha, trainsAttention, trainsPerceptron, seed } = options
    const { models, numbersRequests } = await client.service()
    const subject = `service ${client.url}`
    if (!models.includes(baseModel)) {
      throw new InputError(`${subject}, base model`, show(baseModel), `one that it has: ${models.join(', ')}`)
    }
    const number = made.get(client) ?? 0
    made.set(client, number + 1)
    const body = {
      session_id: await client.session(),
      model_seq_id: number,
      base_model: baseModel,
      lora_config: {
        ...{ rank, seed, train_unembed: false },
        ...{ train_mlp: trainsPerceptron, train_attn: trainsAttention },
      },
      type: 'create_model',
    }
    const answer = await client.run('create_model', body, numbersRequests)
    const { model_id: id, lora_config: config } = answer as {
      model_id?: unknown
      lora_config?: { rank?: unknown; alpha?: unknown }
    }
    if (typeof id !== 'string') throw new InputError(subject, `model_id ${show(id)}`, 'the name of the model it made')
    const model = new TinkerModel(client, id, numbersRequests)
    const { rank: madeRank = rank, alpha: madeAlpha = alpha } = config ?? {}
    if (madeRank === rank && madeAlpha === alpha) return model
    await model.unload()
    const got = `an adapter of rank ${show(madeRank)}, alpha ${show(madeAlpha)}`
    const expected = `rank ${rank}, alpha ${alpha}, as the policy has (languageModel.loraRank, loraAlpha)`
    throw new InputError(subject, got, expected)
  }

  /** Sends a request with the next number, and awaits its result. */
  run(path: string, body: object): Promise<TinkerAnswer> {
    const seq = ++this.#number
    const whole = { ...body, model_id: this.id, seq_id: seq }
    const sent = this.#sent.then(() => this.#client.submit(path, whole, this.#isRepeatable))
    this.#sent = sent
    return sent.then((wait) => wait())
  }

  /** Saves weights and optimizer under a unique name that begins with `about`. Returns the service's path. */
  async save(about: string): Promise<string> {
    const body = { path: nameOf(about), type: 'save_weights' }
    return this.#pathOf('save_weights', await this.run('save_weights', body))
  }

  /** Loads saved state. Must be a model's first request. */
  async load(path: string, hasOptimizer: boolean): Promise<void> {
    await this.run('load_weights', { path, optimizer: hasOptimizer, type: 'load_weights' })
  }

  /** Saves weights for sampling, for a day, in the same way. */
  async saveForSampler(about: string): Promise<string> {
    const body = { path: nameOf(about), ttl_seconds: SAMPLER_SECONDS, type: 'save_weights_for_sampler' }
    return this.#pathOf('save_weights_for_sampler', await this.run('save_weights_for_sampler', body))
  }

  /** Downloads an archive of saved sampling weights. */
  async download(path: string): Promise<Uint8Array> {
    const [id, ...names] = path.slice('tinker://'.length).split('/')
    return this.#client.download(`training_runs/${id}/checkpoints/${names.join('/')}/archive`)
  }

  /** Frees the adapter's place. If the request fails, the end of the session frees it. */
  async unload(): Promise<void> {
    await this.#client.run('unload_model', { model_id: this.id, type: 'unload_model' }, true).catch(() => {})
  }

  #pathOf(request: string, { path }: TinkerAnswer): string {
    if (typeof path === 'string' && PATH.test(path)) return path
    const expected = 'one like tinker://model/weights/name'
    throw new InputError(`service ${this.#client.url}, ${request}`, `path ${show(path)}`, expected)
  }
}

/** The gradient norm in an optimizer step's metrics, under any prefix; null without one. */
export function normOf(metrics: unknown): number | null {
  const told = Object.entries((metrics ?? {}) as Record<string, unknown>)
  const [, norm] = told.find(([key]) => /(^|\/)grad_norm(:|$)/.test(key)) ?? []
  return typeof norm === 'number' ? norm : null
}

/** A new name, of characters that services accept. */
function nameOf(about: string): string {
  return `${about.replaceAll(/[^\w-]+/g, '-').slice(0, 60)}-${randomUUID().slice(0, 8)}`
}
