/** Draws the lanes of an environment, all at once, as tiles of a grid. */
import type { BoxSpace } from 'colonnade'
import { gridPicture, isGrid, pictureColors } from '../src/environments/picture.ts'

/** What a scene draws. */
export interface Drawn {
  readonly context: OffscreenCanvasRenderingContext2D
  readonly observation: Float32Array
  readonly numLanes: number
  /** Steps of each lane's episode so far. */
  readonly step: Int32Array
  readonly columns: number
  /** Pixels of a tile. */
  readonly width: number
  readonly height: number
  readonly colors: Colors
}

export interface Colors {
  readonly low: string
  readonly high: string
  readonly ground: string
}

export interface Scene {
  /** The environment's id. */
  readonly id: string
  /** Lanes in a wide page, and in a narrow one. */
  readonly numLanes: readonly [number, number]
  /** Width of a tile by its height. */
  readonly aspect: number
  /** Frames, of 60 a second, per step. */
  readonly frames: number
  readonly caption: string
  /** What the numbers of an observation are; without, they are numbered. */
  readonly names?: readonly string[]
  readonly play: Play
  draw(drawn: Drawn): void
}

/** How a person plays. */
export interface Play {
  /** The action of each key. */
  readonly keys: Readonly<Record<string, number>>
  /** Without a key; null: the last one again. */
  readonly idle: number | null
  /** Frames per step. */
  readonly frames: number
}

/** Lanes are drawn in a few shades, one stroke per shade: a stroke per lane would take the whole frame. */
const SHADES = 6

/** Calls `add` for each lane of a shade with the center of its tile, then strokes what was added. `shadeOf` is from 0 to 1. */
function strokes(
  drawn: Drawn,
  shadeOf: (lane: number) => number,
  add: (lane: number, x: number, y: number) => void,
): void {
  const { context, numLanes, columns, width, height, colors } = drawn
  for (let shade = 0; shade < SHADES; shade++) {
    const part = shade / (SHADES - 1)
    context.strokeStyle = `color-mix(in oklab, ${colors.high} ${Math.round(100 * part)}%, ${colors.low})`
    context.beginPath()
    for (let lane = 0; lane < numLanes; lane++) {
      if (Math.min(SHADES - 1, Math.max(0, Math.floor(SHADES * shadeOf(lane)))) !== shade) continue
      add(lane, ((lane % columns) + 0.5) * width, (Math.floor(lane / columns) + 0.5) * height)
    }
    context.stroke()
  }
}

/** Of strokes in a tile. */
const thickness = (height: number) => Math.min(14, Math.max(1.2, height * 0.07))

function ground({ context, numLanes, columns, width, height, colors }: Drawn, below: number): void {
  context.strokeStyle = colors.ground
  context.lineWidth = 1
  context.beginPath()
  for (let lane = 0; lane < numLanes; lane++) {
    const [x, y] = [(lane % columns) * width, Math.round((Math.floor(lane / columns) + 0.5 + below) * height) + 0.5]
    context.moveTo(x + 0.12 * width, y)
    context.lineTo(x + 0.88 * width, y)
  }
  context.stroke()
}

function poles(drawn: Drawn): void {
  const { context, observation, width, height } = drawn
  ground(drawn, 0.34)
  context.lineCap = 'round'
  context.lineWidth = thickness(height)
  const longest = (lane: number) => drawn.step[lane]! / 400
  strokes(drawn, longest, (lane, x, y) => {
    const cart = x + (observation[4 * lane]! / 2.4) * 0.38 * width
    const angle = observation[4 * lane + 2]!
    const foot = y + 0.28 * height
    context.moveTo(cart - 0.1 * height, foot)
    context.lineTo(cart + 0.1 * height, foot)
    context.moveTo(cart, foot)
    // Angles of at most 12 degrees are hard to see in a small tile.
    context.lineTo(cart + Math.sin(3 * angle) * 0.58 * height, foot - Math.cos(3 * angle) * 0.58 * height)
  })
}

/** Rods on a pivot: `angles` gives sine and cosine of each, from straight up or straight down. */
function rods(length: number, sign: 1 | -1, angles: (observation: Float32Array, lane: number) => number[][]) {
  return (drawn: Drawn): void => {
    const { context, observation, height, colors, numLanes, columns, width } = drawn
    context.lineCap = 'round'
    context.lineJoin = 'round'
    context.lineWidth = thickness(height)
    // The shade is the height of the foot.
    const high = (lane: number) => {
      const all = angles(observation, lane)
      const sum = all.reduce((total, [, cos]) => total + cos!, 0)
      return 0.5 - (0.5 * sign * sum) / all.length
    }
    strokes(drawn, high, (lane, x, y) => {
      let [jointX, jointY] = [x, y]
      context.moveTo(jointX, jointY)
      for (const [sin, cos] of angles(observation, lane)) {
        jointX += sin! * length * height
        jointY += sign * cos! * length * height
        context.lineTo(jointX, jointY)
      }
    })
    context.fillStyle = colors.ground
    const size = Math.max(1.5, height * 0.09)
    for (let lane = 0; lane < numLanes; lane++) {
      const [x, y] = [((lane % columns) + 0.5) * width, (Math.floor(lane / columns) + 0.5) * height]
      context.fillRect(x - size / 2, y - size / 2, size, size)
    }
  }
}

const swing = rods(0.42, -1, (observation, lane) => [[observation[3 * lane + 1]!, observation[3 * lane]!]])
const acrobat = rods(0.29, 1, (observation, lane) => {
  const [cos1, sin1, cos2, sin2] = observation.subarray(6 * lane, 6 * lane + 4) as unknown as [
    number,
    number,
    number,
    number,
  ]
  return [
    [sin1, cos1],
    [sin1 * cos2 + cos1 * sin2, cos1 * cos2 - sin1 * sin2],
  ]
})

/** Draws the fields of a grid as one image, so that a lane costs only its bytes. */
function fields(space: BoxSpace) {
  let scratch: OffscreenCanvas | undefined
  return (drawn: Drawn): void => {
    scratch ??= new OffscreenCanvas(1, 1)
    const { context, observation, numLanes, columns, width, height } = drawn
    const size = observation.length / numLanes
    const { rows, columns: across } = gridPicture(space, observation.subarray(0, size))
    const [tileWidth, tileHeight] = [across + 1, rows + 1]
    scratch.width = columns * tileWidth
    scratch.height = Math.ceil(numLanes / columns) * tileHeight
    const pen = scratch.getContext('2d')!
    const image = pen.createImageData(scratch.width, scratch.height)
    const pixels = new Uint32Array(image.data.buffer)
    for (let lane = 0; lane < numLanes; lane++) {
      const picture = gridPicture(space, observation.subarray(lane * size, (lane + 1) * size))
      const at = Math.floor(lane / columns) * tileHeight * scratch.width + (lane % columns) * tileWidth
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < across; column++) {
          const [red, green, blue] = pictureColors[picture.fields[row * across + column]!]!
          pixels[at + row * scratch.width + column] = (255 << 24) | (blue << 16) | (green << 8) | red
        }
      }
    }
    pen.putImageData(image, 0, 0)
    context.imageSmoothingEnabled = false
    // Whole tiles: the image is as wide as its tiles, which are square.
    const side = Math.min(width / tileWidth, height / tileHeight)
    for (let lane = 0; lane < numLanes; lane++) {
      const [column, row] = [lane % columns, Math.floor(lane / columns)]
      const [x, y] = [column * width + (width - across * side) / 2, row * height + (height - rows * side) / 2]
      context.drawImage(scratch, column * tileWidth, row * tileHeight, across, rows, x, y, across * side, rows * side)
    }
  }
}

/** Draws each lane's numbers as bars between their bounds. */
function bars({ low, high }: BoxSpace) {
  return (drawn: Drawn): void => {
    const { context, observation, width, height, numLanes } = drawn
    const size = Math.min(12, low.length)
    const part = (lane: number, i: number) => {
      const [from, to] = [Math.max(-1e3, low[i]!), Math.min(1e3, high[i]!)]
      return Math.min(
        1,
        Math.max(0, (observation[(lane * observation.length) / numLanes + i]! - from) / (to - from || 1)),
      )
    }
    context.lineCap = 'butt'
    context.lineWidth = Math.max(1, (0.6 * width) / size)
    strokes(
      drawn,
      (lane) => drawn.step[lane]! / 100,
      (lane, x, y) => {
        for (let i = 0; i < size; i++) {
          const at = x + ((i + 0.5) / size - 0.5) * 0.8 * width
          context.moveTo(at, y + 0.4 * height)
          context.lineTo(at, y + 0.4 * height - 0.8 * height * part(lane, i) - 1)
        }
      },
    )
  }
}

const LEFT_RIGHT = { keys: { ArrowLeft: 0, ArrowRight: 1 }, idle: null, frames: 4 }
const minAtar: BoxSpace = { kind: 'box', shape: [10, 10, 4], low: [], high: [] }

export const scenes: readonly Scene[] = [
  {
    ...{ id: 'CartPole-v1', numLanes: [1000, 400], aspect: 1.15, frames: 1, draw: poles, play: LEFT_RIGHT },
    names: ['position', 'velocity', 'angle', 'turning'],
    caption:
      'Carts balance a pole; angles are drawn three times as wide. The longer one stands, the stronger its color.',
  },
  {
    ...{ id: 'Pendulum-v1', numLanes: [1000, 400], aspect: 1, frames: 2, draw: swing },
    names: ['cosine', 'sine', 'turning'],
    play: { keys: { ArrowLeft: 2, ArrowRight: -2 }, idle: 0, frames: 3 },
    caption: 'Pendulums swing up and stay up.',
  },
  {
    ...{ id: 'Acrobot-v1', numLanes: [1000, 400], aspect: 1, frames: 2, draw: acrobat },
    names: ['cosine 1', 'sine 1', 'cosine 2', 'sine 2', 'turning 1', 'turning 2'],
    play: { keys: { ArrowLeft: 0, ArrowRight: 2 }, idle: 1, frames: 4 },
    caption: 'Acrobats of two rods swing their foot up.',
  },
  {
    ...{ id: 'Breakout-MinAtar', numLanes: [240, 60], aspect: 1, frames: 6, draw: fields(minAtar) },
    play: { keys: { ArrowLeft: 1, ArrowRight: 2 }, idle: 0, frames: 8 },
    caption: 'Games of MinAtar Breakout: paddle, ball, its trail and bricks.',
  },
]

/** The scene of an environment, built-in or one's own. */
export function sceneFor(id: string, space: BoxSpace, numActions: number, bounds: readonly [number, number]): Scene {
  return scenes.find((each) => each.id === id) ?? sceneOf(space, numActions, bounds)
}

/** The columns of the grid of whole rows whose tiles are the largest. */
export function columnsFor(numLanes: number, aspect: number, width: number, height: number): number {
  let best = { columns: 1, tile: 0 }
  for (let columns = 1; columns <= numLanes; columns++) {
    if (numLanes % columns !== 0) continue
    const tile = Math.min(width / columns, ((height * columns) / numLanes) * aspect)
    if (tile > best.tile) best = { columns, tile }
  }
  return best.columns
}

/** The scene of one's own environment, by the spaces that its worker tells. */
export function sceneOf(space: BoxSpace, numActions: number, bounds: readonly [number, number]): Scene {
  // Where actions have no bounds, keys are -1 and 1.
  const [low, high] = bounds.map((bound) => (Number.isFinite(bound) ? bound : Math.sign(bound))) as [number, number]
  const play: Play =
    numActions === 2
      ? LEFT_RIGHT
      : numActions > 0
        ? { keys: { ArrowLeft: 0, ArrowRight: 2, ArrowUp: 3 }, idle: 1, frames: 4 }
        : { keys: { ArrowLeft: low, ArrowRight: high }, idle: (low + high) / 2, frames: 3 }
  const keys = Object.fromEntries(
    Object.entries(play.keys).filter(([, action]) => numActions === 0 || action < numActions),
  )
  return {
    ...{ id: OWN, numLanes: [240, 100], aspect: 1, frames: 2, play: { ...play, keys } },
    draw: isGrid(space) ? fields(space) : bars(space),
    caption: isGrid(space)
      ? 'Your environment.'
      : 'Your environment: each bar is a number of an observation, between its bounds.',
  }
}

/** In place of an id, for one's own environment. */
export const OWN = 'own'
