/** Runs agents (functions or programs), with session, task and time limit. A failure makes the reward unknown. */
import { spawn } from 'node:child_process'
import { variablesForOthers } from '../../base/environment-variables.ts'
import { checkCount, checkOptions, InputError, show } from '../../base/errors.ts'
import { parseObject } from '../../base/files/files.ts'
import type { Example, Reply, TextEnvironmentDefinition, Turn } from '../../environments/text.ts'
import { judge, type Reward } from '../../language/rewards/reward.ts'
import type { Gateway } from './gateway.ts'
import type { EndedSession, SessionPlace, SessionReward } from './sessions.ts'

/** The input of an agent that is a function. */
export interface AgentRun {
  readonly task: Example
  readonly taskIndex: number
  /** Base URLs for clients of OpenAI and of Anthropic, and the key for both. */
  readonly openaiUrl: string
  readonly anthropicUrl: string
  readonly apiKey: string
  /** Aborts when the caller no longer waits for the agent. */
  readonly signal: AbortSignal
}

/** The reward that a function returns; undefined if `reward` judges, or the reward was sent over HTTP. */
export type AgentSays = number | SessionReward | undefined

/** Options of `runAgents`: `run` or `command`. */
export interface RunAgentsOptions {
  readonly gateway: Gateway
  /**
   * The agents' tasks, in turn; default: the examples of `environment`. Trainers identify a task by index: their world
   * needs the same examples.
   */
  readonly tasks?: readonly Example[]
  /** Its reply to the last answer rewards an agent that gives no reward, if the environment has one turn. */
  readonly environment?: TextEnvironmentDefinition
  /** An agent. An exception is the reason for an unknown reward. */
  readonly run?: (run: AgentRun) => Promise<AgentSays> | AgentSays
  /**
   * A program and its arguments. Its environment has the task as JSON in `COLONNADE_TASK`, and `OPENAI_BASE_URL`,
   * `OPENAI_API_KEY`, `ANTHROPIC_BASE_URL` and `ANTHROPIC_API_KEY` for clients. A last line of output like `{"reward":
   * 1}` is its reward.
   */
  readonly command?: readonly string[]
  /** Additional environment variables of `command`, and its working folder. */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** Judges the last answer, whatever the agent's own reward. */
  readonly reward?: Reward
  /** Agents per task; default 1. A trainer's `rl` sets its own. */
  readonly groupSize?: number
  /** Groups per `collect()`; default the number of tasks. */
  readonly groups?: number
  /** Seconds per agent; default 600. */
  readonly deadline?: number
  /** Concurrent agents; default 32. */
  readonly maxAgents?: number
}

const OPTIONS: readonly (keyof RunAgentsOptions)[] = [
  ...([
    'gateway',
    'tasks',
    'environment',
    'run',
    'command',
    'env',
    'cwd',
    'reward',
    'groupSize',
    'groups',
    'deadline',
  ] as const),
  'maxAgents',
]

/** How many agents ended, and how. */
export interface AgentCounts {
  readonly ended: number
  /** Of those: with unknown reward. */
  readonly unknown: number
  /** Of those: exceeded their time. */
  readonly late: number
  /** Agents without an answer of the model, which have no rows. */
  readonly silent: number
}

/** The place of a group's member; tasks take turns. */
export function placeOf(group: number, member: number, numTasks: number) {
  return { group, member, promptId: group % numTasks, epoch: Math.floor(group / numTasks) }
}

export class AgentRunner {
  readonly numTasks: number
  readonly gateway: Gateway
  readonly groupSize: number
  readonly groups: number
  readonly maxAgents: number
  readonly counts = { ended: 0, unknown: 0, late: 0, silent: 0 }
  readonly #options: RunAgentsOptions
  readonly #deadline: number

  constructor(options: RunAgentsOptions) {
    checkOptions('runAgents', options, OPTIONS)
    const { gateway, tasks, environment, run, command, reward, deadline = 600 } = options
    if (typeof gateway?.openSession !== 'function') throw new InputError('gateway', show(gateway), 'an open gateway')
    const isGiven = tasks === undefined ? environment !== undefined : Array.isArray(tasks) && tasks.length > 0
    if (!isGiven) throw new InputError('tasks', show(tasks), 'at least one task')
    if ((run === undefined) === (command === undefined)) {
      throw new InputError('runAgents', run === undefined ? 'neither run nor command' : 'both', 'either run or command')
    }
    if (run !== undefined && typeof run !== 'function') throw new InputError('run', show(run), 'a function')
    const isCommand = Array.isArray(command) && command.length > 0 && command.every((word) => typeof word === 'string')
    if (command !== undefined && !isCommand)
      throw new InputError('command', show(command), 'a program and its arguments')
    if (reward !== undefined && typeof reward !== 'function') throw new InputError('reward', show(reward), 'a reward')
    if (!(deadline > 0 && deadline < 2 ** 31 / 1000))
      throw new InputError('deadline', show(deadline), 'seconds above 0')
    const numTasks = tasks?.length ?? environment!.numExamples
    const { groupSize = 1, groups = numTasks, maxAgents = 32 } = options
    for (const [name, value] of Object.entries({ groupSize, groups, maxAgents })) checkCount(name, value)
    this.#options = options
    this.#deadline = deadline
    this.gateway = gateway
    this.numTasks = numTasks
    this.groupSize = groupSize
    this.groups = groups
    this.maxAgents = maxAgents
  }

  /** Runs a place's agent to its end or time limit. Never fails: an error is the reason for an unknown reward. */
  async run(place: Partial<SessionPlace> & { readonly promptId: number }, signal: AbortSignal): Promise<EndedSession> {
    const { tasks, environment } = this.#options
    const task = tasks === undefined ? environment!.example(place.promptId) : tasks[place.promptId]!
    const session = this.gateway.openSession(place)
    const late = AbortSignal.timeout(Math.ceil(1000 * this.#deadline))
    const over = AbortSignal.any([signal, late])
    const run = {
      ...{ task, taskIndex: place.promptId, signal: over, apiKey: session.key },
      ...{ openaiUrl: session.openaiUrl, anthropicUrl: session.anthropicUrl },
    }
    let worth: SessionReward
    try {
      const says = await orOver(this.#agent(run), over)
      const { reward } = this.#options
      const { completion } = session
      if (reward !== undefined) worth = await this.#judge(reward, task, completion, over)
      else worth = session.said ?? rewardOf(says) ?? (await this.#reply(task, place.promptId, completion, over))
    } catch (error) {
      const why = late.aborted ? `not finished after ${this.#deadline} s` : messageOf(error)
      if (late.aborted) this.counts.late++
      worth = { reward: null, error: why }
    }
    let ended: EndedSession
    try {
      ended = session.end(worth)
    } catch (error) {
      ended = session.end({ reward: null, error: messageOf(error) }) // It returned an invalid reward.
    }
    const { refusal } = session
    if (ended.rows.length === 0 && refusal !== null) {
      const error = `the agent's calls were refused: ${refusal}`
      ended = { ...ended, worth: { ...ended.worth, reward: null, error } }
    }
    this.counts.ended++
    if (ended.worth.reward === null) this.counts.unknown++
    if (ended.rows.length === 0) this.counts.silent++
    return ended
  }

  #agent(run: AgentRun): Promise<AgentSays> {
    const { run: agent } = this.#options
    return agent === undefined ? this.#program(run) : Promise.resolve().then(() => agent(run))
  }

  async #judge(reward: Reward, task: Example, completion: string | null, signal: AbortSignal): Promise<SessionReward> {
    if (completion === null) return { reward: null, error: NOT_ASKED }
    const { prompt } = task
    const words = typeof prompt === 'string' ? prompt : (prompt.at(-1)?.content ?? '')
    const { value, components, error } = await judge(reward, { prompt: words, completion, example: task }, signal)
    return { reward: value, components, ...(error === undefined ? {} : { error }) }
  }

  /** The environment's reward of the last answer, for an agent that gave none. */
  async #reply(
    example: Example,
    index: number,
    completion: string | null,
    signal: AbortSignal,
  ): Promise<SessionReward> {
    const { environment } = this.#options
    if (environment === undefined) return { reward: null, error: NO_REWARD }
    const { together, maxTurns } = environment
    if (maxTurns > 1 || together?.size === 'group') {
      const what = maxTurns > 1 ? 'several turns' : 'groups of answers'
      return { reward: null, error: `${NO_REWARD}, and ${environment.id} rewards ${what}` }
    }
    if (completion === null) return { reward: null, error: NOT_ASKED }
    const { prompt } = example
    const messages = typeof prompt === 'string' ? [{ role: 'user', content: prompt }] : prompt
    const said = { completion, raw: completion, turn: 0, stopReason: 'stop' } as const
    const turn: Turn = { example, exampleIndex: index, ...said, messages }
    const reply = together === undefined ? environment.respond(turn, signal) : together.respond([turn], signal)
    const { reward, components, error } = await Promise.resolve(reply).then((told) => [told].flat()[0] as Reply)
    return { reward, ...(components && { components }), ...(error === undefined ? {} : { error }) }
  }

  /** Runs the program. Kills it with all its children when the caller no longer waits. */
  #program({ task, openaiUrl, anthropicUrl, apiKey, signal }: AgentRun): Promise<AgentSays> {
    const { command, env = {}, cwd } = this.#options
    const [program, ...words] = command!
    const child = spawn(program!, words, {
      ...(cwd === undefined ? {} : { cwd }),
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true, // A process group of its own, so that its children end with it.
      env: {
        ...{ ...variablesForOthers(), ...env, COLONNADE_TASK: JSON.stringify(task) },
        ...{ OPENAI_BASE_URL: openaiUrl, OPENAI_API_KEY: apiKey },
        ...{ ANTHROPIC_BASE_URL: anthropicUrl, ANTHROPIC_API_KEY: apiKey },
      },
    })
    const kill = () => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
      } catch {
        // It has ended.
      }
    }
    signal.addEventListener('abort', kill)
    const said = { stdout: '', stderr: '' }
    for (const name of ['stdout', 'stderr'] as const) {
      child[name].setEncoding('utf8')
      child[name].on('data', (text: string) => {
        said[name] = (said[name] + text).slice(-MOST_SAID)
      })
    }
    return new Promise<AgentSays>((resolve, reject) => {
      child.on('error', (error) => reject(new Error(`${program}: ${error.message}`)))
      child.on('close', (code, killed) => {
        kill() // Kills remaining children.
        signal.removeEventListener('abort', kill)
        if (code === 0) return resolve(saysIn(said.stdout))
        const last = said.stderr.trim().split('\n').at(-1) ?? ''
        reject(new Error(`${program} ended with ${killed ?? `code ${code}`}${last === '' ? '' : `: ${last}`}`))
      })
      if (signal.aborted) kill()
    })
  }
}

/** Characters of a program's output that are kept. */
const MOST_SAID = 65_536

/** The reward in the last line of a program's output, if there is one. */
function saysIn(output: string): AgentSays {
  const value = parseObject(output.trim().split('\n').at(-1) ?? '')
  return value !== null && 'reward' in value ? (value as unknown as SessionReward) : undefined
}

function rewardOf(says: AgentSays): SessionReward | undefined {
  return typeof says === 'number' ? { reward: says } : says
}

const NO_REWARD = 'the agent gave no reward'
const NOT_ASKED = 'the agent did not ask the model'

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** The promise's value. Rejects when the signal is aborted. */
function orOver<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(new Error('the call was cancelled'))
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort)
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
