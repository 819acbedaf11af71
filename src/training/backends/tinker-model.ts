/**
 * A model of a service of Tinker's protocol. Its requests have the numbers 1, 2, 3 … and are sent one after another, each when
 * the service has the one before; so a service does them in their order, and one that is sent again is done once.
 */
import { randomUUID } from 'node:crypto'
import { InputError, show } from '../../base/errors.ts'
import type { TinkerClient } from '../../engines/tinker/tinker-client.ts'

/** What a model is made of. */
export interface TinkerModelOptions {
  readonly baseModel: string
  readonly rank: number
  readonly alpha: number
  readonly trainsAttention: boolean
  readonly trainsPerceptron: boolean
  readonly seed: number
}

/** A service's path: a model, what kind of weights (SkyRL leaves that out of those for who samples), and their name. */
const PATH = /^tinker:\/\/[\w-]+(\/[\w-]+){1,2}$/

/** How many models each client has made: their numbers in its session. */
const made = new WeakMap<TinkerClient, number>()

/** Seconds after which a service may forget weights that were kept for who samples. */
const SAMPLER_SECONDS = 86_400

/** The answer of a request. */
export type TinkerAnswer = Record<string, unknown>

export class TinkerModel {
  readonly id: string
  readonly #client: TinkerClient
  readonly #isRepeatable: boolean
  #number = 0
  /** Settles when the service has the last request; rejects for good when it did not take one. */
  #sent: Promise<unknown> = Promise.resolve()

  private constructor(client: TinkerClient, id: string, isRepeatable: boolean) {
    this.#client = client
    this.id = id
    this.#isRepeatable = isRepeatable
  }

  /** @throws InputError where the service makes another adapter, and AnswerError where it makes none. */
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

  /** Posts a request for a future under the next number, and waits until it is done. */
  run(path: string, body: object): Promise<TinkerAnswer> {
    const seq = ++this.#number
    const whole = { ...body, model_id: this.id, seq_id: seq }
    const sent = this.#sent.then(() => this.#client.submit(path, whole, this.#isRepeatable))
    this.#sent = sent
    return sent.then((wait) => wait())
  }

  /** Keeps weights and optimizer under a name of its own that begins with `about`; returns the service's path to them. */
  async save(about: string): Promise<string> {
    const body = { path: nameOf(about), type: 'save_weights' }
    return this.#pathOf('save_weights', await this.run('save_weights', body))
  }

  /** Takes up what is kept under a path. A model's first request. */
  async load(path: string, hasOptimizer: boolean): Promise<void> {
    await this.run('load_weights', { path, optimizer: hasOptimizer, type: 'load_weights' })
  }

  /** Keeps weights for who samples, for a day, likewise. */
  async saveForSampler(about: string): Promise<string> {
    const body = { path: nameOf(about), ttl_seconds: SAMPLER_SECONDS, type: 'save_weights_for_sampler' }
    return this.#pathOf('save_weights_for_sampler', await this.run('save_weights_for_sampler', body))
  }

  /** The bytes of an archive of weights that were kept for who samples. */
  async download(path: string): Promise<Uint8Array> {
    const [id, ...names] = path.slice('tinker://'.length).split('/')
    return this.#client.download(`training_runs/${id}/checkpoints/${names.join('/')}/archive`)
  }

  /** Gives the adapter's place back. A service that does not hear it does so when the session is over. */
  async unload(): Promise<void> {
    await this.#client.run('unload_model', { model_id: this.id, type: 'unload_model' }, true).catch(() => {})
  }

  #pathOf(request: string, { path }: TinkerAnswer): string {
    if (typeof path === 'string' && PATH.test(path)) return path
    const expected = 'one like tinker://model/weights/name'
    throw new InputError(`service ${this.#client.url}, ${request}`, `path ${show(path)}`, expected)
  }
}

/** The norm of the gradient that a service tells of an optimizer step, under whatever prefix; null where it tells none. */
export function normOf(metrics: unknown): number | null {
  const told = Object.entries((metrics ?? {}) as Record<string, unknown>)
  const [, norm] = told.find(([key]) => /(^|\/)grad_norm(:|$)/.test(key)) ?? []
  return typeof norm === 'number' ? norm : null
}

/** A name that nobody has used, of the letters that services take. */
function nameOf(about: string): string {
  return `${about.replaceAll(/[^\w-]+/g, '-').slice(0, 60)}-${randomUUID().slice(0, 8)}`
}
