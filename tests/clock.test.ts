import { describe, expect, test } from 'vitest'
import { chromeTrace, traceBuffer, workNames } from '../src/clock.ts'
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
    expect(() => createTrainer(world, ppo()).trace()).toThrow('expected profile: true')
  })
})
