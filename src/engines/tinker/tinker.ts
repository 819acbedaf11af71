/**
 * An engine that samples at a Tinker service. It takes no weights: the training backend saves them at the service under a name, and each
 * name gets a sampling session. A turn is one request to the session of the weights that were newest when it began.
 *
 * New weights are used only after the service's log-probabilities of the most probable tokens after a fixed prompt equal those of the
 * weights in this process. This detects another base model, another adapter scale, or old weights under a new name. The probe is repeated
 * before learning from a session's tokens, which detects other weights under the same name.
 */
import { type DefinitionRecord, defineFactory } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import { philox4x32 } from '../../base/random.ts'
import { number, type SettingValues } from '../../base/settings.ts'
import { decoderPlan } from '../../language/transformer/decoder.ts'
import { defineEngine, type OpenTurn } from '../define-engine.ts'
import type { EngineContext, EngineDefinition, TurnRequest, WeightsDelivery } from '../engine.ts'
import {
  learnerDistance,
  PROBE_CONTEXT,
  PROBE_TOKENS,
  type ProbedToken,
  probeDistance,
  probePrompt,
} from '../servers/probe.ts'
import { TinkerClient, tinkerSettings } from './tinker-client.ts'
import { type TinkerDrawing, type TinkerSample, TinkerSession } from './tinker-session.ts'

const settings = {
  ...tinkerSettings,
  tolerance: number(1e-4, "largest error of the service's log-probabilities after a delivery, in nats", { above: 0 }),
}

/** Options of `tinkerEngine`. */
export type TinkerEngineOptions = Partial<SettingValues<typeof settings>>

/**
 * An engine that samples at the training service of the backend `tinkerBackend` at the same address. Its log-probabilities are always at
 * temperature 1 over the whole vocabulary.
 * @throws InputError for unknown settings and settings out of range.
 * @example createWorld({ environment, policy, engine: tinkerEngine({ url: 'http://127.0.0.1:8000' }) })
 */
export const tinkerEngine = defineFactory('engine', { id: 'tinker', settings }, (given): EngineDefinition => {
  void new TinkerClient(given) // Rejects an invalid address.
  const definition = defineEngine('tinker', (context) => {
    const sampler = new TinkerSampler(given, context)
    return {
      logprobs: 'raw',
      begin: (turn) => sampler.generate(turn),
      setWeights: (delivery) => sampler.deliver(delivery),
      prove: () => sampler.prove(),
      close: () => sampler.close(),
    }
  })
  return {
    ...definition,
    samplesByServicePath: true,
    plan: ({ model, adapter, weightBits }) => ({ probe: decoderPlan(model, 1, PROBE_CONTEXT, adapter, weightBits) }),
  }
}) satisfies (options?: TinkerEngineOptions) => EngineDefinition & DefinitionRecord

/** Delivered weights: their session, and its answer to the probe at delivery. */
interface Delivered {
  readonly session: TinkerSession
  readonly version: number
  readonly probe: readonly ProbedToken[]
}

class TinkerSampler {
  readonly #client: TinkerClient
  readonly #context: EngineContext
  readonly #tolerance: number
  readonly #subject: string
  /** The weights in use; null before the first delivery and after a failed proof. */
  #delivered: Delivered | null = null
  /** Weights that have generated tokens since their last proof. */
  readonly #unproved = new Set<Delivered>()
  /** Why sampling waits for other weights; null if it does not. */
  #distrust: string | null = null
  readonly #words = new Uint32Array(4)

  constructor(given: SettingValues<typeof settings>, context: EngineContext) {
    this.#client = new TinkerClient(given)
    this.#context = context
    this.#tolerance = given.tolerance
    this.#subject = `engine tinker at ${this.#client.url}`
    const { minP } = context.sampling
    if (minP > 0) throw new InputError(`${this.#subject}, minP`, String(minP), '0: the service does not support it')
  }

  /** Requests a turn and adds its tokens. A service error fails the turn. */
  async generate(turn: OpenTurn): Promise<void> {
    const { request, signal } = turn
    const delivered = this.#delivered
    if (delivered === null) throw new Error(this.#distrust ?? `${this.#subject}: no weights were delivered`)
    const { ids, maxTokens, sampling, explore, key } = request
    const { temperature, topK, topP } = explore ? sampling : GREEDY
    const drawing = { max_tokens: maxTokens, temperature, top_k: topK === 0 ? -1 : topK, top_p: topP }
    const { session, version } = delivered
    const said = await this.#ask(session, Array.from(ids), { ...drawing, seed: this.#seedOf(key) }, signal)
    if (this.#distrust !== null) throw new Error(this.#distrust) // The proof was lost during the request.
    this.#unproved.add(delivered)
    for (const { token, logprob } of said.tokens) turn.add(token, logprob, [], version)
    if (!turn.isOpen) return
    const { tokens, reason } = said
    if (reason === 'stop') turn.end('stop')
    else turn.fail(`stop reason ${show(reason)} after ${tokens.length} of ${maxTokens} tokens`)
  }

  /** Samples from these weights from now on. @throws InputError if the service does not have them. */
  async deliver({ version, servicePath }: WeightsDelivery): Promise<number> {
    const subject = `weights of ${this.#subject}`
    if (servicePath === undefined) {
      const expected = 'weights of backend tinker at the same service'
      throw new InputError(subject, 'weights that are not at the service', expected)
    }
    const session = await TinkerSession.open(this.#client, servicePath)
    this.#delivered = { session, version, probe: await this.#prove(subject, session, version) }
    this.#distrust = null
    return version
  }

  /**
   * Repeats the probe of each session that has generated tokens since the last call and compares it with the one at delivery.
   * @throws InputError if an answer differs or is missing.
   */
  async prove(): Promise<boolean> {
    const all = [...this.#unproved]
    this.#unproved.clear() // Tokens generated from now on need a new proof.
    for (const { session, version, probe } of all) {
      const subject = `weights of ${this.#subject}`
      try {
        const most = probeDistance(probe, await this.#probe(session))
        if (most <= this.#tolerance) continue
        const got = `log-probabilities ${most.toPrecision(3)} nats from those at the delivery of version ${version}`
        throw new InputError(subject, got, `at most ${this.#tolerance}: later samples may come from other weights`)
      } catch (error) {
        this.#delivered = null
        this.#distrust = (error as Error).message
        throw error instanceof InputError ? error : new InputError(subject, this.#distrust, 'an answer')
      }
    }
    return true
  }

  close(): void {
    this.#client.close()
  }

  /** Requests the most probable tokens after the fixed prompt. */
  async #probe(session: TinkerSession): Promise<readonly ProbedToken[]> {
    const prompt = probePrompt(this.#context.model.shape.vocabularySize)
    const drawing = { max_tokens: PROBE_TOKENS, temperature: 0, top_k: -1, top_p: 1, seed: 0 }
    return (await this.#ask(session, prompt, drawing)).tokens
  }

  /** Returns the probe after comparing it with the learner's log-probabilities. */
  async #prove(subject: string, session: TinkerSession, version: number): Promise<readonly ProbedToken[]> {
    const said = await this.#probe(session)
    const most = learnerDistance(this.#context, said)
    if (most <= this.#tolerance) return said
    const got = `log-probabilities ${most.toPrecision(3)} nats from the learner's, at version ${version}`
    throw new InputError(subject, got, `at most ${this.#tolerance}`)
  }

  /** Requests tokens and checks the answer. */
  #ask(
    session: TinkerSession,
    tokens: readonly number[],
    drawing: Omit<TinkerDrawing, 'stop'>,
    signal?: AbortSignal,
  ): Promise<TinkerSample> {
    const { tokenizer, model } = this.#context
    // Stop strings are matched here: the service accepts either ids or texts.
    const whole = { ...drawing, stop: [...tokenizer.endIds] }
    return session.sample(tokens, whole, model.shape.vocabularySize, signal)
  }

  /** A hash of a turn's key. Turns have distinct seeds; a turn that is submitted again has the same seed. */
  #seedOf([group, member, tokensBefore]: TurnRequest['key']): number {
    const { key0, key1 } = this.#context.random
    philox4x32(this.#words, group, member, tokensBefore, 0, key0, key1)
    return this.#words[0]! >>> 1
  }
}

/** The most probable token, with log-probabilities at temperature 1 over the whole vocabulary. */
const GREEDY = { temperature: 0, topK: 0, topP: 1 }
