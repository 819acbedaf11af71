/** That bitecs decides who is there: what its query finds acts, what it does not find does not. */
import { beforeEach, expect, test, vi } from 'vitest'
import { cartPole, createWorld, mlp, tick } from '../src/index.ts'

const fault = vi.hoisted(() => ({ find: (entities: readonly number[]) => entities, adds: true }))

vi.mock('bitecs', async (original) => {
  const bitecs = await original<typeof import('bitecs')>()
  return {
    ...bitecs,
    query: (...given: Parameters<typeof bitecs.query>) => fault.find([...bitecs.query(...given)]),
    addComponents: (...given: Parameters<typeof bitecs.addComponents>) => {
      if (fault.adds) bitecs.addComponents(...given)
    },
  }
})

beforeEach(() => Object.assign(fault, { find: (entities: readonly number[]) => entities, adds: true }))

const options = { environment: cartPole(), policy: mlp({ hidden: [4] }), numLanes: 6, present: 4 }

test('whom its query leaves out does not act in the next rollout', async () => {
  const { addEntity, addComponents, getEntityComponents } = await import('bitecs')
  const world = await createWorld(options)
  const cohort = world.cohort()
  tick(world)
  fault.find = (entities) => entities.filter((entity) => entity !== 1)
  addComponents(world.ecs, addEntity(world.ecs), [cohort.state]) // Something happens, but nobody of the cohort.
  tick(world)
  expect(cohort.present).toBe(4)
  addComponents(world.ecs, addEntity(world.ecs), getEntityComponents(world.ecs, cohort.lanes[0]!) as object[])
  tick(world)
  expect([...cohort.lanes]).toEqual([0, 2, 3, 5])
  expect([...cohort.episode.step]).toEqual([3, 3, 3, 1, 0, 0])
})

test('without its query, or without components, there is no cohort', async () => {
  fault.find = () => []
  const world = await createWorld(options)
  expect(() => tick(world)).toThrow('a cohort of 4 lanes was found as 0')
  fault.find = (entities) => entities
  fault.adds = false
  const other = await createWorld(options)
  expect(() => tick(other)).toThrow('a cohort of 4 lanes was found as 0')
})
