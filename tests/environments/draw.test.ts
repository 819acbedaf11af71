/** What environments draw of a lane: in the colors there are, and where things are. */
import { describe, expect, test } from 'vitest'
import {
  Canvas,
  createEnvironment,
  frameStack,
  isGrid,
  listEnvironments,
  type Picture,
  pictureColors,
  wrap,
} from '../../src/entries/environments.ts'
import { createWorld, type EnvironmentDefinition, type EpisodeCohort, mlp, tick } from '../../src/index.ts'

/** What is drawn of lane 0 before each of so many ticks, with the state that it is drawn from. */
async function drawn(environment: EnvironmentDefinition, ticks: number) {
  const { numAgents = 1 } = environment
  const world = await createWorld({ environment, policy: mlp({ hidden: [4] }), numLanes: 2 * numAgents, seed: 2 })
  const cohort = world.cohort() as EpisodeCohort
  const pictures: { picture: Picture; state: Record<string, ArrayLike<number>> }[] = []
  for (let i = 0; i < ticks; i++) {
    await tick(world)
    const { state } = cohort.environmentLanes as { state: Record<string, Float32Array> }
    const copy = Object.fromEntries(Object.entries(state).map(([name, column]) => [name, column.slice()]))
    pictures.push({ picture: environment.draw!(state, 0), state: copy })
  }
  return pictures
}

test.each(listEnvironments().filter((id) => !isGrid(createEnvironment(id).observationSpace)))(
  'every environment that is seen as no grid draws a lane: %s',
  async (id) => {
    const pictures = await drawn(createEnvironment(id), 40)
    const { rows, columns } = pictures[0]!.picture
    for (const { picture } of pictures) {
      expect([picture.rows, picture.columns, picture.fields.length]).toEqual([rows, columns, rows * columns])
      expect(Math.max(...picture.fields)).toBeLessThan(pictureColors.length)
    }
    expect(new Set(pictures.map(({ picture }) => picture.fields.join())).size).toBeGreaterThan(2)
  },
)

describe('what is drawn is where it is', () => {
  test('the top of a pole', async () => {
    for (const { picture, state } of await drawn(createEnvironment('CartPole-v1'), 20)) {
      const { columns, fields } = picture
      const top = fields.indexOf(2)
      const x = -2.6 + ((top % columns) + 0.5) * (5.2 / columns)
      expect(Math.abs(x - (state.position![0]! + Math.sin(state.angle![0]!)))).toBeLessThan(0.1)
    }
  })

  test('the end of a pendulum', async () => {
    for (const { picture, state } of await drawn(createEnvironment('Pendulum-v1'), 30)) {
      const { rows, columns, fields } = picture
      const [x, y] = [Math.sin(state.angle![0]!), Math.cos(state.angle![0]!)]
      const at = (x: number, y: number) =>
        fields[Math.floor(((1.3 - y) / 2.6) * rows) * columns + Math.floor(((x + 1.3) / 2.6) * columns)]
      expect([at(x, y), at(x / 2, y / 2), at(-x / 2, -y / 2)]).toEqual([2, 2, 0])
    }
  })

  test.each([
    ['FrozenLake-v1 isSlippery=false', 4],
    ['CliffWalking-v1', 4],
  ])('somebody on a map: %s', async (spec, color) => {
    for (const { picture, state } of await drawn(createEnvironment(spec), 20)) {
      expect(picture.fields.indexOf(color)).toBe(state.at![0])
    }
  })

  test('a taxi, and whether the passenger is aboard', async () => {
    for (const { picture, state } of await drawn(createEnvironment('Taxi-v3'), 60)) {
      const number = state.at![0]!
      const [row, column, passenger] = [
        Math.floor(number / 100),
        Math.floor(number / 20) % 5,
        Math.floor(number / 4) % 5,
      ]
      expect(picture.fields[row * 9 + 2 * column]).toBe(passenger === 4 ? 6 : 2)
      expect(picture.fields.filter((field) => field === 9)).toHaveLength(6) // Walls.
    }
  })

  test('snakes are as long as they are drawn, and predators lie above prey', async () => {
    for (const { picture, state } of await drawn(createEnvironment('Snake-v0'), 30)) {
      const lengths = Array.from(state.length!).slice(0, 4)
      const parts = picture.fields.filter((field) => field !== 0 && field !== 4).length
      expect(parts).toBe(lengths.reduce((sum, length) => sum + length, 0))
    }
    for (const { picture, state } of await drawn(createEnvironment('PredatorPrey-v0'), 30)) {
      for (const n of [0, 1]) expect(picture.fields[state.y![n]! * 8 + state.x![n]!]).toBe(4)
    }
  })

  test('a wrapper leaves what the environment inside draws', async () => {
    const inside = createEnvironment('Acrobot-v1')
    const [one, other] = [await drawn(inside, 1), await drawn(wrap(inside, frameStack({ frames: 2 })), 1)]
    expect(other[0]!.picture.columns).toBe(one[0]!.picture.columns)
    expect(other[0]!.picture.fields).toContain(6)
  })
})

test('a canvas has y upwards, and what is drawn later above', () => {
  const canvas = new Canvas({ low: [0, 0], high: [4, 2], columns: 4 })
  expect([canvas.rows, canvas.columns]).toEqual([2, 4])
  canvas.rectangle(0, 1, 4, 2, 1).disc(0.5, 1.5, 0.6, 2).line(2, 0.5, 4, 0.5, 0.5, 3)
  expect([...canvas.fields]).toEqual([2, 1, 1, 1, 0, 0, 3, 3])
  const square = () => new Canvas({ low: [0, 0], high: [3, 3], columns: 3 })
  expect([...square().disc(1.5, 1.5, 1.1, 1).fields]).toEqual([0, 1, 0, 1, 1, 1, 0, 1, 0])
  expect([...square().rectangle(1, 1, 2, 2, 1).fields]).toEqual([0, 0, 0, 0, 1, 0, 0, 0, 0])
  expect([...new Canvas({ low: [0, 0], high: [2, 2], columns: 2 }).below((x) => x, 5).fields]).toEqual([0, 5, 5, 5])
})
