/**
 * OpenEnv environments (Hugging Face) as text environments. Each WebSocket of a server has one session. A conversation takes a session
 * from a pool and resets it. Each turn of the model becomes an action, and the resulting observation becomes the next message.
 *
 * The protocol has one `done` for both kinds of episode end. The reward component `truncated` is 1 or 0 if the observation's metadata
 * contains it, otherwise null.
 */
import { checkCount, checkOptions, InputError, show } from '../../base/errors.ts'
import type { Message, TextEnvironmentDefinition } from '../text.ts'
import { type AgentContext, type AgentResult, defineAgent } from '../tools/agent.ts'
import { TextSocket } from './text-socket.ts'

/** A server's answer to a step. */
export interface OpenEnvObservation {
  readonly observation: Readonly<Record<string, unknown>>
  readonly reward: number | null
  readonly done: boolean
  /** Null if the server does not report it. */
  readonly truncated: boolean | null
}

/** Options of `openEnv`. */
export interface OpenEnvOptions {
  /** Address of the server, like `http://127.0.0.1:8000`. */
  readonly url: string
  /** Converts an observation into text, or messages for the chat template. */
  tell(seen: OpenEnvObservation): string | readonly Message[]
  /** Converts a turn of the model into an action in the server's schema. If it throws, the conversation ends without a reward. */
  act(completion: string): Readonly<Record<string, unknown>>
  /** Number of episodes; the server is reset with the seeds 0, 1, 2 … */
  readonly numEpisodes: number
  /** Turns of the model after which an unfinished conversation ends with its last reward; default 16. */
  readonly maxTurns?: number
  /** Maximum tokens per turn; default 64. */
  readonly maxTokens?: number
  /**
   * What happens after a turn cut off by its budget or the context, as the cohort's `cutTurn`: the conversation ends (default) or
   * continues.
   */
  readonly cutTurn?: 'end' | 'continue'
  /** Characters that a model made for this environment must know. */
  readonly alphabet?: string
  /** Maximum concurrent sessions; default 64. Conversations beyond this limit, or beyond the server's capacity, wait. */
  readonly sockets?: number
  /** Seconds after which an answer of the server has failed; default 30. */
  readonly seconds?: number
}

const OPTIONS: readonly (keyof OpenEnvOptions)[] = [
  ...([
    'url',
    'tell',
    'act',
    'numEpisodes',
    'maxTurns',
    'maxTokens',
    'cutTurn',
    'alphabet',
    'sockets',
    'seconds',
  ] as const),
]

/** A text environment with its connections. */
export interface OpenEnvEnvironment extends TextEnvironmentDefinition {
  close(): void
}

/**
 * Connects to an OpenEnv server. Each episode is reset once to read its first observation, which is the prompt. If a later reset differs,
 * the conversation ends with this reason.
 * @throws InputError for options that are unknown or out of range, and a server that does not answer.
 * @example
 * const environment = await openEnv({
 *   ...{ url: 'http://127.0.0.1:8000', numEpisodes: 8, maxTurns: 1 },
 *   tell: ({ observation }) => String(observation.prompt),
 *   act: (completion) => ({ message: completion }),
 * })
 */
export async function openEnv(options: OpenEnvOptions): Promise<OpenEnvEnvironment> {
  checkOptions('openEnv', options, OPTIONS)
  const { url, tell, act, numEpisodes, alphabet } = options
  const { maxTurns = 16, maxTokens = 64, cutTurn = 'end', sockets = 64, seconds = 30 } = options
  for (const [name, value] of Object.entries({ numEpisodes, maxTurns, maxTokens, sockets }))
    checkCount(`openEnv.${name}`, value)
  if (!(seconds > 0)) throw new InputError('openEnv.seconds', show(seconds), 'a number above 0')
  if (cutTurn !== 'end' && cutTurn !== 'continue') {
    throw new InputError('openEnv.cutTurn', show(cutTurn), 'end or continue')
  }
  for (const [name, value] of Object.entries({ tell, act })) {
    if (typeof value !== 'function') throw new InputError(`openEnv.${name}`, show(value), 'a function')
  }
  const pool = new SessionPool(addressOf(url), sockets, seconds)
  const first = await pool.use(async (session) => {
    const seen: OpenEnvObservation[] = []
    for (let seed = 0; seed < numEpisodes; seed++) seen.push(await session.reset(seed))
    return seen
  })
  const prompts = first.map((seen) => tell(seen))
  const messagesOf = (seen: OpenEnvObservation): readonly Message[] => {
    const told = tell(seen)
    return typeof told === 'string' ? [{ role: 'user', content: told }] : told
  }
  const run = ({ exampleIndex, signal, generate }: AgentContext): Promise<AgentResult> =>
    pool.use(async (session) => {
      const seen = await session.reset(exampleIndex)
      if (JSON.stringify(tell(seen)) !== JSON.stringify(prompts[exampleIndex])) {
        const got = `${show(tell(seen))} of seed ${exampleIndex}`
        throw new InputError(`reset of ${url}`, got, `${show(prompts[exampleIndex])}, as in the first reset`)
      }
      let { completion, stopReason } = await generate()
      for (let turn = 1; ; turn++) {
        const next = await session.step(act(completion))
        const { reward, done, truncated } = next
        const isCut = cutTurn === 'end' && (stopReason === 'length' || stopReason === 'context')
        if (done || turn === maxTurns || isCut) {
          const isTruncated = done ? truncated : true
          const components = { truncated: isTruncated === null ? null : Number(isTruncated) }
          return reward === null ? { reward, components, error: `${url} reported no reward` } : { reward, components }
        }
        ;({ completion, stopReason } = await generate({ messages: messagesOf(next), reward: reward ?? 0 }))
      }
    }, signal)
  const environment = defineAgent({
    id: 'text/open-env',
    settings: {},
    make: () => ({
      ...{ numExamples: numEpisodes, maxTurns, maxTokens, run },
      ...(alphabet === undefined ? {} : { alphabet }),
      example: (index) => ({ prompt: prompts[index]! }),
    }),
  })()
  return { ...environment, close: () => pool.close() }
}

function addressOf(url: string): string {
  if (typeof url !== 'string' || !URL.canParse(url) || !/^(http|ws)s?:$/.test(new URL(url).protocol)) {
    throw new InputError('openEnv.url', show(url), 'an address like http://127.0.0.1:8000')
  }
  return `${url.replace(/^http/, 'ws').replace(/\/+$/, '')}/ws`
}

class CapacityError extends Error {}

class Session {
  readonly #socket: TextSocket
  readonly #seconds: number

  constructor(socket: TextSocket, seconds: number) {
    this.#socket = socket
    this.#seconds = seconds
  }

  get isOpen(): boolean {
    return this.#socket.isOpen
  }

  reset(seed: number): Promise<OpenEnvObservation> {
    return this.#ask({ type: 'reset', data: { seed } })
  }

  step(action: Readonly<Record<string, unknown>>): Promise<OpenEnvObservation> {
    return this.#ask({ type: 'step', data: action })
  }

  close(): void {
    this.#socket.close()
  }

  async #ask(message: { readonly type: string; readonly data: object }): Promise<OpenEnvObservation> {
    const text = await this.#socket.ask(JSON.stringify(message), this.#seconds)
    let answer: { type?: unknown; data?: Record<string, unknown> }
    try {
      answer = JSON.parse(text)
    } catch {
      throw new Error(`${message.type}: got ${show(text)}, expected JSON`)
    }
    const { type, data } = answer
    if (type === 'error') {
      const told = `${message.type}: ${String(data?.message)} (${String(data?.code)})`
      throw data?.code === 'CAPACITY_REACHED' ? new CapacityError(told) : new Error(told)
    }
    const { observation, reward = null, done, metadata } = data ?? {}
    const isReward = reward === null || typeof reward === 'boolean' || Number.isFinite(reward)
    if (type !== 'observation' || typeof observation !== 'object' || observation === null || !isReward) {
      throw new Error(`${message.type}: got ${show(text)}, expected an observation with a reward`)
    }
    if (typeof done !== 'boolean') throw new Error(`${message.type}: got done ${show(done)}, expected true or false`)
    const nested = (observation as { metadata?: object }).metadata
    const { truncated = null } = { ...nested, ...(metadata as object) } as { truncated?: unknown }
    return {
      ...{ observation: observation as Record<string, unknown>, done },
      reward: reward === null ? null : Number(reward),
      truncated: typeof truncated === 'boolean' ? truncated : null,
    }
  }
}

/** Sessions for conversations, each used by one at a time. */
class SessionPool {
  readonly #url: string
  readonly #seconds: number
  readonly #free: Session[] = []
  readonly #waiting: (() => void)[] = []
  #most: number
  #count = 0
  /** Closes the session of a conversation that ended without a last reply, for lack of context, when it is garbage-collected. */
  readonly #lost = new FinalizationRegistry((socket: TextSocket) => {
    socket.close()
    this.#count--
    this.#waiting.shift()?.()
  })
  #isClosed = false

  constructor(url: string, most: number, seconds: number) {
    this.#url = url
    this.#most = most
    this.#seconds = seconds
  }

  /** Runs work with a session. An aborted session is closed, because its state is unknown. */
  async use<T>(work: (session: Session) => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (;;) {
      const session = await this.#take()
      const stop = () => session.close()
      signal?.addEventListener('abort', stop, { once: true })
      let isFull = false
      try {
        if (signal?.aborted) throw new Error('its result is no longer needed')
        return await work(session)
      } catch (error) {
        // A full server reports it on the first request.
        isFull = error instanceof CapacityError && this.#count > 1
        if (!isFull) {
          session.close()
          throw error
        }
        this.#most = this.#count - 1
        session.close()
      } finally {
        signal?.removeEventListener('abort', stop)
        this.#giveBack(session)
      }
    }
  }

  close(): void {
    this.#isClosed = true
    for (const session of this.#free) session.close()
    for (const goOn of this.#waiting) goOn()
  }

  async #take(): Promise<Session> {
    for (;;) {
      if (this.#isClosed) throw new Error(`${this.#url}: it was closed here`)
      const free = this.#free.pop()
      if (free?.isOpen) return free
      if (free !== undefined) {
        this.#lost.unregister(free)
        this.#count--
      } else if (this.#count < this.#most) break
      else await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
    this.#count++
    try {
      const socket = await TextSocket.connect(this.#url, this.#seconds)
      const session = new Session(socket, this.#seconds)
      this.#lost.register(session, socket, session)
      return session
    } catch (cause) {
      this.#count--
      this.#waiting.shift()?.()
      const expected = 'an OpenEnv server that answers'
      throw new InputError('openEnv', (cause as Error).message, expected, { cause })
    }
  }

  #giveBack(session: Session): void {
    if (session.isOpen && !this.#isClosed) this.#free.push(session)
    else {
      this.#lost.unregister(session)
      session.close()
      this.#count--
    }
    this.#waiting.shift()?.()
  }
}
