/** The meeting point of threads, and the caller's side of a team, whose workers here are objects in this process. */
import { EventEmitter } from 'node:events'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { Aborted, CONTROL_WORDS, type WorkerOrder } from '../../src/training/threads/orders.ts'
import { Barrier, failureOf, Team } from '../../src/training/threads/team.ts'

class FakeWorker extends EventEmitter {
  readonly entry: URL
  readonly options: { workerData: WorkerOrder; name: string; execArgv?: string[] }
  readonly posted: unknown[] = []
  isHeld = true
  numEnds = 0

  constructor(entry: URL, options: FakeWorker['options']) {
    super()
    this.entry = entry
    this.options = options
    workers.push(this)
    arrive(this)
  }
  ref() {
    this.isHeld = true
  }
  unref() {
    this.isHeld = false
  }
  postMessage(message: unknown) {
    this.posted.push(message)
  }
  async terminate() {
    this.numEnds++
    this.emit('exit', 1)
  }
}

let workers: FakeWorker[]
/** What a worker does once it is there. */
let arrive: (worker: FakeWorker) => void

vi.mock('node:worker_threads', async (original) => ({
  ...(await original<typeof import('node:worker_threads')>()),
  get Worker() {
    return FakeWorker
  },
}))
const { Worker: RealWorker } = await vi.importActual<typeof import('node:worker_threads')>('node:worker_threads')

function controlColumn(): Int32Array<SharedArrayBuffer> {
  return new Int32Array(new SharedArrayBuffer(4 * CONTROL_WORDS))
}

beforeEach(() => {
  workers = []
  arrive = ({ options: { workerData } }) => {
    void new Barrier(workerData.control, workerData.count, 1).meet()?.catch(() => undefined)
  }
})

function start(count: number, control = controlColumn()): Promise<Team> {
  const orders = Array.from({ length: count - 1 }, (_, i) => ({ index: i + 1, count, control }))
  return Team.start(orders as never, (index) => `${count} threads (number ${index})`)
}

describe('a barrier', () => {
  /** Whether a promise is settled once all that is due was done. */
  async function isOpen(meeting: Promise<void> | undefined): Promise<boolean> {
    let isSettled = meeting === undefined
    meeting?.then(
      () => {
        isSettled = true
      },
      () => {},
    )
    await new Promise((resolve) => setTimeout(resolve, 5))
    return isSettled
  }

  test.each([1, 8])('opens when the last has come, as often as they meet, with %i cores', async (cores) => {
    const control = controlColumn()
    const barriers = Array.from({ length: 3 }, () => new Barrier(control, 3, cores))
    for (let meeting = 0; meeting < 3; meeting++) {
      const [first, second] = barriers.slice(0, 2).map((barrier) => barrier.meet())
      expect([first, second].map((each) => each instanceof Promise)).toEqual([true, true])
      expect([await isOpen(first), await isOpen(second)]).toEqual([false, false])
      expect(barriers[2]!.meet()).toBeUndefined()
      expect([await isOpen(first), await isOpen(second)]).toEqual([true, true])
    }
  })

  test('that is aborted turns all away: who waits, and who comes later', async () => {
    const control = controlColumn()
    const [first, second] = [new Barrier(control, 3, 1), new Barrier(control, 3, 1)]
    const waiting = first.meet()!
    second.abort()
    await expect(waiting).rejects.toThrow(Aborted)
    expect(() => second.meet()).toThrow(Aborted)
    expect(() => second.meet()).toThrow(Aborted) // Also as the last of three.
    expect(() => second.meetAsleep()).toThrow(Aborted)
  })

  test('lets a thread sleep until the others have come', async () => {
    const control = controlColumn()
    // Comes after a while, as the caller's thread does.
    const other = `
      const { workerData: control } = require('node:worker_threads')
      setTimeout(() => {
        control[2] = 0
        Atomics.store(control, 0, 0)
        Atomics.add(control, 1, 1)
        Atomics.notify(control, 1)
      }, 100)`
    const worker = new RealWorker(other, { eval: true, workerData: control })
    const barrier = new Barrier(control, 2, 1)
    barrier.meetAsleep()
    expect([...control]).toEqual([0, 1, 0])
    expect(barrier.meet()).toBeInstanceOf(Promise)
    barrier.meetAsleep() // The last does not sleep.
    expect([...control]).toEqual([0, 2, 0])
    await worker.terminate()
  })
})

describe('a team', () => {
  test('starts workers by the file beside it, with their orders and names, and meets them', async () => {
    const team = await start(3)
    expect(workers.map(({ options }) => [options.name, options.workerData.index])).toEqual([
      ['colonnade 1', 1],
      ['colonnade 2', 2],
    ])
    for (const { entry, options } of workers) {
      expect(entry.pathname).toMatch(/\/tests\/support\/built-worker\.mjs$/) // Which runs the built file beside it.
      expect(options).not.toHaveProperty('execArgv')
    }
    team.end()
  })

  test('does not hand on that a program came on standard input', async () => {
    const before = process.execArgv
    process.execArgv = ['--no-warnings', '--input-type=module']
    try {
      await start(2)
      expect(workers[0]!.options.execArgv).toEqual([])
    } finally {
      process.execArgv = before
    }
  })

  test('holds the process with all workers or with none, and posts to each', async () => {
    const team = await start(3)
    team.hold(false)
    expect(workers.map(({ isHeld }) => isHeld)).toEqual([false, false])
    team.hold(true)
    expect(workers.map(({ isHeld }) => isHeld)).toEqual([true, true])
    team.post({ batch: 1 })
    expect(workers.map(({ posted }) => posted)).toEqual([[{ batch: 1 }], [{ batch: 1 }]])
    team.end()
  })

  test('ends once: its workers, and whoever waits for them', async () => {
    const team = await start(3)
    const meeting = team.meet()!
    expect(team.end()).toBe(true)
    expect(team.end()).toBe(false)
    await expect(meeting).rejects.toThrow(Aborted)
    expect(() => team.meet()).toThrow(Aborted)
    expect(workers.map(({ numEnds }) => numEnds)).toEqual([1, 1])
    expect(team.failure.message).toBe('the trainer was closed during an update') // Not that workers ended.
  })

  test.each<[string, (worker: FakeWorker) => void, string]>([
    ['says so', (worker) => worker.emit('message', { message: 'no step' }), 'failed: no step'],
    ['throws', (worker) => worker.emit('error', new TypeError('no reset')), 'failed: no reset'],
    ['throws what is no error', (worker) => worker.emit('error', 'gone'), 'failed: "gone"'],
    ['ends by itself', (worker) => worker.emit('exit', 3), 'ended with code 3'],
  ])('fails with the first worker that fails: one that %s', async (_, fail, reason) => {
    const team = await start(3)
    fail(workers[1]!)
    workers[0]!.emit('exit', 9)
    expect(() => team.meet()).toThrow(Aborted)
    expect(team.failure.message).toBe(`worker 2 of 3 threads (number 2) ${reason}`)
    expect(workers.map(({ numEnds }) => numEnds)).toEqual([1, 1])
  })

  test('shows where its worker failed, and that it was the caller’s mistake', async () => {
    const team = await start(2)
    workers[0]!.emit('message', failureOf(new InputError('action', '3', 'at most 2')))
    const { failure } = team
    expect(failure).toBeInstanceOf(InputError)
    expect(failure).toMatchObject({
      subject: 'worker 1 of 2 threads (number 1) failed: action',
      got: '3',
      expected: 'at most 2',
    })
    expect(failure.stack).toMatch(
      /^InputError: worker 1 of 2 threads .* failed: action: got 3, expected at most 2\n +at /,
    )
    expect(failure.stack).toContain('team.test.ts')
  })

  test('is given up for a reason', async () => {
    const team = await start(2)
    const reason = new Error('stuck')
    team.fail(reason)
    expect(team.failure).toBe(reason)
    expect(workers[0]!.numEnds).toBe(1)
  })

  test('of which a worker fails before all are there is none', async () => {
    arrive = (worker) => void setTimeout(() => worker.emit('message', { message: 'no such module' }), 5)
    await expect(start(2)).rejects.toThrow('worker 1 of 2 threads (number 1) failed: no such module')
  })
})

describe('what is said of what a worker throws', () => {
  test('is its message and stack, and the parts of an InputError', () => {
    const error = new Error('no')
    expect(failureOf(error)).toEqual({ message: 'no', stack: error.stack })
    expect(failureOf('no')).toEqual({ message: '"no"' })
    expect(failureOf(null)).toEqual({ message: 'null' })
    const mistake = new InputError('a', 'b', 'c')
    const { message, stack } = mistake
    expect(failureOf(mistake)).toEqual({ message, stack, input: { subject: 'a', got: 'b', expected: 'c' } })
  })
})

test('what trains is refused in a thread that has joined a team, and nowhere else', async () => {
  vi.resetModules()
  const { joinTeam, refuseInWorker } = await import('../../src/training/threads/orders.ts')
  expect(() => refuseInWorker('createTrainer')).not.toThrow()
  joinTeam()
  expect(() => refuseInWorker('createTrainer')).toThrow(
    'createTrainer: got a call from a module that a worker imports, expected a module that only defines things',
  )
})
