/** A sampling session of a Tinker service. It samples with weights that were saved for sampling under a name. */
import { InputError, show } from '../../base/errors.ts'
import type { TinkerClient } from './tinker-client.ts'

/** Sampling parameters: temperature 0 chooses the most probable token, top-k −1 keeps all tokens. */
export interface TinkerDrawing {
  readonly max_tokens: number
  readonly temperature: number
  readonly top_k: number
  readonly top_p: number
  readonly seed: number
  /** Ids that end the answer. */
  readonly stop: readonly number[]
}

/** A checked answer. Log-probabilities are in nats, at temperature 1 over the whole vocabulary. */
export interface TinkerSample {
  readonly tokens: readonly { readonly token: number; readonly logprob: number }[]
  readonly reason: unknown
}

/** Number of sessions that each client has opened; the service numbers them. */
const opened = new WeakMap<TinkerClient, number>()

export class TinkerSession {
  readonly #client: TinkerClient
  readonly #id: string
  /** Number of requests so far. */
  #count = 0

  private constructor(client: TinkerClient, id: string) {
    this.#client = client
    this.#id = id
  }

  /** @throws AnswerError if the service has no such weights, InputError if it returns no session id. */
  static async open(client: TinkerClient, servicePath: string): Promise<TinkerSession> {
    const sessionId = await client.session()
    const number = opened.get(client) ?? 0
    opened.set(client, number + 1)
    const { sampling_session_id: id } = await client.ask('create_sampling_session', {
      session_id: sessionId,
      ...{ sampling_session_seq_id: number, model_path: servicePath, type: 'create_sampling_session' },
    })
    if (typeof id === 'string') return new TinkerSession(client, id)
    const expected = 'the name of a sampling session'
    throw new InputError(`service ${client.url}, ${servicePath}`, `session ${show(id)}`, expected)
  }

  /** Samples tokens after the given ids. @throws Error for an invalid answer. */
  async sample(
    tokens: readonly number[],
    drawing: TinkerDrawing,
    vocabularySize: number,
    signal?: AbortSignal,
  ): Promise<TinkerSample> {
    const answer = await this.#client.run(
      'asample',
      {
        num_samples: 1,
        prompt: { chunks: [{ type: 'encoded_text', tokens }] },
        sampling_params: drawing,
        ...{ sampling_session_id: this.#id, seq_id: ++this.#count, type: 'sample' },
      },
      true,
      signal,
    )
    return readSample(answer, vocabularySize)
  }
}

/** Reads and checks an answer. @throws Error with the invalid field. */
function readSample({ sequences }: Record<string, unknown>, vocabularySize: number): TinkerSample {
  const wrong = (what: string, got: unknown, expected: string) =>
    new Error(`answer, ${what}: got ${show(got)}, expected ${expected}`)
  if (!Array.isArray(sequences) || sequences.length !== 1) throw wrong('sequences', sequences, 'a list of one')
  const { tokens, logprobs, stop_reason: reason } = sequences[0] as Record<string, unknown>
  const isId = (id: unknown) => Number.isSafeInteger(id) && (id as number) >= 0 && (id as number) < vocabularySize
  if (!Array.isArray(tokens) || !tokens.every(isId)) throw wrong('tokens', tokens, `ids below ${vocabularySize}`)
  const isLogprob = (value: unknown) => typeof value === 'number' && value <= 1e-5
  if (!(Array.isArray(logprobs) && logprobs.length === tokens.length && logprobs.every(isLogprob))) {
    throw wrong('logprobs', logprobs, `${tokens.length} numbers ≤ 0`)
  }
  return { tokens: tokens.map((token: number, i) => ({ token, logprob: logprobs[i] as number })), reason }
}
