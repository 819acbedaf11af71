import { execFileSync } from 'node:child_process'
import {
  addComponent,
  addEntity,
  createWorld as createEcs,
  getAllEntities,
  getEntityComponents,
  hasComponent,
  query,
  removeComponent,
  removeEntity,
} from 'bitecs'
import { expect, test } from 'vitest'
import { createLanes } from '../src/cohorts/lanes.ts'

const sorted = (entities: Iterable<number>) => [...entities].sort((a, b) => a - b)

test('lanes behave as entities whose sets of components bitecs keeps itself', () => {
  const ecs = createEcs()
  const [left, right, tag] = [{ name: 'left' }, { name: 'right' }, { name: 'tag' }]
  const lanes = createLanes(ecs, [left], 4)
  const others = createLanes(ecs, [left, right], 3)
  const stranger = addEntity(ecs)
  expect([...lanes, ...others, stranger]).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  expect(sorted(query(ecs, [left]))).toEqual([1, 2, 3, 4, 5, 6, 7])
  expect(sorted(getAllEntities(ecs))).toEqual([1, 2, 3, 4, 5, 6, 7, 8])

  // A component of one lane is that lane's alone.
  addComponent(ecs, 2, tag)
  expect(getEntityComponents(ecs, 2)).toEqual([left, tag])
  expect(getEntityComponents(ecs, 3)).toEqual([left])
  expect([hasComponent(ecs, 2, tag), hasComponent(ecs, 3, tag)]).toEqual([true, false])
  expect([...query(ecs, [tag])]).toEqual([2])

  removeComponent(ecs, 6, right)
  expect(getEntityComponents(ecs, 6)).toEqual([left])
  expect(sorted(query(ecs, [right]))).toEqual([5, 7])

  removeEntity(ecs, 3)
  expect(() => getEntityComponents(ecs, 3)).toThrow()
  expect(sorted(query(ecs, [left]))).toEqual([1, 2, 4, 5, 6, 7])
  expect(sorted(getAllEntities(ecs))).toEqual([1, 2, 4, 5, 6, 7, 8])
  const again = addEntity(ecs)
  expect(again).toBe(3)
  expect(getEntityComponents(ecs, 3)).toEqual([])
})

test('of 131,072 lanes bitecs takes at most 200 bytes each, and the world learns', () => {
  const script = new URL('./support/lane-bytes.mjs', import.meta.url).pathname
  const printed = execFileSync(process.execPath, ['--expose-gc', script, '131072'], { encoding: 'utf8' })
  const { heap, lanes, rollout, learner, steps } = JSON.parse(printed)
  const figures = { bitecs: heap, lanes, rollout, learner }
  console.log(
    `bytes a lane: ${JSON.stringify(figures, (_, value) => (typeof value === 'number' ? Math.round(value) : value))}`,
  )
  expect(heap).toBeLessThanOrEqual(200)
  expect(lanes).toBeGreaterThan(0)
  expect(steps).toBe(4 * 131_072)
})
