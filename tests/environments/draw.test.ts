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
import { isThorough } from '../support/tiers.ts'

type Point = readonly [x: number, y: number]

/** What is drawn of lane 0 before each of so many ticks, with the state that it is drawn from. */
async function drawn(environment: EnvironmentDefinition, ticks: number) {
  const { numPlayers = 1 } = environment
  const world = await createWorld({ environment, policy: mlp({ hidden: [4] }), numLanes: 2 * numPlayers, seed: 2 })
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

/** Those of MuJoCo are drawn by one body: the fast tier has two of them. */
const drawable = listEnvironments().filter((id) => !isGrid(createEnvironment(id).observationSpace))
const isLight = (id: string) => !/-v[45]$/.test(id) || /^(Hopper|InvertedDoublePendulum)-/.test(id)

test.each(drawable.filter((id) => isThorough || isLight(id)))(
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

  /** What is drawn of lane n with this state; the columns have room for lanes 0 to n, and other lanes are elsewhere. */
  const drawnOf = (spec: string, n: number, state: Record<string, readonly number[]>) => {
    const environment = createEnvironment(spec)
    const columns = Object.entries(environment.state).map(([name, declared]) => {
      const width = typeof declared === 'string' ? 1 : declared[1]
      const column = new Float64Array((n + 1) * width)
      column.set(state[name] ?? [], n * width)
      return [name, column]
    })
    return environment.draw!(Object.fromEntries(columns), n)
  }

  /** The color at a point of what a canvas between these corners has drawn. */
  const colorAt = ({ rows, columns, fields }: Picture, [x, y]: Point, [left, low]: Point, [right, top]: Point) =>
    fields[Math.floor(((top - y) / (top - low)) * rows) * columns + Math.floor(((x - left) / (right - left)) * columns)]

  test('the two links of an acrobot, of which the second hangs on the first, and how high it shall come', () => {
    const picture = drawnOf('Acrobot-v1', 1, { angle1: [0.5], angle2: [0.7] })
    const elbow: Point = [Math.sin(0.5), -Math.cos(0.5)]
    const end: Point = [elbow[0] + Math.sin(1.2), elbow[1] - Math.cos(1.2)]
    const between = (a: Point, b: Point): Point => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]
    const points: Point[] = [between([0, 0], elbow), elbow, between(elbow, end), end, [2, 1], [2, -1]]
    expect(points.map((point) => colorAt(picture, point, [-2.2, -2.2], [2.2, 2.2]))).toEqual([1, 6, 5, 5, 3, 0])
  })

  test.each([
    ['MountainCar-v0', 0.5],
    ['MountainCarContinuous-v0', 0.45],
  ])('a car on its hill, and the flag at the goal: %s', (id, goal) => {
    const hill = (x: number) => 0.45 * Math.sin(3 * x) + 0.55 // Gymnasium's.
    const picture = drawnOf(id, 1, { position: [-0.9] })
    const points: Point[] = [
      [-0.9, hill(-0.9) + 0.05],
      [-0.9, hill(-0.9) - 0.1],
      [0.9 - 0.5, hill(0.4) + 0.06], // Where the car is not.
      [goal, hill(goal) + 0.05],
      [goal + 0.04, hill(goal) + 0.13],
    ]
    expect(points.map((point) => colorAt(picture, point, [-1.2, -0.05], [0.65, 1.25]))).toEqual([2, 3, 0, 9, 6])
  })

  test('a cart below its pole', () => {
    const picture = drawnOf('CartPole-v1', 1, { position: [1], angle: [0.3] })
    const points: Point[] = [
      [1.2, 0],
      [-0.2, 0],
      [1 + 0.5 * Math.sin(0.3), 0.05 + 0.5 * Math.cos(0.3)],
    ]
    expect(points.map((point) => colorAt(picture, point, [-2.6, -0.4], [2.6, 1.5]))).toEqual([1, 0, 2])
  })

  test('hands of cards as bars, with an ace that counts 11 in another color', () => {
    const bars = (sum: number, hasAce: number, shown: number) => {
      const { columns, fields } = drawnOf('Blackjack-v1', 1, { sum: [sum], hasAce: [hasAce], shown: [shown] })
      const bar = (row: number, color: number) =>
        fields.subarray(row * columns, (row + 1) * columns).filter((field) => field === color).length
      return { hard: bar(1, 1), soft: bar(1, 2), dealer: bar(3, 3), mark: fields.indexOf(9) }
    }
    expect(bars(7, 1, 4)).toEqual({ hard: 0, soft: 17, dealer: 4, mark: 20 })
    expect(bars(15, 1, 10)).toEqual({ hard: 15, soft: 0, dealer: 10, mark: 20 })
    expect(bars(13, 0, 1)).toEqual({ hard: 13, soft: 0, dealer: 1, mark: 20 })
  })

  test('a cue among others', () => {
    expect([...drawnOf('Recall-v0', 1, { cue: [2] }).fields].indexOf(2)).toBe(2)
  })

  test('rooms, who walks there and which way, and with a key in another color', () => {
    const side = Math.sqrt((createEnvironment('EmptyRoom-v0').state.fields as readonly [string, number])[1])
    const fields = Array.from({ length: side * side }, (_, at) => (at < side ? 1 : 0)) // A wall at the top.
    const at = (hasKey: number) => {
      const walker = { x: [3], y: [2], facing: [1], hasKey: [hasKey] }
      const picture = drawnOf('EmptyRoom-v0', 1, { fields, ...walker })
      expect([picture.rows, picture.columns]).toEqual([3 * side, 3 * side])
      const rows = Array.from({ length: 3 * side }, (_, row) => [
        ...picture.fields.subarray(3 * side * row, 3 * side * (row + 1)),
      ])
      expect(rows.slice(0, 3).flat()).toEqual(new Array(9 * side).fill(3))
      return rows.flatMap((row, y) => row.flatMap((color, x) => (y >= 3 && color !== 0 ? [[x, y, color]] : [])))
    }
    // It faces down: below its middle.
    expect(at(0)).toEqual([
      [10, 7, 4],
      [10, 8, 4],
    ])
    expect(at(1)).toEqual([
      [10, 7, 6],
      [10, 8, 6],
    ])
  })

  test('the head of a snake, its parts from the tail on, and its food', () => {
    const { fields } = drawnOf('Snake-v0 snakes=1', 1, { body: [5, 6, 7, 20], tail: [1], length: [3], food: [40] })
    const drawn = [...fields.entries()].filter(([, color]) => color !== 0)
    expect(drawn).toEqual([
      [6, fields[7]],
      [7, fields[6]],
      [20, 9],
      [40, 4],
    ])
    expect([4, 9]).not.toContain(fields[6])
  })

  test('a predator on the field of its prey', () => {
    const { numPlayers = 1, state } = createEnvironment('PredatorPrey-v0')
    const environment = createEnvironment('PredatorPrey-v0')
    expect(Object.keys(state)).toEqual(expect.arrayContaining(['x', 'y']))
    const lanes = { x: new Int32Array(2 * numPlayers).fill(3), y: new Int32Array(2 * numPlayers).fill(2) }
    lanes.x.fill(5, 0, numPlayers) // Of another game.
    const { columns, fields } = environment.draw!(lanes, 2 * numPlayers - 1)
    expect([...fields.entries()].filter(([, color]) => color !== 0)).toEqual([[2 * columns + 3, 4]])
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
