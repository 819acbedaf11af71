/**
 * Teams whose workers run in the caller's thread, for tests: at each meeting every worker continues to its next one, and of each run that
 * is shared every helper does a part before the caller does the others. A test file that uses it mocks `node:worker_threads`, so that workers find their messages at `port`:
 *
 *     vi.mock('node:worker_threads', async (original) => ({ ...(await original()), parentPort: port }))
 */
import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads'
import { vi } from 'vitest'
import { textProgram } from '../../src/training/text/learn/thread.ts'
import { lanesPart } from '../../src/training/threads/lanes-thread.ts'
import { Aborted, type WorkerOrder, type WorkerProgram } from '../../src/training/threads/orders.ts'
import { Sharing, SharingWord } from '../../src/training/threads/sharing.ts'
import { Team } from '../../src/training/threads/team.ts'

const notify: (array: Int32Array, index: number, count?: number) => number = Atomics.notify
const { port1, port2 } = new MessageChannel()
port1.unref()
port2.unref()
/** The source of the workers' messages. */
export const port = port2

/** The caller's side of a team with workers in its own thread. */
export class InProcessTeam {
  readonly orders: readonly WorkerOrder[]
  readonly describe: (index: number) => string
  readonly #workers: { readonly program: WorkerProgram; steps: ReturnType<WorkerProgram> | null }[]
  isHeld = false
  isOver = false
  /** Meetings, and shared runs. */
  meetings = 0
  onEnd: () => void = () => {}
  /** Called before the workers continue to their next meeting, or help. */
  beforeMeeting: () => void = () => {}
  failure: Error = new Error('closed in the middle of an update')

  constructor(orders: readonly WorkerOrder[], describe: (index: number) => string, programs: readonly WorkerProgram[]) {
    this.orders = orders
    this.describe = describe
    this.#workers = programs.map((program) => ({ program, steps: null }))
    while (receiveMessageOnPort(port2) !== undefined); // Drop the previous team's messages.
  }

  async meet(): Promise<void> {
    if (this.isOver) throw new Aborted('another thread failed')
    this.meetings++
    this.beforeMeeting()
    for (const [i, worker] of this.#workers.entries()) {
      worker.steps ??= worker.program(this.orders[i]!.command)
      if (worker.steps.next().done) worker.steps = null
    }
    if (this.isOver) throw new Aborted('another thread failed')
  }

  /** No worker can end by itself. */
  check(): void {}

  /** This thread knows at once why meetings are canceled. */
  async told(): Promise<void> {}

  post(message: object): void {
    for (const _ of this.orders) port1.postMessage(message)
  }

  hold(isHeld: boolean): void {
    this.isHeld = isHeld
  }

  fail(reason: Error): void {
    this.failure = reason
    this.end()
  }

  end(): boolean {
    if (this.isOver) return false
    this.isOver = true
    this.onEnd()
    return true
  }
}

/** Lets teams start in the caller's thread from now on; adds them to the returned list. */
export function startTeamsInProcess(): InProcessTeam[] {
  const teams: InProcessTeam[] = []
  vi.spyOn(Team, 'start').mockImplementation(async (orders, describe) => {
    const programs: WorkerProgram[] = []
    const helpers: Sharing[] = []
    for (const order of orders) {
      const part = order.kind === 'lanes' ? await lanesPart(order) : textProgram(order)
      if (part instanceof Sharing) helpers.push(part)
      else programs.push(part)
    }
    const team = new InProcessTeam(orders, describe, programs)
    teams.push(team)
    if (helpers.length > 0) helpWhenWoken(team, helpers)
    return team as unknown as Team
  })
  return teams
}

/** Lets helpers help when the caller wakes them: they count as asleep. */
function helpWhenWoken(team: InProcessTeam, helpers: readonly Sharing[]): void {
  const { words } = helpers[0]!.columns
  words[SharingWord.asleep] = helpers.length
  vi.spyOn(
    Atomics as { notify(array: Int32Array, index: number, count?: number): number },
    'notify',
  ).mockImplementation((array, index, count) => {
    if (array === words && index === SharingWord.run && !team.isOver) {
      team.meetings++
      team.beforeMeeting()
      for (const helper of helpers) helper.help(1)
    }
    return notify.call(Atomics, array, index, count)
  })
}
