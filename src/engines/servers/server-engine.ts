/**
 * Engines that are servers. The common code checks the server once, derives seeds and request ids by hashing a turn's key, checks
 * answers, and delivers and proves weights. A kind of server adds its routes and formats.
 *
 * Versions: if a server reports the version of each token, that version is used. Otherwise the version is read before and after a turn,
 * and a turn during which it changed is aborted and requested again. After the first delivery, a token of another version excludes the
 * server until it proves the next delivery.
 *
 * Weights go through a folder that both sides see. They are used only after the server reports their version and its log-probabilities
 * after a fixed prompt equal the learner's. The same probe is repeated before learning from its tokens and before the next delivery, so a
 * server whose weights changed under the same name, even within an answer, is detected.
 */

import { namedVariable } from '../../base/environment-variables.ts'
import { InputError, show } from '../../base/errors.ts'
import { removeWhole } from '../../base/files/files.ts'
import { AnswerError, JsonClient } from '../../base/http/json-client.ts'
import { philox4x32 } from '../../base/random.ts'
import { choice, integer, number, type SettingValues, text } from '../../base/settings.ts'
import type { Constraint, LogitChanges } from '../../environments/text.ts'
import { decoderPlan } from '../../language/transformer/decoder.ts'
import type { Sampling } from '../../language/transformer/sampling.ts'
import { defineEngine, type OpenTurn } from '../define-engine.ts'
import { writeDelivered } from '../delivered-weights.ts'
import {
  type EngineContext,
  type EngineDefinition,
  type LogprobKind,
  logprobKinds,
  type TurnRequest,
  type WeightsDelivery,
} from '../engine.ts'
import { learnerDistance, PROBE_CONTEXT, PROBE_TOKENS, probeDistance, probePrompt } from './probe.ts'
import { type ClaimedTurn, readTurn, type SaidTurn } from './server-answer.ts'

export function serverSettings(logprobs: LogprobKind) {
  return {
    url: text('', 'address of the server, like http://127.0.0.1:8000'),
    model: text('', 'name of the model in requests; default: the first that the server lists'),
    logprobs: choice(
      logprobs,
      logprobKinds,
      "distribution of the server's log-probabilities; compared with the server's own information, if it gives any",
    ),
    deadline: number(600, 'seconds after which a turn counts as failed', { above: 0, below: 2 ** 31 / 1000 }),
    retries: integer(3, 'retries of a temporarily refused request, with the same id', {
      min: 0,
    }),
    apiKeyVariable: text('', 'name of the environment variable that has the key; no file contains the key itself'),
  }
}

/** Settings of servers that accept weights. */
export function learningServerSettings(logprobs: LogprobKind) {
  return {
    ...serverSettings(logprobs),
    weights: text('', 'folder for weights, which the server sees under the same path; empty: no weights are delivered'),
    tolerance: number(1e-4, "largest error of the server's log-probabilities after a delivery, in nats", { above: 0 }),
  }
}

export type ServerSettings = SettingValues<ReturnType<typeof serverSettings>>

/** A turn as a request to a server; temperature 0 chooses the most probable token. */
export interface ServerTurn extends Sampling {
  /** The request id, the same for each attempt. */
  readonly id: string
  readonly ids: readonly number[]
  readonly maxTokens: number
  /** A whole number below 2^53. */
  readonly seed: number
  readonly stop: readonly string[]
  /** Constraint on the answer; null: none. */
  readonly constraint: Constraint | null
  readonly changes: LogitChanges
  /** Cache salt for this engine's weights, so that the server reuses no cache of weights that another engine gave the same name. */
  readonly salt: string
}

/** A server's description of itself. Null: not reported. */
export interface ServerDescription {
  /** Maximum tokens of a prompt and its answer together. */
  readonly context: number | null
  readonly logprobs: LogprobKind | null
}

export interface DeliveredFolder {
  /** For deltas, the folder with all versions. */
  readonly path: string
  /** The version number to pull from the folder; null: the folder has only these weights. */
  readonly number: number | null
  /** The server's name for these weights. */
  readonly label: string
  readonly isAdapter: boolean
}

/** The routes and formats of a kind of server. Every method rejects with the server's message. */
export interface ServerShapes {
  /** The changes of logits that the server makes with the same meaning. */
  readonly changes: readonly (keyof LogitChanges)[]
  /** Asks the server for its description. @throws InputError for a model that it does not serve. */
  describe(): Promise<ServerDescription>
  /** Returns the ids of a text, without ids that a template adds. */
  tokenize(text: string): Promise<unknown>
  generate(turn: ServerTurn, signal?: AbortSignal): Promise<ClaimedTurn>
  /** Aborts a request; settles when the server confirms. `signal` stops waiting. */
  abort(id: string, signal: AbortSignal): Promise<void>
  /** Returns the server's name of its current weights, or null if they have none. */
  readVersion(): Promise<string | null>
  /** Loads weights; absent if the server accepts none. */
  deliver?(folder: DeliveredFolder): Promise<void>
}

/** Milliseconds within which a server must confirm an abort. */
const ABORT_MS = 30_000
/**
 * An engine that requests its turns from a server.
 * @throws InputError for an invalid address and an environment variable that is not set.
 */
export function serverEngine(
  id: string,
  settings: ServerSettings & { readonly weights?: string; readonly deltas?: string; readonly tolerance?: number },
  shapesOf: (client: JsonClient, context: EngineContext) => ServerShapes,
  noTraining?: string,
): EngineDefinition {
  const { logprobs, weights = '', deltas = '', tolerance = 0 } = settings
  const client = serverClient(id, settings)
  const definition = defineEngine(id, (context) => {
    const shapes = shapesOf(client, context)
    const server = new ServerClient(id, client, shapes, context, {
      ...{ logprobs, weights, tolerance },
      hasDeltas: deltas !== '' && context.adapter === null,
    })
    return {
      ...{ logprobs, constrains: true, changes: shapes.changes },
      begin: (turn) => server.generate(turn),
      setWeights: (delivery) => server.deliver(delivery),
      prove: () => server.prove(),
      close: () => server.close(),
    }
  })
  return {
    ...definition,
    ...(noTraining === undefined && weights !== ''
      ? {}
      : {
          noTraining: noTraining ?? `engine ${id} at ${client.url} has no folder for weights (option weights)`,
        }),
    plan: ({ model, adapter, weightBits }) => ({
      probe: decoderPlan(model, 1, PROBE_CONTEXT, adapter, weightBits),
    }),
  }
}

/** The HTTP client for these settings. @throws InputError for an invalid address and an environment variable that is not set. */
export function serverClient(
  id: string,
  { url, deadline, retries, apiKeyVariable }: Pick<ServerSettings, 'url' | 'deadline' | 'retries' | 'apiKeyVariable'>,
): JsonClient {
  const apiKey = apiKeyVariable === '' ? '' : namedVariable(apiKeyVariable)
  if (apiKey !== undefined) return new JsonClient(url, { deadline, retries, apiKey })
  const got = `${apiKeyVariable}, which is not set`
  throw new InputError(`${id}.apiKeyVariable`, got, 'the name of an environment variable')
}

interface ServerClientOptions {
  readonly logprobs: LogprobKind
  readonly weights: string
  /** Whether weights are delivered as deltas. */
  readonly hasDeltas: boolean
  readonly tolerance: number
}

/** The server's answer to the probe when its weights were proved. */
interface Proof {
  readonly version: number
  readonly turn: SaidTurn
}

class ServerClient {
  readonly #id: string
  readonly #client: JsonClient
  readonly #shapes: ServerShapes
  readonly #context: EngineContext
  readonly #options: ServerClientOptions
  #ready: Promise<void> | null = null
  /** Delivered versions in order. */
  readonly #sent: number[] = []
  /** Length of `#sent` at the newest confirmed delivery; 0 before the first. */
  #confirmed = 0
  #delivering: Promise<unknown> | null = null
  /** Folders of delivered weights. */
  readonly #folders: string[] = []
  #proof: Proof | null = null
  /** Number of probes so far; makes their ids unique. */
  #numProbes = 0
  /** Whether it has generated tokens since the last proof. */
  #isUnproved = false
  /** Whether the proof was lost before some tokens were proved: its current weights say nothing about them. */
  #isLost = false
  /** Why the server is excluded; null if it is in use. */
  #distrust: string | null = null
  /** Whether the server reports the version of each token; null before its first answer. */
  #hasVersions: boolean | null = null
  /** Requests that are being aborted. */
  readonly #aborting = new Map<string, Promise<void>>()
  readonly #closing = new AbortController()
  /** Prefix of this engine's request ids: another engine may use the same server with the same seeds. */
  readonly #name = crypto.randomUUID().slice(0, 8)
  readonly #words = new Uint32Array(4)

  constructor(
    id: string,
    client: JsonClient,
    shapes: ServerShapes,
    context: EngineContext,
    options: ServerClientOptions,
  ) {
    this.#id = id
    this.#client = client
    this.#shapes = shapes
    this.#context = context
    this.#options = options
  }

  /** Requests a turn and adds its tokens. A server error fails the turn. */
  async generate(turn: OpenTurn): Promise<void> {
    const { request, signal } = turn
    await this.#delivering?.catch(() => {}) // The caller of deliver gets the error.
    await this.#checked()
    const asked = this.#turnOf(request)
    await this.#aborting.get(asked.id)
    if (signal.aborted) return
    if (this.#distrust !== null) throw new Error(this.#distrust)
    const since = this.#confirmed
    const abort = () => this.#abort(asked.id)
    signal.addEventListener('abort', abort) // Abort at once: the same turn may be submitted again immediately.
    const said = await this.#ask(asked, signal).finally(() => signal.removeEventListener('abort', abort))
    if (said === null) return turn.end('aborted')
    if (this.#distrust !== null) throw new Error(this.#distrust) // The proof was lost during the request.
    // The version confirmed at the time of the request, and all versions sent since.
    const allowed = this.#sent.slice(Math.max(0, since - 1)).map(String)
    for (const { token, logprob, candidates, version } of said.tokens) {
      if (since > 0 && !(version !== null && allowed.includes(version))) {
        throw this.#distrusted(`got tokens of version ${show(version)}, expected ${allowed.join(' or ')}, as delivered`)
      }
      if (since > 0) this.#isUnproved = true
      // Under a grammar or with changed logits, the distribution of a server's log-probabilities is unknown.
      const isFree = asked.constraint === null && Object.keys(asked.changes).length === 0
      turn.add(token, isFree ? logprob : Number.NaN, isFree ? candidates : [], numberOf(version))
    }
    if (!turn.isOpen) return
    if (said.reason === 'stop') turn.end('stop')
    else if (said.reason === 'abort') turn.end('aborted')
    else turn.fail(`finish reason ${said.reason} after ${said.tokens.length} of ${request.maxTokens} tokens`)
  }

  /** Excludes the server until it proves other weights. */
  #distrusted(why: string): Error {
    this.#distrust = why
    this.#loseProof()
    this.#context.tell(`engine ${this.#id} at ${this.#client.url} is excluded until it proves other weights: ${why}`)
    return new Error(why)
  }

  /** Repeats the probe, to prove the tokens generated since the last proof. @throws InputError if the answer differs or is missing. */
  async prove(): Promise<boolean> {
    await this.#delivering?.catch(() => {}) // The caller of deliver gets the error.
    const isLost = this.#isLost
    this.#isLost = false
    if (!this.#isUnproved && !isLost) return true
    const subject = `weights of engine ${this.#id} at ${this.#client.url}`
    try {
      if (this.#proof === null) throw new InputError(subject, this.#distrust!, 'the delivered weights')
      if (this.#isUnproved) await this.#proveChosen(subject, this.#proof)
      return !isLost
    } catch (error) {
      this.#proof = null
      this.#isUnproved = false // The caller discards these tokens.
      this.#distrust ??= (error as Error).message
      throw error instanceof InputError ? error : new InputError(subject, (error as Error).message, 'an answer')
    }
  }

  /** Drops the proof. Unproved tokens of the dropped weights can no longer be proved. */
  #loseProof(): void {
    this.#proof = null
    if (this.#isUnproved) this.#isLost = true
    this.#isUnproved = false
  }

  /** Delivers weights and proves that the server uses them. @throws InputError if it does not. */
  async deliver(delivery: WeightsDelivery): Promise<number> {
    const subject = `weights of engine ${this.#id} at ${this.#client.url}`
    const work = this.#deliver(subject, delivery)
    this.#delivering = work
    try {
      return await work
    } catch (error) {
      this.#loseProof()
      if (this.#sent.length > this.#confirmed) this.#sent.pop() // Rejects tokens of this version, also in later answers.
      this.#distrust = (error as Error).message
      if (error instanceof InputError) throw error
      throw new InputError(subject, (error as Error).message, 'a server that accepts them', { cause: error })
    }
  }

  async #deliver(subject: string, delivery: WeightsDelivery): Promise<number> {
    const { version } = delivery
    const { weights: folder } = this.#options
    if (folder === '' || this.#shapes.deliver === undefined) {
      const expected = 'option weights, a folder shared with the server'
      throw new InputError(subject, 'no folder for weights', expected)
    }
    await this.#checked()
    if (this.#proof !== null) await this.#proveChosen(subject, this.#proof)
    const { hasDeltas } = this.#options
    const isAdapter = this.#context.adapter !== null
    const path = hasDeltas ? folder : `${folder}/${isAdapter ? 'adapter' : 'model'}-${version}`
    const number = await writeDelivered(path, delivery, this.#context, hasDeltas)
    const label = String(version)
    this.#sent.push(version)
    await this.#shapes.deliver({ path, number, label, isAdapter })
    const echoed = await this.#shapes.readVersion()
    if (echoed !== label) throw new InputError(subject, `version ${show(echoed)}`, `${show(label)}, as delivered`)
    await this.#prove(subject, version)
    this.#confirmed = this.#sent.length
    this.#distrust = null
    if (!hasDeltas && !this.#folders.includes(path)) this.#folders.push(path)
    // Keep the last folder, which some servers read again, and the one before it for inspection.
    if (this.#folders.length > 2) await removeWhole(this.#folders.shift()!)
    return version
  }

  /** Requests the most probable tokens after the fixed prompt. */
  async #probe(version: number): Promise<SaidTurn> {
    const prompt = probePrompt(this.#context.model.shape.vocabularySize)
    const id = `${this.#name}probe-${version}-${this.#numProbes++}` // A repeated id could return a cached answer.
    const asked = {
      id,
      ids: prompt,
      maxTokens: PROBE_TOKENS,
      ...GREEDY,
      seed: 0,
      ...{ stop: [], constraint: null, changes: {} },
      salt: this.#saltOf(version),
    }
    const turn = await this.#ask(asked)
    if (turn === null)
      throw new InputError(`probe of ${this.#client.url}`, 'a version that changed during the probe', 'a fixed version')
    return turn
  }

  /** Compares the server's probe with the learner's log-probabilities. */
  async #prove(subject: string, version: number): Promise<void> {
    const turn = await this.#probe(version)
    const other = turn.tokens.find((said) => said.version !== String(version))
    if (other !== undefined) {
      throw new InputError(subject, `tokens of version ${other.version} after the delivery`, `version ${version}`)
    }
    const most = learnerDistance(this.#context, turn.tokens)
    const { tolerance } = this.#options
    if (!(most <= tolerance)) {
      const got = `log-probabilities ${most.toPrecision(3)} nats from the learner's, at version ${version}`
      throw new InputError(subject, got, `at most ${tolerance}`)
    }
    this.#proof = { version, turn }
  }

  /** Proves the tokens generated so far. */
  async #proveChosen(subject: string, proof: Proof): Promise<void> {
    const isUnproved = this.#isUnproved
    this.#isUnproved = false // Tokens generated from now on need a new proof.
    await this.#proveAgain(subject, proof).catch((error) => {
      this.#isUnproved = isUnproved
      throw error
    })
  }

  /** Compares a new probe with the one at delivery. */
  async #proveAgain(subject: string, proof: Proof): Promise<void> {
    const turn = await this.#probe(proof.version)
    const most = probeDistance(proof.turn.tokens, turn.tokens)
    const { tolerance } = this.#options
    if (most <= tolerance) return
    const got = `log-probabilities ${most.toPrecision(3)} nats from those at the delivery of version ${proof.version}`
    throw new InputError(subject, got, `at most ${tolerance}: later samples may come from other weights`)
  }

  /** Checks once whether the server fits the policy. */
  #checked(): Promise<void> {
    this.#ready ??= this.#check().catch((error) => {
      this.#ready = null // Allows a retry when the server starts later.
      throw error
    })
    return this.#ready
  }

  async #check(): Promise<void> {
    const { tokenizer, context } = this.#context
    const subject = `engine ${this.#id} at ${this.#client.url}`
    const { context: room, logprobs: kind } = await this.#shapes.describe()
    if (room !== null && room < context) {
      throw new InputError(`${subject}, context`, `${room} tokens`, `at least ${context}, the policy's context`)
    }
    const { logprobs } = this.#options
    if (kind !== null && kind !== logprobs) {
      const expected = `${show(logprobs)}, or another option logprobs`
      throw new InputError(`${subject}, logprobs`, show(kind), expected)
    }
    const letters = Array.from({ length: Math.min(256, tokenizer.vocabularySize) }, (_, id) => id)
    const prompt = tokenizer.decode(letters, { skipSpecial: true }).replaceAll(/[\u{fffd}\p{C}]/gu, '')
    const own = tokenizer.encode(prompt)
    const ids = await this.#shapes.tokenize(prompt)
    if (JSON.stringify(ids) === JSON.stringify(own)) return
    const expected = `${show(own)}, the policy's ids`
    throw new InputError(`${subject}, tokenizer`, `ids ${show(ids)} for a probe text`, expected)
  }

  /** Requests a turn, with the version of each token. Null if the version changed and the server does not report where. */
  async #ask(asked: ServerTurn, signal?: AbortSignal): Promise<SaidTurn | null> {
    const before = this.#hasVersions === true ? null : await this.#shapes.readVersion()
    const claimed = await this.#shapes.generate(asked, signal)
    const said = readTurn(claimed, this.#context.model.shape.vocabularySize, this.#options.logprobs)
    this.#hasVersions = said.hasVersions
    if (said.hasVersions) return said
    const version = await this.#shapes.readVersion()
    if (version !== before) return null
    return { ...said, tokens: said.tokens.map((each) => ({ ...each, version })) }
  }

  #turnOf({ ids, maxTokens, sampling, explore, stopStrings, key, constraint, changes }: TurnRequest): ServerTurn {
    const { temperature, topP, topK, minP } = explore ? sampling : GREEDY
    const seed = this.#seedOf(key)
    const id = `${this.#name}${seed.toString(36)}-${ids.length}`
    const version = this.#sent[this.#confirmed - 1] ?? -1
    return {
      id,
      ids: Array.from(ids),
      maxTokens,
      temperature,
      topP,
      topK,
      minP,
      seed,
      stop: stopStrings,
      constraint: constraint ?? null,
      changes: changes ?? {},
      salt: this.#saltOf(version),
    }
  }

  #saltOf(version: number): string {
    return `${this.#name}${version}`
  }

  /** A hash of a turn's key. Turns have distinct seeds; a turn that is submitted again has the same seed. */
  #seedOf([group, member, tokensBefore]: TurnRequest['key']): number {
    const { key0, key1 } = this.#context.random
    philox4x32(this.#words, group, member, tokensBefore, 0, key0, key1)
    return this.#words[0]! * 2 ** 21 + (this.#words[1]! >>> 11)
  }

  /** Aborts a request in addition to closing its connection. The same request waits until the server confirms. */
  #abort(id: string): void {
    const { signal } = this.#closing
    const heard = this.#shapes
      .abort(id, AbortSignal.any([signal, AbortSignal.timeout(ABORT_MS)]))
      .catch((error: Error) => {
        if (error instanceof AnswerError && error.status === 404) return // Without an abort route, closing the connection must do.
        const { url } = this.#client
        if (!signal.aborted)
          this.#context.tell(`engine ${this.#id} at ${url}: request ${id} was not aborted (${error.message})`)
      })
      .finally(() => this.#aborting.delete(id))
    this.#aborting.set(id, heard)
  }

  close(): void {
    this.#closing.abort()
  }
}

/** The most probable token, with log-probabilities at temperature 1 over the whole vocabulary. */
const GREEDY = { temperature: 0, topP: 1, topK: 0, minP: 0 }

/** The number of a version; −1 for another name. */
function numberOf(version: string | null): number {
  return version !== null && /^\d+$/.test(version) ? Number(version) : -1
}
