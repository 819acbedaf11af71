/** Draws the lanes of an environment, all at once, as tiles of a grid. */
import { breakout, cartPole, type EnvironmentFactory, environmentFactory, pendulum } from 'colonnade'
import { gridPicture, pictureColors } from '../src/environments/picture.ts'

/** What a scene draws. */
export interface Drawn {
  readonly context: CanvasRenderingContext2D
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
  readonly factory: EnvironmentFactory
  /** Lanes in a wide page, and in a narrow one. */
  readonly numLanes: readonly [number, number]
  /** Width of a tile by its height. */
  readonly aspect: number
  /** Frames, of 60 a second, per step. */
  readonly frames: number
  readonly caption: string
  draw(drawn: Drawn): void
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
  context.lineWidth = Math.max(1.2, height * 0.07)
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
    context.lineWidth = Math.max(1.2, height * 0.07)
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
function fields(factory: EnvironmentFactory) {
  const { observationSpace } = factory()
  const scratch = document.createElement('canvas')
  return (drawn: Drawn): void => {
    const { context, observation, numLanes, columns, width, height } = drawn
    const size = observation.length / numLanes
    const { rows, columns: across } = gridPicture(observationSpace, observation.subarray(0, size))
    const [tileWidth, tileHeight] = [across + 1, rows + 1]
    scratch.width = columns * tileWidth
    scratch.height = Math.ceil(numLanes / columns) * tileHeight
    const pen = scratch.getContext('2d')!
    const image = pen.createImageData(scratch.width, scratch.height)
    const pixels = new Uint32Array(image.data.buffer)
    for (let lane = 0; lane < numLanes; lane++) {
      const picture = gridPicture(observationSpace, observation.subarray(lane * size, (lane + 1) * size))
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
    const [gapX, gapY] = [width / tileWidth / 2, height / tileHeight / 2]
    context.drawImage(scratch, gapX, gapY, columns * width, Math.ceil(numLanes / columns) * height)
  }
}

export const scenes: readonly Scene[] = [
  {
    ...{
      factory: cartPole as unknown as EnvironmentFactory,
      numLanes: [1000, 400],
      aspect: 1.15,
      frames: 1,
      draw: poles,
    },
    caption:
      'Carts balance a pole; angles are drawn three times as wide. The longer one stands, the stronger its color.',
  },
  {
    ...{ factory: pendulum as unknown as EnvironmentFactory, numLanes: [1000, 400], aspect: 1, frames: 2, draw: swing },
    caption: 'Pendulums swing up and stay up.',
  },
  {
    ...{ factory: environmentFactory('Acrobot-v1'), numLanes: [1000, 400], aspect: 1, frames: 2, draw: acrobat },
    caption: 'Acrobats of two rods swing their foot up.',
  },
  {
    ...{
      factory: breakout as unknown as EnvironmentFactory,
      numLanes: [240, 60],
      aspect: 1,
      frames: 6,
      draw: fields(breakout as unknown as EnvironmentFactory),
    },
    caption: 'Games of MinAtar Breakout: paddle, ball, its trail and bricks.',
  },
]
