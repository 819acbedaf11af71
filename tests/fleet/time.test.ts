import { describe, expect, it } from 'vitest'
import { realTime, VirtualTime } from '../../src/fleet/time.ts'
import * as fc from '../support/properties.ts'

describe('Virtual time', () => {
  it('wakes each sleeper at its time, in the order of time and then of falling asleep', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 0, max: 20 }), { minLength: 1, maxLength: 60 }), async (seconds) => {
        const time = new VirtualTime()
        const woken: [number, number][] = []
        await time.run(() =>
          Promise.all(
            seconds.map(async (each, i) => {
              await time.sleep(each)
              woken.push([time.now(), i])
            }),
          ),
        )
        expect(woken).toEqual(seconds.map((each, i) => [each, i]).sort((a, b) => a[0]! - b[0]! || a[1]! - b[1]!))
      }),
      { numRuns: 50 },
    )
  })

  it('goes on only when all wait, whatever they do between', async () => {
    const time = new VirtualTime()
    const seen: number[] = []
    const work = async (seconds: number) => {
      for (let i = 0; i < 3; i++) {
        await time.sleep(seconds)
        for (let turn = 0; turn < 20; turn++) await Promise.resolve()
        seen.push(time.now())
      }
    }
    await time.run(() => Promise.all([work(2), work(3)]))
    expect(seen).toEqual([2, 3, 4, 6, 6, 9])
  })

  it('wakes who is aborted at once, and only once', async () => {
    const time = new VirtualTime()
    const abort = new AbortController()
    const at: number[] = []
    await time.run(async () => {
      const sleeper = time.sleep(100, abort.signal).then(() => at.push(time.now()))
      await time.sleep(5)
      abort.abort()
      await sleeper
      await time.sleep(1, abort.signal)
      at.push(time.now())
      await time.sleep(200)
      at.push(time.now())
    })
    expect(at).toEqual([5, 5, 205])
  })

  it('says so where all wait and none of them for time, and hands on what fails', async () => {
    const time = new VirtualTime()
    const stuck = time.run(async () => {
      await time.sleep(7)
      await new Promise(() => {})
    })
    await expect(stuck).rejects.toThrow('all tasks wait at 7 s, but none waits for a time')
    const failed = new VirtualTime().run(async () => {
      throw new Error('no engine')
    })
    await expect(failed).rejects.toThrow('no engine')
  })
})

describe('The time of the machine', () => {
  it('does not go back, sleeps at least as long as it is told, and wakes who is aborted', async () => {
    const began = realTime.now()
    await realTime.sleep(0.02)
    expect(realTime.now() - began).toBeGreaterThanOrEqual(0.019) // Timers of the runtime round to milliseconds.
    const abort = new AbortController()
    const sleeper = realTime.sleep(3600, abort.signal)
    abort.abort()
    await sleeper
    await realTime.sleep(3600, abort.signal)
  })

  it('refuses seconds that are none', () => {
    for (const seconds of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(() => new VirtualTime().sleep(seconds)).toThrow(`seconds to sleep: got ${seconds}, expected a number ≥ 0`)
    }
  })
})
