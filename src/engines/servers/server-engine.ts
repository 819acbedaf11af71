/**
 * Engines that are servers. What they have in common is here: the server is looked at once, seeds and names of requests are hashes of
 * what keys a turn, answers are checked, and weights are delivered and proved. A kind of server adds its routes and its shapes.
 *
 * Versions: a server that names the version of each token is believed. Of one that does not, the version is read before a turn and
 * behind it, and a turn during which it changed is broken off and asked for again. Once weights have been delivered, tokens of
 * others end that: the server is not used until it has proved the next delivery.
 *
 * Weights go through a folder that both see. They are not used before the server has named their version and its log-probabilities
 * after a fixed prompt are the learner's own. Before anything is learned from what it chose, and before the next delivery, it is asked
 * the same again: so nothing is learned from a server whose weights changed meanwhile, under the same name, be it in the middle of an answer.
 */
import { namedVariable } from '../../base/environment-variables.ts'
import { InputError, show } from '../../base/errors.ts'
import { removeWhole } from '../../base/files/files.ts'
import { AnswerError, JsonClient } from '../../base/http/json-client.ts'
import { philox4x32 } from '../../base/random.ts'
import { choice, integer, number, type SettingValues, text } from '../../base/settings.ts'
import { decoderPlan } from '../../language/transformer/decoder.ts'
import { defineEngine, type OpenTurn } from '../define-engine.ts'
import { writeDelivered } from '../delivered-weights.ts'
import {
  type Constraint,
  type EngineContext,
  type EngineDefinition,
  type LogprobKind,
  logprobKinds,
  type TurnRequest,
  type WeightsDelivery,
} from '../engine.ts'
import { learnerDistance, PROBE_CONTEXT, PROBE_TOKENS, probeDistance, probePrompt } from './probe.ts'
import { type ClaimedTurn, readTurn, type SaidTurn } from './server-answer.ts'

/** What every kind of server is told by. */
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

/** And by those that weights are delivered to. */
export function learningServerSettings(logprobs: LogprobKind) {
  return {
    ...serverSettings(logprobs),
    weights: text('', 'folder for weights, which the server sees under the same path; empty: no weights are delivered'),
    tolerance: number(1e-4, "largest error of the server's log-probabilities after a delivery, in nats", { above: 0 }),
  }
}

/** What a server is told by. */
export type ServerSettings = SettingValues<ReturnType<typeof serverSettings>>

/** A turn as a server is asked for it. */
export interface ServerTurn {
  /** The request's name: the same for each attempt. */
  readonly id: string
  readonly ids: readonly number[]
  readonly maxTokens: number
  /** Temperature 0 takes the most probable token; top-k 0 leaves all. */
  readonly temperature: number
  readonly topP: number
  readonly topK: number
  readonly minP: number
  /** A whole number below 2^53. */
  readonly seed: number
  readonly stop: readonly string[]
  /** What the answer has to be; null: anything. */
  readonly constraint: Constraint | null
  /** Names its weights, of this engine alone: another may have called others so, and what is cached under those is of no use. */
  readonly salt: string
}

/** What a server says of itself. Null: it does not say. */
export interface ServerDescription {
  /** Tokens of a prompt and its answer. */
  readonly context: number | null
  readonly logprobs: LogprobKind | null
}

/** Weights that lie in a folder. */
export interface DeliveredFolder {
  /** Of deltas the folder that has all versions. */
  readonly path: string
  /** The version that is to be pulled from there; null: the folder has these weights alone. */
  readonly number: number | null
  /** What the server is to call them. */
  readonly label: string
  readonly isAdapter: boolean
}

/** The routes and shapes of a kind of server. Whatever fails, fails with the server's words. */
export interface ServerShapes {
  /** Asks the server who it is. @throws InputError for a model that it does not serve. */
  describe(): Promise<ServerDescription>
  /** The ids of a text, without any that a template adds. */
  tokenize(text: string): Promise<unknown>
  generate(turn: ServerTurn, signal?: AbortSignal): Promise<ClaimedTurn>
  /** Breaks a request off; settles when the server has said that it heard it. `signal` gives that up. */
  abort(id: string, signal: AbortSignal): Promise<void>
  /** What the server calls its weights now; null where it calls them nothing. */
  readVersion(): Promise<string | null>
  /** Gives it weights. Only where weights can be delivered. */
  deliver?(folder: DeliveredFolder): Promise<void>
}

/** Milliseconds within which a server has to say that a request is broken off. */
const ABORT_MS = 30_000
/**
 * An engine that asks a server of a kind for its turns.
 * @throws InputError for an address that is none, and an environment variable that is not there.
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
    const server = new ServerClient(id, client, shapesOf(client, context), context, {
      ...{ logprobs, weights, tolerance },
      hasDeltas: deltas !== '' && context.adapter === null,
    })
    return {
      ...{ logprobs, constrains: true },
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
          noTraining:
            noTraining ?? `engine ${id} at ${client.url} has no folder to deliver weights by (the option weights)`,
        }),
    plan: ({ model, adapter, weightBits }) => ({
      probe: decoderPlan(model, 1, PROBE_CONTEXT, adapter, weightBits),
    }),
  }
}

/**
 * What asks the server of these settings.
 * @throws InputError for an address that is none, and an environment variable that is not there.
 */
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
  /** Whether weights are delivered as what has changed of them. */
  readonly hasDeltas: boolean
  readonly tolerance: number
}

/** What a server said when its weights were proved. */
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
  /** Versions that were sent, in their order. */
  readonly #sent: number[] = []
  /** How many of them had been sent when the newest that was confirmed had been; 0 before the first. */
  #confirmed = 0
  #delivering: Promise<unknown> | null = null
  /** Folders of weights that were delivered. */
  readonly #folders: string[] = []
  #proof: Proof | null = null
  /** Probes that were begun: each has a name of its own. */
  #numProbes = 0
  /** Whether it has chosen tokens since it was last held to its weights. */
  #isUnproved = false
  /** Whether tokens that were not proved before the proof was lost can never be: what it has now says nothing of them. */
  #isLost = false
  /** Why what the server chooses is not used; null where it is. */
  #distrust: string | null = null
  /** Whether the server names the version of each token; null before its first answer. */
  #hasVersions: boolean | null = null
  /** Requests that are being broken off. */
  readonly #aborting = new Map<string, Promise<void>>()
  /** Aborts when the engine is closed. */
  readonly #closing = new AbortController()
  /** What this engine's requests begin with: others may ask the same server with the same seeds. */
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

  /** Asks for a turn, and adds what came of it. What the server does wrong is the turn's failure. */
  async generate(turn: OpenTurn): Promise<void> {
    const { request, signal } = turn
    await this.#delivering?.catch(() => {}) // Who delivers is told.
    await this.#checked()
    const asked = this.#turnOf(request)
    await this.#aborting.get(asked.id)
    if (signal.aborted) return
    if (this.#distrust !== null) throw new Error(this.#distrust)
    const since = this.#confirmed
    const abort = () => this.#abort(asked.id)
    signal.addEventListener('abort', abort) // At once: the same turn may be submitted again right after.
    const said = await this.#ask(asked, signal).finally(() => signal.removeEventListener('abort', abort))
    if (said === null) return turn.end('aborted')
    if (this.#distrust !== null) throw new Error(this.#distrust) // It has lost its weights since it was asked.
    // What was confirmed when it was asked, and all that was sent since.
    const allowed = this.#sent.slice(Math.max(0, since - 1)).map(String)
    for (const { token, logprob, candidates, version } of said.tokens) {
      if (since > 0 && !(version !== null && allowed.includes(version))) {
        throw this.#distrusted(`got tokens of version ${show(version)}, expected ${allowed.join(' or ')}, as delivered`)
      }
      if (since > 0) this.#isUnproved = true
      // Of which distribution a server's are under a grammar is not known.
      const isFree = asked.constraint === null
      turn.add(token, isFree ? logprob : Number.NaN, isFree ? candidates : [], numberOf(version))
    }
    if (!turn.isOpen) return
    if (said.reason === 'stop') turn.end('stop')
    else if (said.reason === 'abort') turn.end('aborted')
    else turn.fail(`${said.tokens.length} tokens of ${request.maxTokens}, and ${said.reason} as the reason`)
  }

  /** Uses nothing of the server any more, until it has proved other weights. */
  #distrusted(why: string): Error {
    this.#distrust = why
    this.#loseProof()
    this.#context.tell(`engine ${this.#id} at ${this.#client.url} is not used before it has other weights: ${why}`)
    return new Error(why)
  }

  /**
   * Holds what the server chose since it was last held to its weights to them, by what it says of the prompt now.
   * @throws InputError where it says something else, or nothing.
   */
  async prove(): Promise<boolean> {
    await this.#delivering?.catch(() => {}) // Who delivers is told.
    const isLost = this.#isLost
    this.#isLost = false
    if (!this.#isUnproved && !isLost) return true
    const subject = `weights of engine ${this.#id} at ${this.#client.url}`
    try {
      if (this.#proof === null) throw new InputError(subject, this.#distrust!, 'those that were delivered')
      if (this.#isUnproved) await this.#proveChosen(subject, this.#proof)
      return !isLost
    } catch (error) {
      this.#proof = null
      this.#isUnproved = false // Whoever is told uses nothing of it.
      this.#distrust ??= (error as Error).message
      throw error instanceof InputError ? error : new InputError(subject, (error as Error).message, 'an answer')
    }
  }

  /** The server is no longer held to the weights that it was given, nor can be what it chose by them and was not proved. */
  #loseProof(): void {
    this.#proof = null
    if (this.#isUnproved) this.#isLost = true
    this.#isUnproved = false
  }

  /** Gives the server weights, and proves that it has them. @throws InputError where it does not. */
  async deliver(delivery: WeightsDelivery): Promise<number> {
    const subject = `weights of engine ${this.#id} at ${this.#client.url}`
    const work = this.#deliver(subject, delivery)
    this.#delivering = work
    try {
      return await work
    } catch (error) {
      this.#loseProof()
      if (this.#sent.length > this.#confirmed) this.#sent.pop() // Its tokens are not believed, also in answers that come later.
      this.#distrust = (error as Error).message
      if (error instanceof InputError) throw error
      throw new InputError(subject, (error as Error).message, 'a server that takes them', { cause: error })
    }
  }

  async #deliver(subject: string, delivery: WeightsDelivery): Promise<number> {
    const { version } = delivery
    const { weights: folder } = this.#options
    if (folder === '' || this.#shapes.deliver === undefined) {
      const expected = 'the option weights, a folder that the server sees too'
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
    // The last one stays, since some servers read it again, and the one before it for who wants to look.
    if (this.#folders.length > 2) await removeWhole(this.#folders.shift()!)
    return version
  }

  /** The most probable tokens after a fixed prompt. */
  async #probe(version: number): Promise<SaidTurn> {
    const prompt = probePrompt(this.#context.model.shape.vocabularySize)
    const id = `${this.#name}probe-${version}-${this.#numProbes++}` // Else an answer of before would do.
    const asked = {
      id,
      ids: prompt,
      maxTokens: PROBE_TOKENS,
      ...GREEDY,
      seed: 0,
      ...{ stop: [], constraint: null },
      salt: this.#saltOf(version),
    }
    const turn = await this.#ask(asked)
    if (turn === null) throw new InputError(`probe of ${this.#client.url}`, 'a version that changed', 'one that stays')
    return turn
  }

  /** Holds the server's log-probabilities of the most probable tokens after a prompt to the learner's own. */
  async #prove(subject: string, version: number): Promise<void> {
    const turn = await this.#probe(version)
    const other = turn.tokens.find((said) => said.version !== String(version))
    if (other !== undefined) {
      throw new InputError(subject, `tokens of version ${other.version} after the delivery`, `version ${version}`)
    }
    const most = learnerDistance(this.#context, turn.tokens)
    const { tolerance } = this.#options
    if (!(most <= tolerance)) {
      const got = `log-probabilities ${most.toPrecision(3)} nats from the learner's, of version ${version}`
      throw new InputError(subject, got, `at most ${tolerance}`)
    }
    this.#proof = { version, turn }
  }

  /** Holds what the server chose so far to its proof. */
  async #proveChosen(subject: string, proof: Proof): Promise<void> {
    const isUnproved = this.#isUnproved
    this.#isUnproved = false // Of what it chooses from now on nothing is known.
    await this.#proveAgain(subject, proof).catch((error) => {
      this.#isUnproved = isUnproved
      throw error
    })
  }

  /** Holds the server to what it said when it was given the weights that it should still have. */
  async #proveAgain(subject: string, proof: Proof): Promise<void> {
    const turn = await this.#probe(proof.version)
    const most = probeDistance(proof.turn.tokens, turn.tokens)
    const { tolerance } = this.#options
    if (most <= tolerance) return
    const got = `log-probabilities ${most.toPrecision(3)} nats from what they were when version ${proof.version} was delivered`
    throw new InputError(subject, got, `at most ${tolerance}: later samples may come from other weights`)
  }

  /** Looks once whether the server is the one that was meant. */
  #checked(): Promise<void> {
    this.#ready ??= this.#check().catch((error) => {
      this.#ready = null // It may come up later.
      throw error
    })
    return this.#ready
  }

  async #check(): Promise<void> {
    const { tokenizer, context } = this.#context
    const subject = `engine ${this.#id} at ${this.#client.url}`
    const { context: room, logprobs: kind } = await this.#shapes.describe()
    if (room !== null && room < context) {
      throw new InputError(`${subject}, context`, `${room} tokens`, `at least ${context}, as the policy has`)
    }
    const { logprobs } = this.#options
    if (kind !== null && kind !== logprobs) {
      const expected = `a server whose are ${show(logprobs)}, or the option logprobs`
      throw new InputError(`${subject}, logprobs`, show(kind), expected)
    }
    const letters = Array.from({ length: Math.min(256, tokenizer.vocabularySize) }, (_, id) => id)
    const prompt = tokenizer.decode(letters, { skipSpecial: true }).replaceAll(/[\u{fffd}\p{C}]/gu, '')
    const own = tokenizer.encode(prompt)
    const ids = await this.#shapes.tokenize(prompt)
    if (JSON.stringify(ids) === JSON.stringify(own)) return
    const expected = `${show(own)}, as the policy has`
    throw new InputError(`${subject}, tokenizer`, `ids ${show(ids)} of a probe text`, expected)
  }

  /** What a turn comes to, with the version of each token; null where the version changed and the server does not say where. */
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

  #turnOf({ ids, maxTokens, sampling, explore, stopStrings, key, constraint }: TurnRequest): ServerTurn {
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
      salt: this.#saltOf(version),
    }
  }

  #saltOf(version: number): string {
    return `${this.#name}${version}`
  }

  /** A hash of what keys a turn, so that no two share a seed; a turn that is submitted again has its own once more. */
  #seedOf([group, member, tokensBefore]: TurnRequest['key']): number {
    const { key0, key1 } = this.#context.random
    philox4x32(this.#words, group, member, tokensBefore, 0, key0, key1)
    return this.#words[0]! * 2 ** 21 + (this.#words[1]! >>> 11)
  }

  /** Breaks a request off, whose connection is closed too; the same request is not made again before the server has heard it. */
  #abort(id: string): void {
    const { signal } = this.#closing
    const heard = this.#shapes
      .abort(id, AbortSignal.any([signal, AbortSignal.timeout(ABORT_MS)]))
      .catch((error: Error) => {
        if (error instanceof AnswerError && error.status === 404) return // It has no such route: the connection has to do.
        const { url } = this.#client
        if (!signal.aborted)
          this.#context.tell(`engine ${this.#id} at ${url}: request ${id} is not broken off (${error.message})`)
      })
      .finally(() => this.#aborting.delete(id))
    this.#aborting.set(id, heard)
  }

  close(): void {
    this.#closing.abort()
  }
}

/** The most probable token, at temperature 1 over all of them. */
const GREEDY = { temperature: 0, topP: 1, topK: 0, minP: 0 }

/** A version's number, −1 where the server calls it something else. */
function numberOf(version: string | null): number {
  return version !== null && /^\d+$/.test(version) ? Number(version) : -1
}
