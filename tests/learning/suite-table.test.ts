import { expect, test } from 'vitest'
import { isTold, type Measured, tableOf } from '../../bench/worlds/measured.ts'
import type { Outcome, Row } from '../../bench/worlds/row.ts'
import { bestReturn, shortestWay } from '../../bench/worlds/shortest-paths.ts'

const row: Row = {
  environment: 'Pendulum-v1',
  settings: { algorithm: 'sac' },
  figures: [
    { what: 'mean return', wanted: { atLeast: -150 }, published: '−157' },
    { what: 'length', wanted: { atMost: 200 }, published: '–' },
  ],
  measure: () => Promise.reject(new Error('not asked for')),
}

function outcome(seconds: number, values: number[]): Outcome {
  return { algorithm: 'sac', policy: 'sacNetwork', steps: 30_000, seconds, values }
}

const record: Measured = {
  row: 'Pendulum-v1 algorithm=sac',
  told: '{}',
  date: '2026-11-23',
  machine: 'a machine, load 3.0',
  seeds: [1, 2, 3],
  outcomes: [outcome(4, [-149, 200]), outcome(6, [-152, 200]), outcome(5, [-146, 199])],
}

test('the table of the suite has a line for each figure of a row that was measured', () => {
  const unmeasured = { ...row, settings: {} }
  const lines = tableOf([unmeasured, row], [record]).split('\n')
  const told = lines.filter((line) => line.includes('Pendulum-v1'))
  expect(told).toEqual([
    // The deviation is √((0² + 3² + 3²) / 3), and −152 does not reach −150.
    '| Pendulum-v1 | sac, sacNetwork | 30,000 | mean return | ≥ −150 | −149 ± 2.45 | −149, −152, −146 | **2 of 3** | −157 | 4–6 | 2026-11-23 |',
    '| Pendulum-v1 | sac, sacNetwork | 30,000 | length | ≤ 200 | 199.7 ± 0.471 | 200, 200, 199 | all 3 | – | 4–6 | 2026-11-23 |',
  ])
  expect(lines.join('\n')).toContain('Machine: a machine.')
  const begun = { ...record, seeds: [1], outcomes: record.outcomes.slice(0, 1) }
  expect(tableOf([row], [begun])).toContain('| −149 | all 1 so far | −157 |')
})

test('a record stands while its runs are told the same, and a setting that has come since its default', () => {
  const then = { algorithm: { gamma: 0.9, hidden: [8] }, run: { numLanes: 4 }, what: ['mean return'] }
  const defaults = { algorithm: { gamma: 0.99, hidden: [64], normalize: false } }
  const told = (algorithm: object, more = {}) =>
    isTold(
      JSON.stringify(then),
      { ...then, what: { 0: 'mean return' }, algorithm: { ...algorithm }, ...more },
      defaults,
    )
  const now = { gamma: 0.9, hidden: [8], normalize: false }
  expect(told(now)).toBe(true)
  expect(told({ ...now, normalize: true })).toBe(false)
  expect(told({ ...now, gamma: 0.99 })).toBe(false)
  expect(told({ ...now, hidden: [8, 8] })).toBe(false)
  expect(told({ hidden: [8], normalize: false })).toBe(false) // There is no such setting any more.
  expect(told(now, { run: { numLanes: 8 } })).toBe(false)
  expect(told(now, { what: { 0: 'mean length' } })).toBe(false)
})

test('the shortest way takes the key, opens the door and walks to the goal', () => {
  const fields = ['#####', '#.#.#', '#k+.#', '#.#G#', '#####'].join('')
  const codes = [...fields].map((field) => '.#Gk+'.indexOf(field))
  // From (1, 1) facing down: pick up, forward, left, open, forward, forward, right, forward.
  expect(shortestWay(Uint8Array.from(codes), 5, { field: 6, facing: 1 })).toBe(8)
  // Facing right: a turn more.
  expect(shortestWay(Uint8Array.from(codes), 5, { field: 6, facing: 0 })).toBe(9)
})

test('the best return of an empty room is that of its distances', async () => {
  // 35 fields to begin on, four directions each.
  let steps = 0
  for (let x = 1; x <= 6; x++) {
    for (let y = 1; y <= 6; y++) {
      if (x === 6 && y === 6) continue
      // Turns of who faces right, down, left, up: the way goes right, down, or both, and then has a turn between them.
      const turns = x === 6 ? [1, 0, 1, 2] : y === 6 ? [0, 1, 2, 1] : [1, 1, 2, 2]
      for (const turn of turns) steps += turn + 12 - x - y
    }
  }
  const expected = 1 - (0.9 * steps) / (35 * 4) / 256
  expect(await bestReturn('EmptyRoom-v0')).toBeCloseTo(expected, 2)
})
