/**
 * An engine that is a service of Tinker's protocol. It takes no weights: those that its training backend has kept for who samples have
 * a name there, and each of them a sampling session. A turn is asked for whole, from the session of the weights that were delivered
 * last when it began.
 *
 * Weights are not used before the service's log-probabilities of the most probable tokens after a fixed prompt are those of the weights
 * in this process. So another base model, another scale of the adapter, or older weights under a new name are found out. Before anything
 * is learned from what a session chose, it is asked the same again: so nothing is learned from other weights under its name.
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

/** What `tinkerEngine` is told. */
export type TinkerEngineOptions = Partial<SettingValues<typeof settings>>

/**
 * An engine of the service that trains: of the backend `tinkerBackend` at the same address. Its log-probabilities are at temperature 1
 * over the whole vocabulary, whatever tokens are drawn by.
 * @throws InputError for settings that are unknown or out of range.
 * @example createWorld({ environment, policy, engine: tinkerEngine({ url: 'http://127.0.0.1:8000' }) })
 */
export const tinkerEngine = defineFactory('engine', { id: 'tinker', settings }, (given): EngineDefinition => {
  void new TinkerClient(given) // Refuses what can be no address.
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

/** Weights that were delivered: their session, and what it said of the probe then. */
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
  /** The weights that were delivered last; null before the first, and where they are not used any more. */
  #delivered: Delivered | null = null
  /** Those by which tokens were chosen since they were last held to what they said. */
  readonly #unproved = new Set<Delivered>()
  /** Why nothing is sampled before there are other weights; null where something is. */
  #distrust: string | null = null
  readonly #words = new Uint32Array(4)

  constructor(given: SettingValues<typeof settings>, context: EngineContext) {
    this.#client = new TinkerClient(given)
    this.#context = context
    this.#tolerance = given.tolerance
    this.#subject = `engine tinker at ${this.#client.url}`
    const { minP } = context.sampling
    if (minP > 0) throw new InputError(`${this.#subject}, minP`, String(minP), '0: the service has none')
  }

  /** Asks for a turn, and adds what came of it. What the service does wrong is the turn's failure. */
  async generate(turn: OpenTurn): Promise<void> {
    const { request, signal } = turn
    const delivered = this.#delivered
    if (delivered === null) throw new Error(this.#distrust ?? `${this.#subject}: no weights were delivered`)
    const { ids, maxTokens, sampling, explore, key } = request
    const { temperature, topK, topP } = explore ? sampling : GREEDY
    const drawing = { max_tokens: maxTokens, temperature, top_k: topK === 0 ? -1 : topK, top_p: topP }
    const { session, version } = delivered
    const said = await this.#ask(session, Array.from(ids), { ...drawing, seed: this.#seedOf(key) }, signal)
    if (this.#distrust !== null) throw new Error(this.#distrust) // It has lost its weights since it was asked.
    this.#unproved.add(delivered)
    for (const { token, logprob } of said.tokens) turn.add(token, logprob, [], version)
    if (!turn.isOpen) return
    const { tokens, reason } = said
    if (reason === 'stop') turn.end('stop')
    else turn.fail(`${tokens.length} tokens of ${maxTokens}, and ${show(reason)} as the reason`)
  }

  /** Samples from these weights from now on. @throws InputError where the service has not them. */
  async deliver({ version, servicePath }: WeightsDelivery): Promise<number> {
    const subject = `weights of ${this.#subject}`
    if (servicePath === undefined) {
      const expected = 'those of the backend tinker of the same service, which takes no weights of others'
      throw new InputError(subject, 'weights that no service holds', expected)
    }
    const session = await TinkerSession.open(this.#client, servicePath)
    this.#delivered = { session, version, probe: await this.#prove(subject, session, version) }
    this.#distrust = null
    return version
  }

  /**
   * Holds each session that has chosen tokens since the last call to what it said of the probe when its weights were delivered.
   * @throws InputError where one says something else, or nothing.
   */
  async prove(): Promise<boolean> {
    const all = [...this.#unproved]
    this.#unproved.clear() // Of what they choose from now on nothing is known.
    for (const { session, version, probe } of all) {
      const subject = `weights of ${this.#subject}`
      try {
        const most = probeDistance(probe, await this.#probe(session))
        if (most <= this.#tolerance) continue
        const got = `log-probabilities ${most.toPrecision(3)} nats from what they were when version ${version} was delivered`
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

  /** What the service says of the most probable tokens after a fixed prompt. */
  async #probe(session: TinkerSession): Promise<readonly ProbedToken[]> {
    const prompt = probePrompt(this.#context.model.shape.vocabularySize)
    const drawing = { max_tokens: PROBE_TOKENS, temperature: 0, top_k: -1, top_p: 1, seed: 0 }
    return (await this.#ask(session, prompt, drawing)).tokens
  }

  /** Holds that to the learner's own log-probabilities, and returns it. */
  async #prove(subject: string, session: TinkerSession, version: number): Promise<readonly ProbedToken[]> {
    const said = await this.#probe(session)
    const most = learnerDistance(this.#context, said)
    if (most <= this.#tolerance) return said
    const got = `log-probabilities ${most.toPrecision(3)} nats from the learner's, of version ${version}`
    throw new InputError(subject, got, `at most ${this.#tolerance}`)
  }

  /** The tokens that the service chose, checked. */
  #ask(
    session: TinkerSession,
    tokens: readonly number[],
    drawing: Omit<TinkerDrawing, 'stop'>,
    signal?: AbortSignal,
  ): Promise<TinkerSample> {
    const { tokenizer, model } = this.#context
    // Texts that end a turn are looked for here: the service takes ids or texts.
    const whole = { ...drawing, stop: [...tokenizer.endIds] }
    return session.sample(tokens, whole, model.shape.vocabularySize, signal)
  }

  /** A hash of what keys a turn, so that no two share a seed; a turn that is submitted again has its own once more. */
  #seedOf([group, member, tokensBefore]: TurnRequest['key']): number {
    const { key0, key1 } = this.#context.random
    philox4x32(this.#words, group, member, tokensBefore, 0, key0, key1)
    return this.#words[0]! >>> 1
  }
}

/** The most probable token, at temperature 1 over all of them. */
const GREEDY = { temperature: 0, topK: 0, topP: 1 }
