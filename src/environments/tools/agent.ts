/**
 * Agents: text environments that are written as one asynchronous function, which calls the model as often as it wants and
 * in between does what it likes: asks tools, awaits others, counts. Each of its calls is a turn of the conversation, so an
 * agent is a lane of the cohort, a thousand of them advance in one batch, and what the model says is recorded by its ids.
 *
 * A run that is resumed begins its agents anew and hands them the answers that they had: up to there an agent has to do the
 * same again.
 */
import type { Factory, Parts } from '../../base/definition.ts'
import { checkCount, InputError, show } from '../../base/errors.ts'
import type { Settings, SettingValues } from '../../base/settings.ts'
import {
  defineTextEnvironment,
  type Example,
  type Message,
  type PastTurn,
  type Reply,
  type TextEnvironmentDefinition,
  type TextEnvironmentModel,
  type Turn,
  type TurnSampling,
} from '../text.ts'

/**
 * What an agent says to the model before a turn of it, and how that turn is drawn. Of the first turn the example says how. Of a turn
 * that is drawn from another distribution than the cohort's nothing is learned.
 */
export interface ModelCall extends TurnSampling {
  /** None before the first turn, which answers the example's prompt, and where the model answers again; else at least one. */
  readonly messages?: readonly Message[]
  /** What the turn before was worth, where the cohort's `rewardReduction` asks for it; default 0. */
  readonly reward?: number
  /** Tokens of the turn, at most; default what the example or the cohort says. Of the first turn the example says it. */
  readonly maxTokens?: number
  /** The model answers once more what it has just answered: in a turn and a row of its own. */
  readonly again?: boolean
  /** Of several answers to one call the turn that `messages` follow; default the last one. */
  readonly stands?: number
}

/** A turn of the model, with what it was sampled as. */
export type ModelAnswer = Turn & PastTurn

/** What an agent is given. */
export interface AgentContext {
  readonly example: Example
  readonly exampleIndex: number
  /** Aborted when nobody waits for the agent any longer: its reply is late, or the run ends. */
  readonly signal: AbortSignal
  /**
   * Lets the model take a turn. It never settles where the conversation has no room for another one, or is broken off.
   * @throws InputError for a second call before the first has settled, and for messages where there can be none, or must be some.
   */
  generate(call?: ModelCall): Promise<ModelAnswer>
  /**
   * Lets the model answer one call several times, one answer after another; other lanes go on meanwhile. Each answer is a turn, and
   * a row of its own, and the last one stands unless the next call says which (`stands`).
   * @throws InputError for a number that is no whole number ≥ 1, and as `generate` does.
   */
  generateSeveral(numAnswers: number, call?: ModelCall): Promise<ModelAnswer[]>
}

/** What came of it: a reward that is null where it cannot be told, and why. */
export type AgentResult = Pick<Reply, 'reward' | 'components' | 'error'>

/** What the maker of an agent returns: an environment whose replies are one function's. */
export interface AgentModel extends Omit<TextEnvironmentModel, 'respond' | 'together' | 'repliesInTime'> {
  /** Converses, and says what came of it. What it throws is the reason for a reward that cannot be told. */
  run(context: AgentContext): Promise<AgentResult>
}

/**
 * Defines an agent: a text environment.
 * @throws InputError where its numbers are wrong, when the environment is made.
 * @example
 * export const patient = defineAgent({
 *   id: 'text/patient',
 *   module: import.meta.url,
 *   settings: {},
 *   make: () => ({
 *     numExamples: 10,
 *     maxTurns: 3,
 *     example: (index) => ({ prompt: `${index}+1=`, answer: `${index + 1}` }),
 *     async run({ example, generate }) {
 *       let turn = await generate()
 *       for (let tries = 1; turn.completion !== example.answer && tries < 3; tries++) {
 *         turn = await generate({ messages: [{ role: 'user', content: 'no: ' }] })
 *       }
 *       return { reward: turn.completion === example.answer ? 1 - turn.turn / 4 : 0 }
 *     },
 *   }),
 * })
 */
export function defineAgent<S extends Settings>(options: {
  id: string
  module?: string
  settings: S
  make(parameters: SettingValues<S>, parts: Parts): AgentModel
}): Factory<S, TextEnvironmentDefinition> {
  return defineTextEnvironment({
    ...options,
    make(parameters, parts) {
      const { run, ...model } = options.make(parameters, parts)
      return { ...model, respond: respondBy(options.id, run) }
    },
  })
}

function respondBy(id: string, run: AgentModel['run']): TextEnvironmentModel['respond'] {
  /** Agents that wait for a turn, by an object of their conversation alone: their last message, or the list of all. */
  const waiting = new WeakMap<object, RunningAgent>()
  return async (turn, signal) => {
    const { messages } = turn
    const found = turn.turn === 0 ? undefined : (waiting.get(messages) ?? waiting.get(messages.at(-1)!))
    const agent = found === undefined || found.isAborted ? await begin(id, run, turn, signal) : found
    const reply = await agent.goOn(turn, signal)
    const next = reply.again === true ? messages : reply.messages?.at(-1)
    if (next !== undefined) waiting.set(next, agent)
    return reply
  }
}

/** Begins an agent, and hands it the turns before this one, where there are any: in a run that was resumed. */
async function begin(id: string, run: AgentModel['run'], turn: Turn, signal: AbortSignal): Promise<RunningAgent> {
  const agent = new RunningAgent(id, run, turn)
  const { example, exampleIndex, messages, past } = turn
  let numMessages = typeof example.prompt === 'string' ? 1 : example.prompt.length
  for (let number = 0; number < turn.turn; number++) {
    if (past === undefined) {
      throw new InputError(`agent ${id}`, `turn ${turn.turn} without those before`, 'a turn with past')
    }
    const before = { example, exampleIndex, turn: number, messages: messages.slice(0, numMessages) }
    const { messages: said, again } = await agent.goOn({ ...before, ...past(number), past: () => past(number) }, signal)
    if (said !== undefined) numMessages += 1 + said.length
    else if (again !== true) {
      const got = `an agent that ended after turn ${number} when it was begun again`
      throw new InputError(`agent ${id}`, got, 'one that does the same again, where a run is resumed')
    }
  }
  return agent
}

/** An agent at work: each turn that it is handed leads to its next call, or to its end. */
class RunningAgent {
  readonly #id: string
  /** Null when it has begun. */
  #run: (() => Promise<AgentResult>) | null
  /** Tells whoever waits what came of it; null while it is at work. */
  #end: (() => void) | null = null
  /** The first turn, until the agent has asked for it. */
  #first: ModelAnswer | null = null
  /** Takes the turn that the agent waits for; null while it waits for none. */
  #take: ((turn: Turn) => void) | null = null
  /** Takes what the agent does next. */
  #reply: { readonly resolve: (reply: Reply) => void; readonly reject: (cause: unknown) => void } | null = null

  readonly #stop = new AbortController()
  /** That of the turn that it was handed last. */
  #signal: AbortSignal | null = null

  constructor(id: string, run: AgentModel['run'], { example, exampleIndex }: Turn) {
    const { signal } = this.#stop
    this.#id = id
    this.#run = () =>
      run({
        ...{ example, exampleIndex, signal },
        generate: (call) => this.#generate(call),
        generateSeveral: (numAnswers, call) => this.#generateSeveral(numAnswers, call),
      })
  }

  /** True where nobody waits for it any longer: whoever asks again begins it anew. */
  get isAborted(): boolean {
    return this.#stop.signal.aborted
  }

  /** Hands the agent a turn. Settles with the messages of its next call, or with what came of all. */
  goOn(turn: Turn, signal: AbortSignal): Promise<Reply> {
    if (signal !== this.#signal) signal.addEventListener('abort', () => this.#stop.abort(), { once: true })
    this.#signal = signal
    return new Promise((resolve, reject) => {
      this.#reply = { resolve, reject }
      if (this.#run === null) {
        // It may have ended while the model had the turn, as one does that calls twice at once.
        this.#take?.(turn)
        this.#end?.()
        return
      }
      const run = this.#run
      this.#run = null
      this.#first = answerOf(turn)
      run().then(
        (result) => this.#endBy(() => this.#reply!.resolve(result)),
        (cause) => this.#endBy(() => this.#reply!.reject(cause)),
      )
    })
  }

  #endBy(end: () => void): void {
    this.#end = end
    end()
  }

  #generate(call: ModelCall = {}): Promise<ModelAnswer> {
    const { messages = [], reward = 0, maxTokens, again = false, stands } = call
    const sampling = samplingOf(call)
    const refuse = (got: string, expected: string) =>
      Promise.reject(new InputError(`generate of agent ${this.#id}`, got, expected))
    const first = this.#first
    if (first !== null) {
      if (messages.length > 0) return refuse('messages before the first turn', 'none: it answers the prompt')
      if (again) return refuse('again before the first turn', 'a turn that answers the prompt')
      if (maxTokens !== undefined) return refuse('maxTokens of the first turn', "the example's maxTokens")
      if (sampling !== undefined) return refuse(`${show(sampling)} of the first turn`, "the example's sampling")
      if (stands !== undefined) return refuse('stands before the first turn', 'a turn that answers the prompt')
      if (reward !== 0) return refuse('a reward before the first turn', 'that of a turn before')
      this.#first = null
      return Promise.resolve(first)
    }
    if (this.#take !== null) return refuse('a call before the last one has settled', 'one after another')
    if (again && messages.length > 0) return refuse('messages, and again', 'one of the two')
    if (again && stands !== undefined) return refuse('stands, and again', 'one of the two')
    if (!again && messages.length === 0) return refuse('no message', 'at least one that the model answers')
    const settings = {
      ...(maxTokens === undefined ? {} : { maxTokens }),
      ...(sampling === undefined ? {} : { sampling }),
      ...(stands === undefined ? {} : { stands }),
    }
    const said = again ? { again } : { messages: messages.map((message) => ({ ...message })) }
    return new Promise((resolve) => {
      this.#take = (turn) => {
        this.#take = null
        resolve(answerOf(turn))
      }
      this.#reply!.resolve({ reward, ...said, ...settings })
    })
  }

  async #generateSeveral(numAnswers: number, call?: ModelCall): Promise<ModelAnswer[]> {
    checkCount(`generateSeveral of agent ${this.#id}`, numAnswers)
    const answers = [await this.#generate(call)]
    const { messages: _, reward: __, stands: ___, ...drawn } = call ?? {}
    while (answers.length < numAnswers) answers.push(await this.#generate({ ...drawn, again: true }))
    return answers
  }
}

/** What of a call says how its turn is drawn; undefined where nothing does. */
function samplingOf({ temperature, topK, topP, minP, stopStrings }: ModelCall): TurnSampling | undefined {
  const given = Object.entries({ temperature, topK, topP, minP, stopStrings }).filter(
    ([, value]) => value !== undefined,
  )
  return given.length === 0 ? undefined : Object.fromEntries(given)
}

/** Nobody knows how a turn was sampled that no cohort has made. */
const UNKNOWN = { ids: [], logprobs: [], versions: [] } as const

function answerOf(turn: Turn): ModelAnswer {
  return { ...UNKNOWN, ...turn.past?.(), ...turn }
}
