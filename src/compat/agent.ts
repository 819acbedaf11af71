/**
 * Agents as other systems write them: an object that puts what it asks of the model into one queue, takes what the model answered
 * from another, and in between asks an environment. Here it is a `defineAgent`: each observation is a call of the model, so a
 * thousand agents advance in one batch, and what the model says is recorded by its ids. An agent returns what came of it.
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

/** What an agent asks of the model. */
export interface AgentObservation {
  /** The prompt's, as it was given. */
  readonly qid: string
  /** What is said to the model before it answers: none the first time, when it answers the prompt; at least one later. */
  readonly messages?: readonly Message[]
}

/** What the model answered. */
export interface GenerationOutputs {
  readonly qid: string
  /** The answers in words, without the tokens that ended them. */
  readonly outputs: readonly string[]
  /** True for those that were cut off before the model ended them. */
  readonly noEos: readonly boolean[]
  /** The turn that it was. */
  readonly turn: Turn
}

/** What an agent is given. */
export interface TrajectoryContext {
  readonly prompt: { readonly qid: string; readonly example: Example; readonly messages: readonly Message[] }
  readonly env: CheckedService<unknown, unknown>
  /** Settles when the model has been asked. @throws InputError for an observation of another prompt. */
  readonly obsQueue: { put(observation: AgentObservation): Promise<void> }
  /**
   * Settles with the next answer, in the order of the observations.
   * @throws InputError where nothing was asked that has not been answered.
   */
  readonly actQueue: { get(): Promise<GenerationOutputs> }
}

/** Who converses with the model about a prompt. */
export interface Agent {
  /** Converses, and says what came of it. What it throws is the reason for a reward that cannot be told. */
  collectTrajectory(context: TrajectoryContext): Promise<AgentResult>
}

/** Makes an agent from its arguments: a function, or a class. */
export type AgentFactory = ((args: never) => Agent) | (new (args: never) => Agent)

const agents = new Map<string, (args: never) => Agent>()

/** Lets `makeAgent` find an agent by its name. @throws InputError for a name that is taken. */
export function registerAgent(name: string, factory: AgentFactory): void {
  const isClass = typeof factory === 'function' && /^class\b/.test(Function.prototype.toString.call(factory))
  const make = isClass ? (args: never) => new (factory as new (args: never) => Agent)(args) : factory
  register('agent', agents, name, make as (args: never) => Agent)
}

/** The registered agent of that name. @throws InputError that names the nearest one, and for what is no agent. */
export function makeAgent(abstraction: Abstraction): Agent {
  const agent = made('agent', agents, abstraction)
  if (typeof agent?.collectTrajectory === 'function') return agent
  throw new InputError(`agent ${abstraction.type}, collectTrajectory`, show(agent?.collectTrajectory), 'a function')
}

/** Which agent, in which environment, on which prompts. */
export interface AgentEnvironmentOptions extends ServiceOptions {
  /** The environment's id; default `text/` and the agent's name. */
  readonly id?: string
  readonly agent: Abstraction
  readonly env: Abstraction
  readonly examples: readonly Example[]
  /** Turns of the model in a conversation, at most: a whole number ≥ 1, default 1. */
  readonly maxTurns?: number
  /** Tokens of a turn, at most; default 64. */
  readonly maxTokens?: number
  /** Characters that prompts, answers and what agents say are made of, if they are few. */
  readonly alphabet?: string
}
const OPTIONS = ['id', 'agent', 'env', 'examples', 'maxTurns', 'maxTokens', 'alphabet', 'stepSeconds', 'time']

/**
 * The text environment whose conversations such an agent leads, each with an agent and an environment of its own.
 * @throws InputError for an agent or an environment that is not registered, and where there is no example.
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
  makeAgent(agent) // Refused now, not in the middle of a training.
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
        answer.catch(() => {}) // Whoever gets it is told.
        last = answer
        answers.push(answer)
      },
    },
    actQueue: {
      async get() {
        const answer = answers.shift()
        if (answer === undefined) throw new InputError('actQueue.get', 'no observation before it', 'one that was put')
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
