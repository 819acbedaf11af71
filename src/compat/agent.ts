/**
 * Agents as in other systems: an object that puts model calls into one queue, takes answers from another, and calls an
 * environment in between. It is adapted to `defineAgent`: each observation is a model call, so a thousand agents
 * advance in one batch, and the model's ids are recorded. An agent returns its result.
 */
import { checkOptions, InputError, show } from '../base/errors.ts'
import type { Example, Message, TextEnvironmentDefinition, Turn } from '../environments/text.ts'
import { type AgentResult, defineAgent } from '../environments/tools/agent.ts'
import {
  type Abstraction,
  type CheckedService,
  made,
  makeEnvironment,
  register,
  type ServiceOptions,
} from './environment-service.ts'

/** A model call of an agent. */
export interface AgentObservation {
  /** The id of the given prompt. */
  readonly qid: string
  /** Messages before the model's answer: none the first time, when it answers the prompt; then at least one. */
  readonly messages?: readonly Message[]
}

/** The model's answer to an observation. */
export interface GenerationOutputs {
  readonly qid: string
  /** The answers' texts, without end tokens. */
  readonly outputs: readonly string[]
  /** True for answers that were cut off. */
  readonly noEos: readonly boolean[]
  readonly turn: Turn
}

/** An agent's two queues, to and from the model. */
export interface TrajectoryContext {
  readonly prompt: { readonly qid: string; readonly example: Example; readonly messages: readonly Message[] }
  readonly env: CheckedService<unknown, unknown>
  /** Settles when the model was called. @throws InputError for an observation of another prompt. */
  readonly obsQueue: { put(observation: AgentObservation): Promise<void> }
  /** Settles with the next answer, in order. @throws InputError if every observation was answered. */
  readonly actQueue: { get(): Promise<GenerationOutputs> }
}

/** Converses with the model about a prompt. */
export interface Agent {
  /** Converses, and returns the result. An exception makes the reward unknown, with its reason. */
  collectTrajectory(context: TrajectoryContext): Promise<AgentResult>
}

/** Makes an agent from its arguments: a function, or a class. */
export type AgentFactory = ((args: never) => Agent) | (new (args: never) => Agent)

const agents = new Map<string, (args: never) => Agent>()

/** Registers an agent for `makeAgent`. @throws InputError for a name that is taken. */
export function registerAgent(name: string, factory: AgentFactory): void {
  const isClass = typeof factory === 'function' && /^class\b/.test(Function.prototype.toString.call(factory))
  const make = isClass ? (args: never) => new (factory as new (args: never) => Agent)(args) : factory
  register('agent', agents, name, make as (args: never) => Agent)
}

/** Makes a registered agent. @throws InputError that names the nearest name, and for an invalid agent. */
export function makeAgent(abstraction: Abstraction): Agent {
  const agent = made('agent', agents, abstraction)
  if (typeof agent?.collectTrajectory === 'function') return agent
  throw new InputError(`agent ${abstraction.type}, collectTrajectory`, show(agent?.collectTrajectory), 'a function')
}

/** An agent by name, its environment, its examples and its limits. */
export interface AgentEnvironmentOptions extends ServiceOptions {
  /** The environment's id; default `text/` and the agent's name. */
  readonly id?: string
  readonly agent: Abstraction
  readonly env: Abstraction
  readonly examples: readonly Example[]
  /** Maximum model turns per conversation: a whole number ≥ 1, default 1. */
  readonly maxTurns?: number
  /** Maximum tokens per turn; default 64. */
  readonly maxTokens?: number
  /** Characters of all texts, if they are few. */
  readonly alphabet?: string
}
const OPTIONS = ['id', 'agent', 'env', 'examples', 'maxTurns', 'maxTokens', 'alphabet', 'stepSeconds', 'time']

/**
 * A text environment with such an agent and its environment for each conversation.
 * @throws InputError for an unregistered agent or environment, and without examples.
 * @example
 * registerAgent('math-multi-turn', MathMultiTurnAgent)
 * registerEnvironment('math', () => new MathEnvironment())
 * const environment = agentEnvironment({ agent: { type: 'math-multi-turn' }, env: { type: 'math' }, examples, maxTurns: 5 })
 */
export function agentEnvironment(options: AgentEnvironmentOptions): TextEnvironmentDefinition {
  checkOptions('agentEnvironment', options, OPTIONS)
  const { agent, env, examples, id = `text/${agent?.type}`, maxTurns = 1, maxTokens, alphabet, ...service } = options
  const { stepSeconds, time } = service
  const timing = { ...(stepSeconds === undefined ? {} : { stepSeconds }), ...(time === undefined ? {} : { time }) }
  makeAgent(agent) // Refused now, not during a training.
  void makeEnvironment(env, timing).close()
  if (!Array.isArray(examples) || examples.length === 0)
    throw new InputError('examples', show(examples), 'at least one')
  const make = defineAgent({
    id,
    settings: {},
    make: () => ({
      numExamples: examples.length,
      maxTurns,
      ...(maxTokens === undefined ? {} : { maxTokens }),
      ...(alphabet === undefined ? {} : { alphabet }),
      example: (index: number) => examples[index]!,
      async run({ example, exampleIndex, generate }) {
        const services = makeEnvironment(env, timing)
        const prompt = { qid: String(exampleIndex), example, messages: messagesOf(example) }
        try {
          return await makeAgent(agent).collectTrajectory({ prompt, env: services, ...queues(prompt.qid, generate) })
        } finally {
          await services.close()
        }
      },
    }),
  })
  return make()
}

/** The two queues between an agent and the model, which answers one call after another. */
function queues(
  qid: string,
  generate: (call: { messages: readonly Message[] }) => Promise<Turn>,
): Pick<TrajectoryContext, 'obsQueue' | 'actQueue'> {
  const answers: Promise<GenerationOutputs>[] = []
  let last: Promise<unknown> = Promise.resolve()
  return {
    obsQueue: {
      async put(observation) {
        checkOptions('an observation', observation, ['qid', 'messages'])
        if (observation.qid !== qid) throw new InputError('observation, qid', show(observation.qid), show(qid))
        const { messages = [] } = observation
        const answer = last.then(async () => outputsOf(qid, await generate({ messages })))
        answer.catch(() => {}) // The caller of get() receives it.
        last = answer
        answers.push(answer)
      },
    },
    actQueue: {
      async get() {
        const answer = answers.shift()
        if (answer === undefined)
          throw new InputError('actQueue.get', 'no observation before it', 'an observation that was put')
        return answer
      },
    },
  }
}

function outputsOf(qid: string, turn: Turn): GenerationOutputs {
  return { qid, outputs: [turn.completion], noEos: [turn.stopReason !== 'stop'], turn }
}

function messagesOf({ prompt }: Example): readonly Message[] {
  return typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt
}
