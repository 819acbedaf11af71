import { afterEach, describe, expect, test, vi } from 'vitest'
import { Clock, chromeTrace, traceBuffer, Work, workNames } from '../src/base/clock.ts'
import { cartPole, createTrainer, createWorld, mlp, ppo } from '../src/index.ts'

interface Event {
  name: string
  ph: string
  tid: number
  ts: number
  dur: number
}

async function traced() {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [32, 32] }), numLanes: 64, seed: 1 })
  const trainer = createTrainer(world, ppo({ numSteps: 32 }), { profile: true })
  const updates: { wall: number; phases: number }[] = []
  let start = performance.now()
  for await (const { phaseSeconds } of trainer.updates({ totalSteps: 64 * 32 * 15 })) {
    const wall = (performance.now() - start) / 1000
    updates.push({ wall, phases: Object.values(phaseSeconds).reduce((sum, seconds) => sum + seconds, 0) })
    start = performance.now()
  }
  const events: Event[] = JSON.parse(trainer.trace()).traceEvents
  return { updates, events: events.filter(({ ph }) => ph === 'X') }
}

describe('the clock', () => {
  test('accounts for at least 95 % of the wall time of an update that nothing interrupts, in the metrics and in the trace', async () => {
    const { updates, events } = await traced()
    const wall = updates.reduce((sum, update) => sum + update.wall, 0)
    const phases = updates.reduce((sum, update) => sum + update.phases, 0)
    const trace = events.reduce((sum, { dur }) => sum + dur, 0) / 1e6
    const [inMetrics, inTrace] = [phases, trace].map((seconds) => ((100 * seconds) / wall).toFixed(1))
    console.log(`of ${(1000 * wall).toFixed(1)} ms of updates, phases ${inMetrics} %, trace ${inTrace} %`)
    // Another program may have the core between two marks of an update, but hardly of all.
    expect(Math.max(...updates.map((update) => update.phases / update.wall))).toBeGreaterThanOrEqual(0.95)
    expect(trace / phases).toBeGreaterThanOrEqual(0.99)
    expect(Math.max(phases, trace)).toBeLessThanOrEqual(wall)
  })

  test('keeps intervals that follow one another and name every kind of work of a single thread', async () => {
    const { events } = await traced()
    for (const [i, event] of events.entries()) {
      const before = events[i - 1]
      if (before) expect(event.ts).toBeGreaterThanOrEqual(before.ts + before.dur - 0.01)
    }
    const names = new Set(events.map(({ name }) => name))
    expect([...names].sort()).toEqual(workNames.filter((name) => name !== 'waiting').sort())
  })

  test('stops keeping when its room is used up', () => {
    const trace = traceBuffer(2)
    trace.set([2, 0, 10, 11, 1, 11, 13])
    expect(trace.length).toBe(7)
    const { traceEvents } = JSON.parse(chromeTrace([trace]))
    expect(traceEvents.slice(1)).toEqual([
      { name: 'reset', ph: 'X', pid: 1, tid: 0, ts: 0, dur: 1000 },
      { name: 'infer', ph: 'X', pid: 1, tid: 0, ts: 1000, dur: 2000 },
    ])
  })

  test('a trainer that keeps no trace says so', async () => {
    const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 1 })
    expect(() => createTrainer(world, ppo()).trace()).toThrow('expected the option profile: true')
  })
})

describe('the clock of ticks of conversations', () => {
  afterEach(() => vi.restoreAllMocks())

  /** Ticks that take so many ms each, by kind of work; returns the clock, how often it was read, and which ticks were timed. */
  function ticked(
    ticks: number,
    took: (tick: number) => Partial<Record<keyof typeof Work, number>>,
    trace?: Float64Array,
  ) {
    let time = 1000
    const now = vi.spyOn(performance, 'now').mockImplementation(() => time)
    const clock = new Clock()
    clock.trace = trace
    clock.start()
    const timed: number[] = []
    for (let tick = 0; tick < ticks; tick++) {
      const isTimed = clock.beginTick()
      if (isTimed) timed.push(tick)
      for (const [name, ms] of Object.entries(took(tick))) {
        time += ms
        clock.mark(Work[name as keyof typeof Work])
      }
    }
    clock.endTicks()
    const { calls } = now.mock
    return { clock, seconds: clock.seconds(), reads: calls.length, timed, whole: (time - 1000) / 1000 }
  }
  const sum = (seconds: Record<string, number>) => Object.values(seconds).reduce((a, b) => a + b)

  test('is read in few of those that are short, and shares out what the others take as in those', () => {
    const { seconds, reads, timed, whole } = ticked(1000, () => ({ reset: 0.01, infer: 0.3, step: 0.06, store: 0.03 }))
    expect(reads).toBeLessThan(300) // Of 5,000 marks: half a one a tick would be a byte a token, of 8 lanes.
    expect(new Set(timed.slice(1).map((tick, i) => tick - timed[i]!)).size).toBeGreaterThan(4)
    expect(sum(seconds)).toBeCloseTo(whole, 9)
    for (const [name, ms] of Object.entries({ reset: 10, infer: 300, step: 60, store: 30, waiting: 0 })) {
      expect(seconds[name as 'reset'], name).toBeCloseTo(ms / 1000, 6)
    }
  })

  test('finds the shares of work that only some ticks have', () => {
    const { seconds, whole } = ticked(20_000, (tick) => ({ infer: 0.2, step: tick % 16 === 0 ? 0.8 : 0 }))
    expect(sum(seconds)).toBeCloseTo(whole, 6)
    expect(seconds.step / whole).toBeGreaterThan(0.15) // A fifth.
    expect(seconds.step / whole).toBeLessThan(0.25)
  })

  test('is read in all of those that are long, and in all where a trace is kept', () => {
    for (const { seconds, timed } of [
      ticked(50, () => ({ infer: 4, step: 2 })),
      ticked(50, () => ({ infer: 0.02, step: 0.01 }), traceBuffer()),
    ]) {
      expect(timed.length).toBe(50)
      expect(seconds.infer / seconds.step).toBeCloseTo(2, 6)
    }
  })

  test('charges what comes after the ticks to what it is', () => {
    let time = 0
    vi.spyOn(performance, 'now').mockImplementation(() => time)
    const clock = new Clock()
    clock.start()
    const timed: boolean[] = []
    for (let tick = 0; tick < 5; tick++) {
      timed.push(clock.beginTick())
      time += 0.5
      clock.mark(Work.infer)
    }
    clock.endTicks()
    time += 7
    clock.charge(Work.gather)
    expect([clock.seconds().infer, clock.seconds().gather]).toEqual([0.0025, 0.007])
    expect(timed).toContain(false)
    expect(clock.beginTick()).toBe(true)
  })
})
