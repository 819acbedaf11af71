/** Several loggers at once: in order, at their own pace, and none of them stops anything. */
import { afterEach, describe, expect, test, vi } from 'vitest'
import { defineLogger, type LogEntry, type Logger, type LoggerDefinition } from '../../../src/entries/loggers.ts'
import { Loggers } from '../../../src/telemetry/loggers/logger-queue.ts'

const training = { name: 'run', folder: null, settings: {}, metrics: {}, done: 0 }
const entry = (step: number): LogEntry => ({ step, time: step, values: { step }, distributions: {}, texts: {} })
const named = (id: string, open: () => Logger | Promise<Logger>): LoggerDefinition =>
  defineLogger({ id, settings: {}, open })()

/** A promise that a test settles. */
function gate(): { readonly promise: Promise<void>; open(): void; fail(reason: string): void } {
  const settle = {} as { open: () => void; reject: (error: Error) => void }
  const promise = new Promise<void>((resolve, reject) => Object.assign(settle, { open: resolve, reject }))
  return { promise, open: () => settle.open(), fail: (reason) => settle.reject(new Error(reason)) }
}

function logged(...definitions: LoggerDefinition[]) {
  const told: string[] = []
  return { told, loggers: new Loggers(definitions, training, (message) => told.push(message)) }
}

afterEach(() => void vi.useRealTimers())

describe('loggers', () => {
  test('are told at once where they write at once, and of all that came meanwhile where they take their time', async () => {
    const [quick, slow]: [number[], number[][]] = [[], []]
    const gates = [gate(), gate()]
    const { loggers, told } = logged(
      named('quick', () => ({ write: (entries) => void quick.push(...entries.map(({ step }) => step)) })),
      named('slow', () => ({
        write: (entries) => gates[slow.push(entries.map(({ step }) => step)) - 1]!.promise,
      })),
    )
    for (const step of [1, 2, 3]) loggers.log(entry(step))
    expect(quick).toEqual([1, 2, 3])
    expect(slow).toEqual([[1]])
    gates[0]!.open()
    gates[1]!.open()
    await loggers.settled()
    expect(slow).toEqual([[1], [2, 3]])
    await loggers.close('complete')
    expect(loggers.counts).toEqual({
      quick: { written: 3, lost: 0, failures: 0 },
      slow: { written: 3, lost: 0, failures: 0 },
    })
    expect(told).toEqual([])
  })

  test('keep what comes while one is being opened', async () => {
    const opening = gate()
    const steps: number[] = []
    const { loggers } = logged(
      named('late', async () => {
        await opening.promise
        return { place: 'here', write: (entries) => void steps.push(...entries.map(({ step }) => step)) }
      }),
    )
    loggers.log(entry(1))
    loggers.log(entry(2))
    expect(loggers.places).toEqual({})
    opening.open()
    await loggers.settled()
    expect(steps).toEqual([1, 2])
    expect(loggers.places).toEqual({ late: 'here' })
  })

  test.each(['at once', 'later'])('that fail %s are counted and told of once, and others go on', async (when) => {
    const steps: number[] = []
    const fail = () => {
      if (when === 'later') return Promise.reject(new Error('no disk'))
      throw new Error('no disk')
    }
    const { loggers, told } = logged(
      named('bad', () => ({ write: fail })),
      named('good', () => ({ write: ([one]) => void steps.push(one!.step) })),
    )
    for (const step of [1, 2, 3]) {
      loggers.log(entry(step))
      await loggers.settled()
    }
    await loggers.close('complete')
    expect(steps).toEqual([1, 2, 3])
    expect(loggers.counts.bad).toEqual({ written: 0, lost: 3, failures: 3 })
    expect(told).toEqual([
      'logger bad failed: no disk; the training goes on',
      'logger bad lost 3 of 3 entries (first failure: no disk)',
    ])
  })

  test('that cannot be opened log nothing', async () => {
    for (const open of [
      () => Promise.reject(new Error('port')),
      () => {
        throw new Error('port')
      },
    ]) {
      const { loggers, told } = logged(named('shut', open))
      loggers.log(entry(1))
      await loggers.settled()
      loggers.log(entry(2))
      await loggers.close('failed')
      expect(loggers.counts.shut).toEqual({ written: 0, lost: 2, failures: 1 })
      expect(told[0]).toBe('logger shut cannot be opened and logs nothing: port; the training goes on')
    }
  })

  test('whose writing may be repeated get what failed once more, with what came since', async () => {
    const calls: number[][] = []
    const { loggers, told } = logged(
      named('far', () => ({
        isRepeatable: true,
        async write(entries) {
          calls.push(entries.map(({ step }) => step))
          if (calls.length === 1) throw new Error('no answer')
        },
      })),
    )
    loggers.log(entry(1))
    await loggers.settled()
    loggers.log(entry(2))
    await loggers.close('complete')
    expect(calls).toEqual([[1], [1, 2]])
    expect(loggers.counts.far).toEqual({ written: 2, lost: 0, failures: 1 })
    expect(told).toEqual(['logger far failed: no answer; the training goes on'])
  })

  test('lose the oldest of more entries than may wait, and leave no timer behind', async () => {
    const steps: number[] = []
    const first = gate()
    const { loggers } = logged(
      named('slow', () => ({
        write(entries) {
          steps.push(...entries.map(({ step }) => step))
          return first.promise
        },
      })),
    )
    for (let step = 1; step <= 10_003; step++) loggers.log(entry(step))
    first.open()
    await loggers.settled()
    expect([steps.length, steps[0], steps[1], steps.at(-1)]).toEqual([10_001, 1, 4, 10_003])
    expect(loggers.counts.slow).toEqual({ written: 10_001, lost: 2, failures: 0 })
    vi.useFakeTimers()
    await loggers.close('complete', 600_000)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('are told how it ended, once; one that does not end is left behind', async () => {
    const ends: string[] = []
    const { loggers, told } = logged(
      named('good', () => ({ write() {}, close: (end) => void ends.push(end) })),
      named('stuck', () => ({ write: () => new Promise(() => {}) })),
      named('broken', () => ({ write() {}, close: () => Promise.reject(new Error('gone')) })),
    )
    loggers.log(entry(1))
    await loggers.close('interrupted', 5)
    await loggers.close('complete', 5)
    expect(ends).toEqual(['interrupted'])
    expect(told).toContain('logger stuck did not close in 0.005 s and was abandoned')
    expect(told).toContain('logger broken failed on closing: gone; the training goes on')
  })

  test('a definition needs a function', () => {
    expect(() => defineLogger({ id: 'none', settings: {}, open: 3 as never })).toThrow('logger none open: got 3')
  })
})
