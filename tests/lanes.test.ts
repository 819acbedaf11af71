import { execFileSync } from 'node:child_process'
import {
  addComponent,
  addComponents,
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
import { LaneEntities, Present } from '../src/world/lanes.ts'

const sorted = (entities: Iterable<number>) => [...entities].sort((a, b) => a - b)

test('lanes are plain entities of bitecs', () => {
  const ecs = createEcs()
  const [left, right, tag] = [{ name: 'left' }, { name: 'right' }, { name: 'tag' }]
  const { lanes } = new LaneEntities(ecs, [left], 4)
  const { lanes: others } = new LaneEntities(ecs, [left, right], 3)
  const stranger = addEntity(ecs)
  expect([...lanes, ...others, stranger]).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
  expect(sorted(query(ecs, [left]))).toEqual([1, 2, 3, 4, 5, 6, 7])
  expect(sorted(getAllEntities(ecs))).toEqual([1, 2, 3, 4, 5, 6, 7, 8])

  // A component of one lane is that lane's alone.
  addComponent(ecs, 2, tag)
  expect(getEntityComponents(ecs, 2)).toEqual([left, Present, tag])
  expect(getEntityComponents(ecs, 3)).toEqual([left, Present])
  expect([hasComponent(ecs, 2, tag), hasComponent(ecs, 3, tag)]).toEqual([true, false])
  expect([...query(ecs, [tag])]).toEqual([2])

  removeComponent(ecs, 6, right)
  expect(getEntityComponents(ecs, 6)).toEqual([left, Present])
  expect(sorted(query(ecs, [right]))).toEqual([5, 7])

  removeEntity(ecs, 3)
  expect(() => getEntityComponents(ecs, 3)).toThrow()
  expect(sorted(query(ecs, [left]))).toEqual([1, 2, 4, 5, 6, 7])
  expect(sorted(getAllEntities(ecs))).toEqual([1, 2, 4, 5, 6, 7, 8])
  const again = addEntity(ecs)
  expect(again).toBe(3)
  expect(getEntityComponents(ecs, 3)).toEqual([])
})

test('the query decides which rows are taken, and a number that is used again is another entity', () => {
  const ecs = createEcs()
  const component = {}
  const entities = new LaneEntities(ecs, [component], 4)
  expect([...entities.lanes]).toEqual([1, 2, 3, 4])
  expect(entities.hasChanged).toBe(true) // The query has not been asked about them.
  entities.seat(entities.lanes)
  expect(entities.hasChanged).toBe(false)

  removeEntity(ecs, 2)
  const again = addEntity(ecs)
  expect(again).toBe(2)
  addComponents(ecs, again, [component, Present])
  removeComponent(ecs, 3, Present)
  expect(entities.hasChanged).toBe(true)
  const { rows, newcomers } = entities.find()
  expect([[...rows], newcomers]).toEqual([[0, 3], [2]])
  expect(entities.count).toBe(3)

  entities.seat([1, 4, 2])
  expect([...entities.lanes]).toEqual([1, 4, 2])
  expect([1, 2, 3, 4].map((entity) => entities.rowOf(entity))).toEqual([0, 2, -1, 1])
  expect(entities.hasChanged).toBe(false)
  entities.seat([1, 2]) // Whoever gets no row has none, though it is there.
  expect([1, 2, 4].map((entity) => entities.rowOf(entity))).toEqual([0, 1, -1])
  entities.seat([1, 4, 2])
  addEntity(ecs) // Of no cohort.
  expect(entities.hasChanged).toBe(false)
  addComponents(ecs, 3, [Present])
  expect(entities.find().newcomers).toEqual([3])
})

test('of 131,072 lanes bitecs takes at most 350 bytes each, and the world learns', () => {
  const script = new URL('./support/lane-bytes.mjs', import.meta.url).pathname
  const printed = execFileSync(process.execPath, ['--expose-gc', script, '131072'], { encoding: 'utf8' })
  const { heap, lanes, rollout, learner, steps } = JSON.parse(printed)
  const figures = { bitecs: heap, lanes, rollout, learner }
  console.log(
    `bytes a lane: ${JSON.stringify(figures, (_, value) => (typeof value === 'number' ? Math.round(value) : value))}`,
  )
  expect(heap).toBeLessThanOrEqual(350)
  expect(lanes).toBeGreaterThan(0)
  expect(steps).toBe(4 * 131_072)
})
