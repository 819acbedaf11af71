/**
 * One agent after another: a function, or a program in a process of its own, with a session, a task and a time limit. Nothing of an
 * agent is waited for beyond its time: one that fails, hangs or ends with an error is a conversation of which the reward is not
 * known, and why.
 */
import { spawn } from 'node:child_process'
import { variablesForOthers } from '../../base/environment-variables.ts'
import { checkCount, checkOptions, InputError, show } from '../../base/errors.ts'
import { parseObject } from '../../base/files/files.ts'
import type { Example } from '../../environments/text.ts'
import { judge, type Reward } from '../../language/rewards/reward.ts'
import type { Gateway } from './gateway.ts'
import type { EndedSession, SessionPlace, SessionReward } from './sessions.ts'

/** What an agent that is a function is given. */
export interface AgentRun {
  readonly task: Example
  readonly taskIndex: number
  /** Base URLs for clients of OpenAI and of Anthropic, and the key for both. */
  readonly openaiUrl: string
  readonly anthropicUrl: string
  readonly apiKey: string
  /** Aborts when nobody waits for the agent any longer. */
  readonly signal: AbortSignal
}

/** What a function may say of its reward; nothing where `reward` judges, or it was said over HTTP. */
export type AgentSays = number | SessionReward | undefined

/** What `runAgents` is told: `run` or `command`. */
export interface RunAgentsOptions {
  readonly gateway: Gateway
  /** What agents are to do, in turn. A world's trainer tells of a task by its number: give it an environment with the same examples. */
  readonly tasks: readonly Example[]
  /** An agent. What it throws is the reason for an unknown reward. */
  readonly run?: (run: AgentRun) => Promise<AgentSays> | AgentSays
  /**
   * A program and its words. The task is JSON in the environment's `COLONNADE_TASK`; clients find `OPENAI_BASE_URL`, `OPENAI_API_KEY`,
   * `ANTHROPIC_BASE_URL` and `ANTHROPIC_API_KEY` there. A last line of its output like `{"reward": 1}` is its reward.
   */
  readonly command?: readonly string[]
  /** Variables for `command` beside those of this process, and the folder that it runs in. */
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
  /** Judges the last answer, whatever the agent says of it. */
  readonly reward?: Reward
  /** Agents with the same task; default 1. A trainer's `rl` says its own. */
  readonly groupSize?: number
  /** Groups of a `collect()`; default as many as there are tasks. */
  readonly groups?: number
  /** Seconds for one agent; default 600. */
  readonly deadline?: number
  /** Agents at once; default 32. */
  readonly maxAgents?: number
}

const OPTIONS: readonly (keyof RunAgentsOptions)[] = [
  ...(['gateway', 'tasks', 'run', 'command', 'env', 'cwd', 'reward', 'groupSize', 'groups', 'deadline'] as const),
  'maxAgents',
]

/** How agents ended. */
export interface AgentCounts {
  readonly ended: number
  /** Of those: their reward is not known. */
  readonly unknown: number
  /** Of those: they took longer than their time. */
  readonly late: number
  /** The model said nothing in them, so they are in no table. */
  readonly silent: number
}

/** Where a member of a group stands: tasks are gone through in turn. */
export function placeOf(group: number, member: number, numTasks: number) {
  return { group, member, promptId: group % numTasks, epoch: Math.floor(group / numTasks) }
}

/** Runs one agent after another. */
export class AgentRunner {
  readonly tasks: readonly Example[]
  readonly gateway: Gateway
  readonly groupSize: number
  readonly groups: number
  readonly maxAgents: number
  readonly counts = { ended: 0, unknown: 0, late: 0, silent: 0 }
  readonly #options: RunAgentsOptions
  readonly #deadline: number

  constructor(options: RunAgentsOptions) {
    checkOptions('runAgents', options, OPTIONS)
    const { gateway, tasks, run, command, reward, deadline = 600 } = options
    if (typeof gateway?.openSession !== 'function') throw new InputError('gateway', show(gateway), 'an open gateway')
    if (!Array.isArray(tasks) || tasks.length === 0) throw new InputError('tasks', show(tasks), 'at least one')
    if ((run === undefined) === (command === undefined)) {
      throw new InputError('runAgents', run === undefined ? 'neither run nor command' : 'both', 'run, or command')
    }
    if (run !== undefined && typeof run !== 'function') throw new InputError('run', show(run), 'a function')
    const isCommand = Array.isArray(command) && command.length > 0 && command.every((word) => typeof word === 'string')
    if (command !== undefined && !isCommand) throw new InputError('command', show(command), 'a program and its words')
    if (reward !== undefined && typeof reward !== 'function') throw new InputError('reward', show(reward), 'a reward')
    if (!(deadline > 0 && deadline < 2 ** 31 / 1000))
      throw new InputError('deadline', show(deadline), 'seconds above 0')
    const { groupSize = 1, groups = tasks.length, maxAgents = 32 } = options
    for (const [name, value] of Object.entries({ groupSize, groups, maxAgents })) checkCount(name, value)
    this.#options = options
    this.#deadline = deadline
    this.gateway = gateway
    this.tasks = tasks
    this.groupSize = groupSize
    this.groups = groups
    this.maxAgents = maxAgents
  }

  /** Runs the agent of a place to its end, or to that of its time. Never fails; what goes wrong is the reason for an unknown reward. */
  async run(place: Partial<SessionPlace> & { readonly promptId: number }, signal: AbortSignal): Promise<EndedSession> {
    const task = this.tasks[place.promptId]!
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
      worth = session.said ?? rewardOf(says)
      const { reward } = this.#options
      if (reward !== undefined) worth = await this.#judge(reward, task, session.completion, over)
    } catch (error) {
      const why = late.aborted ? `no end within ${this.#deadline} s` : messageOf(error)
      if (late.aborted) this.counts.late++
      worth = { reward: null, error: why }
    }
    let ended: EndedSession
    try {
      ended = session.end(worth)
    } catch (error) {
      ended = session.end({ reward: null, error: messageOf(error) }) // It said what is no reward.
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
    if (completion === null) return { reward: null, error: 'the model was asked nothing' }
    const { prompt } = task
    const words = typeof prompt === 'string' ? prompt : (prompt.at(-1)?.content ?? '')
    const { value, components, error } = await judge(reward, { prompt: words, completion, example: task }, signal)
    return { reward: value, components, ...(error === undefined ? {} : { error }) }
  }

  /** Runs the program, and ends it with all that it started when nobody waits any longer. */
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
        kill() // What it has left behind.
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

/** The reward in the last line of a program's output, if it tells one. */
function saysIn(output: string): AgentSays {
  const value = parseObject(output.trim().split('\n').at(-1) ?? '')
  return value !== null && 'reward' in value ? (value as unknown as SessionReward) : undefined
}

function rewardOf(says: AgentSays): SessionReward {
  if (typeof says === 'number') return { reward: says }
  return says ?? { reward: null, error: 'the agent told no reward' }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** The promise's value; rejects once the signal is aborted. */
function orOver<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(new Error('nobody waits any longer'))
    if (signal.aborted) abort()
    signal.addEventListener('abort', abort)
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
