/**
 * Agents: text environments written as one asynchronous function, which calls the model as often as it wants and does anything in
 * between, like using tools or waiting. Each call is a turn of the conversation, so an agent is a lane of the cohort, a thousand of them
 * advance in one batch, and the model's output is recorded as ids.
 *
 * A resumed run starts its agents again and replays the earlier answers. Up to that point an agent must act the same again.
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
 * An agent's messages before a turn of the model, and the turn's sampling. The example defines both for the first turn. A turn sampled
 * from another distribution than the cohort's is not trained on.
 */
export interface ModelCall extends TurnSampling {
  /** Empty before the first turn, which answers the example's prompt, and with `again`; otherwise at least one. */
  readonly messages?: readonly Message[]
  /** Reward of the previous turn, if the cohort's `rewardReduction` uses it; default 0. */
  readonly reward?: number
  /** Maximum tokens of the turn; default: the example's or the cohort's. Not allowed for the first turn. */
  readonly maxTokens?: number
  /** The model answers the last prompt again, in a new turn and segment. */
  readonly again?: boolean
  /** The turn that `messages` follow, if one call had several answers; default: the last one. */
  readonly stands?: number
}

/** A turn of the model as sampled. */
export type ModelAnswer = Turn & PastTurn

/** The inputs of an agent. */
export interface AgentContext {
  readonly example: Example
  readonly exampleIndex: number
  /** Aborted when the agent's result is no longer needed: its reply is late, or the run ends. */
  readonly signal: AbortSignal
  /**
   * Lets the model take a turn. The promise never settles if the conversation has no room for another turn or is aborted.
   * @throws InputError for a second call before the first has settled, and for forbidden or missing messages.
   */
  generate(call?: ModelCall): Promise<ModelAnswer>
  /**
   * Lets the model answer one call several times in succession, while other lanes continue. Each answer is a turn and a segment; the next
   * call follows the last one unless it sets `stands`.
   * @throws InputError if the number is not a whole number ≥ 1, and as `generate` does.
   */
  generateSeveral(numAnswers: number, call?: ModelCall): Promise<ModelAnswer[]>
}

/** The result of an agent: a reward, or null with the reason if it is unknown. */
export type AgentResult = Pick<Reply, 'reward' | 'components' | 'error'>

/** The result of an agent's `make`: an environment whose replies come from one function. */
export interface AgentModel extends Omit<TextEnvironmentModel, 'respond' | 'together' | 'repliesInTime'> {
  /** Runs the conversation and returns the result. If it throws, the reward is unknown, with the exception as the reason. */
  run(context: AgentContext): Promise<AgentResult>
}

/**
 * Defines an agent: a text environment.
 * @throws InputError on creation, for wrong numbers.
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
  /** Agents that wait for a turn, keyed by an object that only their conversation has: the last message, or the list of messages. */
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

/** Starts an agent, and in a resumed run replays the earlier turns. */
async function begin(id: string, run: AgentModel['run'], turn: Turn, signal: AbortSignal): Promise<RunningAgent> {
  const agent = new RunningAgent(id, run, turn)
  const { example, exampleIndex, messages, past } = turn
  let numMessages = typeof example.prompt === 'string' ? 1 : example.prompt.length
  for (let number = 0; number < turn.turn; number++) {
    if (past === undefined) {
      throw new InputError(`agent ${id}`, `turn ${turn.turn} without the earlier turns`, 'a turn with past')
    }
    const before = { example, exampleIndex, turn: number, messages: messages.slice(0, numMessages) }
    const { messages: said, again } = await agent.goOn({ ...before, ...past(number), past: () => past(number) }, signal)
    if (said !== undefined) numMessages += 1 + said.length
    else if (again !== true) {
      const got = `an agent that ended after turn ${number} when it was begun again`
      throw new InputError(`agent ${id}`, got, 'the same calls as before the run was resumed')
    }
  }
  return agent
}

/** A running agent: each turn that it receives leads to its next call or to its end. */
class RunningAgent {
  readonly #id: string
  /** Null after its start. */
  #run: (() => Promise<AgentResult>) | null
  /** Resolves the result; null while it runs. */
  #end: (() => void) | null = null
  /** The first turn, until the agent requests it. */
  #first: ModelAnswer | null = null
  /** Receives the turn that the agent waits for; null if it does not wait. */
  #take: ((turn: Turn) => void) | null = null
  /** Receives the agent's next action. */
  #reply: { readonly resolve: (reply: Reply) => void; readonly reject: (cause: unknown) => void } | null = null

  readonly #stop = new AbortController()
  /** The signal of the last turn. */
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

  /** Whether its result is no longer needed; another request starts it again. */
  get isAborted(): boolean {
    return this.#stop.signal.aborted
  }

  /** Gives the agent a turn. Settles with the messages of its next call, or with its result. */
  goOn(turn: Turn, signal: AbortSignal): Promise<Reply> {
    if (signal !== this.#signal) signal.addEventListener('abort', () => this.#stop.abort(), { once: true })
    this.#signal = signal
    return new Promise((resolve, reject) => {
      this.#reply = { resolve, reject }
      if (this.#run === null) {
        // It may have ended during the model's turn, for example by two calls at once.
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
      if (reward !== 0) return refuse('a reward before the first turn', 'a reward after the first turn')
      this.#first = null
      return Promise.resolve(first)
    }
    if (this.#take !== null) return refuse('a call before the last one has settled', 'one call at a time')
    if (again && messages.length > 0) return refuse('messages and again', 'one of them')
    if (again && stands !== undefined) return refuse('stands and again', 'one of them')
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

/** The sampling fields of a call; undefined if it has none. */
function samplingOf({ temperature, topK, topP, minP, stopStrings }: ModelCall): TurnSampling | undefined {
  const given = Object.entries({ temperature, topK, topP, minP, stopStrings }).filter(
    ([, value]) => value !== undefined,
  )
  return given.length === 0 ? undefined : Object.fromEntries(given)
}

/** The sampling data of a turn that no cohort made. */
const UNKNOWN = { ids: [], logprobs: [], versions: [] } as const

function answerOf(turn: Turn): ModelAnswer {
  return { ...UNKNOWN, ...turn.past?.(), ...turn }
}
