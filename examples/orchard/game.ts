/**
 * A small bitecs game without any learning code. A player runs about an orchard and picks apples; wasps fly to and fro,
 * bounce off its walls and sting. Run it in a terminal, and steer with the arrow keys (q ends it):
 *
 *     node game.js
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { addComponent, addEntity, createWorld, query, removeEntity } from 'bitecs'

/** Maximum entities of a game: bitecs numbers them from 1. */
const CAPACITY = 16
const NUM_APPLES = 6
const NUM_WASPS = 3
/** Seconds per step. The orchard is a square from 0 to 1. */
export const STEP_S = 0.05
const RADIUS = 0.05
const ACCELERATION = 6
const DRAG = 4
const WASP_SPEED = 0.3

const column = () => new Float32Array(CAPACITY)
export const Position = { x: column(), y: column() }
export const Velocity = { x: column(), y: column() }
/** The player's input: a direction from `directions`. */
export const Steering = { direction: new Uint8Array(CAPACITY) }
/** The player's observation: the nearest apple and the nearest wasp, relative to the player. */
export const Sight = { appleX: column(), appleY: column(), waspX: column(), waspY: column() }
/** Apples minus stings, in this step and in total. */
export const Basket = { gained: column(), apples: column() }
/** Tags. */
export const Apple = {}
export const Wasp = {}

/** Stay, left, right, up, down. */
const directions = [
  [0, 0],
  [-1, 0],
  [1, 0],
  [0, -1],
  [0, 1],
] as const

export type Orchard = ReturnType<typeof createOrchard>

/** A new game, independent of earlier ones. The seed determines all its random numbers. */
export function createOrchard(seed: number) {
  const orchard = createWorld({ player: 0, random: randomOf(seed) })
  orchard.player = addEntity(orchard)
  for (const component of [Position, Velocity, Steering, Sight, Basket]) {
    for (const values of Object.values(component)) values.fill(0)
    addComponent(orchard, orchard.player, component)
  }
  Position.x[orchard.player] = 0.5
  Position.y[orchard.player] = 0.5
  for (let i = 0; i < NUM_APPLES; i++) growApple(orchard)
  for (let i = 0; i < NUM_WASPS; i++) {
    const wasp = addEntity(orchard)
    for (const component of [Wasp, Position, Velocity]) addComponent(orchard, wasp, component)
    const angle = 2 * Math.PI * orchard.random()
    Position.x[wasp] = orchard.random() < 0.5 ? 0.1 : 0.9
    Position.y[wasp] = orchard.random()
    Velocity.x[wasp] = WASP_SPEED * Math.cos(angle)
    Velocity.y[wasp] = WASP_SPEED * Math.sin(angle)
  }
  look(orchard)
  return orchard
}

function growApple(orchard: Pick<Orchard, 'random'>): void {
  const apple = addEntity(orchard)
  for (const component of [Apple, Position]) addComponent(orchard, apple, component)
  Position.x[apple] = 0.05 + 0.9 * orchard.random()
  Position.y[apple] = 0.05 + 0.9 * orchard.random()
}

export function steer(orchard: Orchard): void {
  for (const e of query(orchard, [Steering, Velocity])) {
    const [x, y] = directions[Steering.direction[e]!]!
    Velocity.x[e]! += STEP_S * (ACCELERATION * x - DRAG * Velocity.x[e]!)
    Velocity.y[e]! += STEP_S * (ACCELERATION * y - DRAG * Velocity.y[e]!)
  }
}

/** Everything moves, and bounces off the walls. */
export function move(orchard: Orchard): void {
  for (const e of query(orchard, [Position, Velocity])) {
    for (const axis of ['x', 'y'] as const) {
      const place = Position[axis][e]! + STEP_S * Velocity[axis][e]!
      Position[axis][e] = Math.min(Math.max(place, 0), 1)
      if (place < 0 || place > 1) Velocity[axis][e]! *= -1
    }
  }
}

/** The player picks the apples that it touches; others grow elsewhere. */
export function pick(orchard: Orchard): void {
  const { player } = orchard
  Basket.gained[player] = 0
  for (const apple of [...query(orchard, [Apple, Position])]) {
    if (distance(player, apple) > 2 * RADIUS) continue
    Basket.gained[player]++
    removeEntity(orchard, apple)
    growApple(orchard)
  }
}

/** A wasp that touches the player takes two apples away, and flies off to a wall. */
export function sting(orchard: Orchard): void {
  const { player } = orchard
  for (const wasp of query(orchard, [Wasp, Position])) {
    if (distance(player, wasp) > 1.5 * RADIUS) continue
    Basket.gained[player]! -= 2
    Position.x[wasp] = Position.x[player]! < 0.5 ? 1 : 0
  }
  Basket.apples[player]! += Basket.gained[player]!
}

/** Runs last: writes the player's next observation. */
export function look(orchard: Pick<Orchard, 'player'>): void {
  const { player } = orchard
  const apple = nearest(player, query(orchard, [Apple, Position]))
  const wasp = nearest(player, query(orchard, [Wasp, Position]))
  Sight.appleX[player] = Position.x[apple]! - Position.x[player]!
  Sight.appleY[player] = Position.y[apple]! - Position.y[player]!
  Sight.waspX[player] = Position.x[wasp]! - Position.x[player]!
  Sight.waspY[player] = Position.y[wasp]! - Position.y[player]!
}

/** One step of the game, in this order. */
export const systems = [steer, move, pick, sting, look]

function distance(a: number, b: number): number {
  return Math.hypot(Position.x[a]! - Position.x[b]!, Position.y[a]! - Position.y[b]!)
}

function nearest(from: number, entities: ArrayLike<number>): number {
  let best = entities[0]!
  for (let i = 1; i < entities.length; i++) if (distance(from, entities[i]!) < distance(from, best)) best = entities[i]!
  return best
}

/** Numbers from 0 to 1 that follow from the seed (Mulberry32). */
function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let word = Math.imul(state ^ (state >>> 15), 1 | state)
    word = (word + Math.imul(word ^ (word >>> 7), 61 | word)) ^ word
    return ((word ^ (word >>> 14)) >>> 0) / 2 ** 32
  }
}

/** The game as lines of text. */
export function draw(orchard: Orchard): string {
  const [width, height] = [48, 20]
  const rows = Array.from({ length: height }, () => new Array<string>(width).fill(' '))
  const put = (e: number, sign: string) => {
    rows[Math.round(Position.y[e]! * (height - 1))]![Math.round(Position.x[e]! * (width - 1))] = sign
  }
  for (const apple of query(orchard, [Apple, Position])) put(apple, 'o')
  for (const wasp of query(orchard, [Wasp, Position])) put(wasp, '%')
  put(orchard.player, '@')
  const line = `+${'-'.repeat(width)}+`
  return [`${Basket.apples[orchard.player]} apples`, line, ...rows.map((row) => `|${row.join('')}|`), line, ''].join(
    '\n',
  )
}

/**
 * Plays in real time, STEP_S per step, and draws; `decide` steers before each step. Resolves with the apples at the
 * end.
 */
export async function play(seconds: number, seed: number, decide: (orchard: Orchard) => void): Promise<number> {
  const orchard = createOrchard(seed)
  const isTerminal = process.stdout.isTTY
  if (isTerminal) process.stdout.write('\x1b[2J')
  const start = performance.now()
  for (let step = 1; step <= seconds / STEP_S; step++) {
    decide(orchard)
    for (const system of systems) system(orchard)
    if (isTerminal) process.stdout.write(`\x1b[H${draw(orchard)}`)
    const wait = start + 1000 * STEP_S * step - performance.now()
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, wait)))
  }
  return Basket.apples[orchard.player]!
}

if (realpathSync(process.argv[1]!) === fileURLToPath(import.meta.url)) {
  let pressed = 0
  if (process.stdin.isTTY) process.stdin.setRawMode(true)
  process.stdin.on('data', (keys) => {
    if (['q', '\x03'].includes(String(keys))) process.exit()
    pressed = ['\x1b[D', '\x1b[C', '\x1b[A', '\x1b[B'].indexOf(String(keys)) + 1
  })
  const apples = await play(30, Date.now() % 2 ** 32, ({ player }) => {
    Steering.direction[player] = pressed
  })
  console.log(`${apples} apples in 30 seconds`)
  process.exit()
}
