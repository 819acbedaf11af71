/**
 * Agents: text environments that are written as one asynchronous function, which calls the model as often as it wants and
 * in between does what it likes: asks tools, awaits others, counts. Each of its calls is a turn of the conversation, so an
 * agent is a lane of the cohort, a thousand of them advance in one batch, and what the model says is recorded by its ids.
 *
 * A run that is resumed begins its agents anew and hands them the answers that they had: up to there an agent has to do the
 * same again.
 */
import type { Factory, Parts } from '../definition.ts'
import { InputError } from '../errors.ts'
import type { Settings, SettingValues } from '../settings.ts'
import {
  defineTextEnvironment,
  type Example,
  type Message,
  type Reply,
  type TextEnvironmentDefinition,
  type TextEnvironmentModel,
  type Turn,
} from './text.ts'

/** What an agent says to the model before a turn of it. */
export interface ModelCall {
  /** None before the first turn, which answers the example's prompt; at least one before each later turn. */
  readonly messages?: readonly Message[]
  /** What the turn before was worth, where the cohort's `rewardReduction` asks for it; default 0. */
  readonly reward?: number
}

/** What an agent is given. */
export interface AgentContext {
  readonly example: Example
  readonly exampleIndex: number
  /**
   * Lets the model take a turn. It never settles where the conversation has no room for another one, or is broken off.
   * @throws InputError for a second call before the first has settled, and for messages where there can be none, or must be some.
   */
  generate(call?: ModelCall): Promise<Turn>
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
  /** Agents that wait for a turn, by the last message before it: the object that the agent gave. */
  const waiting = new WeakMap<Message, RunningAgent>()
  return async (turn) => {
    const found = turn.turn === 0 ? undefined : waiting.get(turn.messages.at(-1)!)
    const agent = found ?? (await begin(id, run, turn))
    const reply = await agent.goOn(turn)
    if (reply.messages !== undefined) waiting.set(reply.messages.at(-1)!, agent)
    return reply
  }
}

/** Begins an agent, and hands it the turns before this one, where there are any: in a run that was resumed. */
async function begin(id: string, run: AgentModel['run'], turn: Turn): Promise<RunningAgent> {
  const agent = new RunningAgent(id, run, turn)
  const { messages } = turn
  const spoken = messages.flatMap(({ role }, i) => (role === 'assistant' ? [i] : []))
  for (const [number, at] of spoken.slice(spoken.length - turn.turn).entries()) {
    const completion = messages[at]!.content ?? ''
    const before = { ...turn, completion, raw: completion, turn: number, messages: messages.slice(0, at) }
    const reply = await agent.goOn(before)
    if (reply.messages !== undefined) continue
    const got = `an agent that ended after turn ${number} when it was begun again`
    throw new InputError(`agent ${id}`, got, 'one that does the same again, where a run is resumed')
  }
  return agent
}

/** An agent at work: each turn that it is handed leads to its next call, or to its end. */
class RunningAgent {
  readonly #id: string
  readonly #run: () => Promise<AgentResult>
  #hasBegun = false
  /** The first turn, until the agent has asked for it. */
  #first: Turn | null = null
  /** Takes the turn that the agent waits for; null while it waits for none. */
  #take: ((turn: Turn) => void) | null = null
  /** Takes what the agent does next. */
  #reply: { readonly resolve: (reply: Reply) => void; readonly reject: (cause: unknown) => void } | null = null

  constructor(id: string, run: AgentModel['run'], { example, exampleIndex }: Turn) {
    this.#id = id
    this.#run = () => run({ example, exampleIndex, generate: (call) => this.#generate(call) })
  }

  /** Hands the agent a turn. Settles with the messages of its next call, or with what came of all. */
  goOn(turn: Turn): Promise<Reply> {
    return new Promise((resolve, reject) => {
      this.#reply = { resolve, reject }
      if (this.#hasBegun) return this.#take?.(turn)
      this.#hasBegun = true
      this.#first = turn
      this.#run().then(
        (result) => this.#reply!.resolve(result),
        (cause) => this.#reply!.reject(cause),
      )
    })
  }

  #generate({ messages = [], reward = 0 }: ModelCall = {}): Promise<Turn> {
    const refuse = (got: string, expected: string) =>
      Promise.reject(new InputError(`generate of agent ${this.#id}`, got, expected))
    const first = this.#first
    if (first !== null) {
      if (messages.length > 0) return refuse('messages before the first turn', 'none: it answers the prompt')
      this.#first = null
      return Promise.resolve(first)
    }
    if (this.#take !== null) return refuse('a call before the last one has settled', 'one after another')
    if (messages.length === 0) return refuse('no message', 'at least one that the model answers')
    return new Promise((resolve) => {
      this.#take = (turn) => {
        this.#take = null
        resolve(turn)
      }
      this.#reply!.resolve({ reward, messages: messages.map((message) => ({ ...message })) })
    })
  }
}
