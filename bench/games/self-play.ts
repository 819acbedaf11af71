/** Games of two lanes: learned by self-play in a league, and judged against an opponent that is a program. */
import {
  configureRun,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  type EnvironmentId,
  environmentFactory,
  infer,
  type PolicyDefinition,
  reset,
  step,
  store,
} from '../../src/index.ts'
import { type Training, trainingOf } from '../learning/learn.ts'
import type { Opponent } from './opponents.ts'

/** What was trained. */
export interface Trained {
  /** A game that is judged begins with an empty board. */
  readonly environment: EnvironmentDefinition
  readonly policy: PolicyDefinition
  readonly weights: Float32Array
}

/** Trains by the environment's preset, against earlier selves. */
export async function trainBySelfPlay(
  id: EnvironmentId,
  seed: number,
  settings: Readonly<Record<string, string>> = {},
): Promise<Trained & { readonly training: Training }> {
  const run = await configureRun(id, { ...settings, seed: String(seed) })
  const { environment, policy, algorithm } = run
  const { numLanes, totalSteps, opponents } = run.settings
  const world = await createWorld({ environment, policy, numLanes, selfPlay: { opponents }, seed })
  const trainer = createTrainer(world, algorithm)
  const start = performance.now()
  for await (const _ of trainer.updates({ totalSteps }));
  const training = trainingOf(run, trainer.steps, start)
  const learned = Float32Array.from(world.cohort().weights)
  trainer.close()
  const judged = environmentFactory(id)({ ...environment.parameters, openingMoves: 0 } as never)
  return { environment: judged, policy, weights: learned, training }
}

/** Games won, drawn and lost. */
export interface Score {
  readonly won: number
  readonly drawn: number
  readonly lost: number
}

/**
 * Plays games of a trained policy, which takes its most probable move, against a program; `side` says which of the two begins.
 * Each lane plays one game.
 */
export async function judge(
  { environment, policy, weights }: Trained,
  opponent: Opponent,
  games: number,
  begins: 'policy' | 'opponent',
  seed: number,
): Promise<Score> {
  // Who begins is drawn: of twice as many games, and some, enough begin as they are wanted.
  const numLanes = 2 * (2 * games + 100)
  const world = await createWorld({ environment, policy, numLanes, seed, explore: false, autoreset: 'disabled' })
  const cohort = world.cohort()
  cohort.weights.set(weights)
  const numSquares = environment.maxEpisodeSteps!
  const { observation, action } = cohort
  const width = observation.current.length / numLanes
  const channels = width / numSquares
  const moves = (n: number) => observation.current[n * width + 2] === 1
  const counts = { won: 0, drawn: 0, lost: 0 }
  const chance = chanceOf(seed)
  let played: number[] = []
  for (let t = 0; t < numSquares; t++) {
    reset(world)
    if (t === 0) {
      const lane = begins === 'policy' ? 0 : 1
      played = Array.from({ length: numLanes / 2 }, (_, game) => game).filter((game) => moves(2 * game + lane))
      played = played.slice(0, games)
    }
    infer(world)
    for (const game of played) {
      const n = 2 * game + 1
      if (!moves(n)) continue
      const seen = observation.current.subarray(n * width, (n + 1) * width)
      const position = Array.from({ length: numSquares }, (_, k) => seen[channels * k]! + 2 * seen[channels * k + 1]!)
      action.chosen[n] = opponent(position, chance)
    }
    step(world)
    const { terminated, reward } = cohort.transition
    played = played.filter((game) => {
      if (terminated[2 * game] === 0) return true
      const outcome = reward[2 * game]!
      counts[outcome > 0 ? 'won' : outcome < 0 ? 'lost' : 'drawn']++
      return false
    })
    store(world)
  }
  world.close()
  return counts
}

/** Numbers in [0, 1), one after another (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014). */
function chanceOf(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x9e3779b9) >>> 0
    let word = Math.imul(state ^ (state >>> 16), 0x85ebca6b)
    word = Math.imul(word ^ (word >>> 13), 0xc2b2ae35)
    return ((word ^ (word >>> 16)) >>> 0) / 2 ** 32
  }
}
