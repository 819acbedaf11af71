/**
 * A small bitecs game whose creatures learn while it is played. Fish eat algae and flee from a pike, which a person steers. The game's
 * components lie in memory that the page, which draws them, and the worker, in which the fish learn, share: neither sends the other a fish.
 *
 * The fish are the lanes of an environment. Unlike others it keeps state outside of its columns, since all fish swim in one pond; so
 * one thread has all lanes, and a checkpoint does not hold the pond.
 */
import { addComponents, addEntity, createWorld, query } from 'bitecs'
import { box, defineEnvironment, discrete, type Random, Stream } from 'colonnade'

export const NUM_FISH = 128
export const NUM_ALGAE = 64
/** Seconds per step. The pond is a square from 0 to 1. */
export const STEP_S = 1 / 60
const FISH = { speed: 0.2, turn: 5, reach: 0.02 }
const PIKE = { speed: 0.3, turn: 3, reach: 0.03 }
/** Entities: bitecs numbers them from 1; the pike is the first, then come fish and algae. */
const PIKE_ID = 1
const FIRST_FISH = 2
const FIRST_ALGA = FIRST_FISH + NUM_FISH
const CAPACITY = FIRST_ALGA + NUM_ALGAE

/** Tags. */
export const Fish = {}
export const Alga = {}
export const Pike = {}

/** A pond over shared memory; without memory, a new one. Every thread that has the memory sees the same pond. */
export function createPond(memory = new SharedArrayBuffer(8 * 4 + 5 * 4 * CAPACITY)) {
  let at = 8 * 4
  const column = () => {
    at += 4 * CAPACITY
    return new Float32Array(memory, at - 4 * CAPACITY, CAPACITY)
  }
  const components = {
    Position: { x: column(), y: column() },
    /** Radians, from the right, upward. */
    Heading: { angle: column() },
    /** Steps since a fish was born. */
    Age: { steps: column() },
    /** Of the pike: the turn that a person wants, from -1 to 1; NaN: it hunts by itself. */
    Steering: { turn: column() },
  }
  const counter = (i: number) => new Int32Array(memory, 4 * i, 1)
  const counters = {
    /** What has happened: fish caught, algae eaten, steps. */
    ...{ caught: counter(0), eaten: counter(1), steps: counter(2) },
    /** The clock: frames, and 1 where a step waits for the next frame. */
    ...{ frame: counter(3), waits: counter(4) },
  }
  const world = createWorld({ memory, ...components, ...counters })
  const { Position, Heading, Age, Steering } = components
  addComponents(world, addEntity(world), Pike, Position, Heading, Steering)
  for (let i = 0; i < NUM_FISH; i++) addComponents(world, addEntity(world), Fish, Position, Heading, Age)
  for (let i = 0; i < NUM_ALGAE; i++) addComponents(world, addEntity(world), Alga, Position)
  return world
}

export type Pond = ReturnType<typeof createPond>

/** The angle from -π to π. */
const wrap = (angle: number) => angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI))

function swim({ Position, Heading }: Pond, e: number, { speed, turn }: typeof FISH, wanted: number): void {
  Heading.angle[e] = wrap(Heading.angle[e]! + STEP_S * turn * wanted)
  Position.x[e] = Math.min(1, Math.max(0, Position.x[e]! + STEP_S * speed * Math.cos(Heading.angle[e]!)))
  Position.y[e] = Math.min(1, Math.max(0, Position.y[e]! + STEP_S * speed * Math.sin(Heading.angle[e]!)))
}

/** The nearest of some entities. */
function nearest({ Position: { x, y } }: Pond, from: number, entities: ArrayLike<number>): number {
  let [best, least] = [entities[0]!, Number.POSITIVE_INFINITY]
  for (let i = 0; i < entities.length; i++) {
    const e = entities[i]!
    const distance = (x[e]! - x[from]!) ** 2 + (y[e]! - y[from]!) ** 2
    if (distance < least) [best, least] = [e, distance]
  }
  return best
}

/** Moves pikes: by a person, or after the nearest fish. */
export function hunt(pond: Pond): void {
  const { Position, Heading, Steering } = pond
  for (const pike of query(pond, [Pike])) {
    const prey = nearest(pond, pike, query(pond, [Fish]))
    const to = Math.atan2(Position.y[prey]! - Position.y[pike]!, Position.x[prey]! - Position.x[pike]!)
    const own = Math.min(1, Math.max(-1, 4 * wrap(to - Heading.angle[pike]!)))
    const wanted = Steering.turn[pike]!
    swim(pond, pike, PIKE, Number.isNaN(wanted) ? own : wanted)
  }
}

/** A new place. */
function place({ Position, Heading }: Pond, e: number, random: Random): void {
  Position.x[e] = 0.03 + 0.94 * random.uniform(0)
  Position.y[e] = 0.03 + 0.94 * random.uniform(1)
  Heading.angle[e] = 2 * Math.PI * (random.uniform(2) - 0.5)
}

/** Numbers that a fish sees, all from its own point of view. */
const SIGHT = 8
const clip = (value: number) => Math.min(1, Math.max(-1, value))

function look(pond: Pond, e: number, algae: ArrayLike<number>, sight: Float32Array, at: number): void {
  const { x, y } = pond.Position
  const angle = pond.Heading.angle[e]!
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)]
  for (const [i, other] of [PIKE_ID, nearest(pond, e, algae)].entries()) {
    const [dx, dy] = [x[other]! - x[e]!, y[other]! - y[e]!]
    const far = Math.max(1e-6, Math.hypot(dx, dy))
    // Ahead and to the left, as parts of the way; and how near it is.
    sight[at + 3 * i] = (cos * dx + sin * dy) / far
    sight[at + 3 * i + 1] = (cos * dy - sin * dx) / far
    sight[at + 3 * i + 2] = clip(1 - 3 * far)
  }
  // The pond's edge, a little ahead to the left and to the right.
  for (const [i, side] of [0.6, -0.6].entries()) {
    const [ahead, up] = [x[e]! + 0.12 * Math.cos(angle + side), y[e]! + 0.12 * Math.sin(angle + side)]
    sight[at + 6 + i] = ahead < 0 || ahead > 1 || up < 0 || up > 1 ? 1 : 0
  }
}

/** The environment of the fish of a pond: a lane is a fish. */
export const fishOf = (pond: Pond) =>
  defineEnvironment({
    id: 'Pond-v0',
    settings: {},
    state: () => ({}),
    make: () => ({
      observationSpace: box({ low: -1, high: 1, shape: [SIGHT] }),
      actionSpace: discrete(3), // Left, ahead, right.
      maxEpisodeSteps: 1200,
      returnThreshold: null,
      reset({ observation, random, lane, episode }, rows, count) {
        const algae = query(pond, [Alga])
        for (let i = 0; i < count; i++) {
          const n = rows[i]!
          random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
          if (episode[n] === 0 && n < NUM_ALGAE) place(pond, FIRST_ALGA + n, random)
          if (episode[n] === 0 && n === 0) pond.Position.x[PIKE_ID] = pond.Position.y[PIKE_ID] = 0.5
          random.draw(Stream.reset, lane[n]!, episode[n]!, 1)
          place(pond, FIRST_FISH + n, random)
          pond.Age.steps[FIRST_FISH + n] = 0
          look(pond, FIRST_FISH + n, algae, observation, SIGHT * n)
        }
      },
      step({ observation, action, reward, terminated, random, lane, episode, step }, from, to) {
        const { Position, Age, frame, waits, caught, eaten, steps } = pond
        // The game's pace: a step a frame.
        if (waits[0] === 1) Atomics.wait(frame, 0, frame[0]!, 1000)
        steps[0]!++
        hunt(pond)
        const algae = query(pond, [Alga])
        for (let n = from; n < to; n++) {
          const e = FIRST_FISH + n
          swim(pond, e, FISH, 1 - action[n]!)
          Age.steps[e]!++
          const alga = nearest(pond, e, algae)
          const distance = (other: number) =>
            Math.hypot(Position.x[other]! - Position.x[e]!, Position.y[other]! - Position.y[e]!)
          if (distance(alga) < FISH.reach) {
            reward[n] = 1
            eaten[0]!++
            random.draw(Stream.step, lane[n]!, episode[n]!, step[n]!)
            place(pond, alga, random)
          } else reward[n] = 0
          if (distance(PIKE_ID) < PIKE.reach) {
            reward[n] = -5
            terminated[n] = 1
            caught[0]!++
          }
          look(pond, e, algae, observation, SIGHT * n)
        }
      },
    }),
  })()
