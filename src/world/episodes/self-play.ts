/**
 * Self-play against earlier selves: a league that manages itself. In a fraction of the games, some lanes act with frozen earlier weights
 * of the policy. Between updates the oldest is replaced, and all are rated by their games.
 */
import { checkCount, InputError, show, unknownWord } from '../../base/errors.ts'
import { type Columns, column, saved } from '../../components/column.ts'
import type { RolloutColumns } from '../../components/rollout.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { League } from './league.ts'

/** Options of self-play. */
export interface SelfPlayOptions {
  /** Number of earlier selves: sets of weights besides the learning one. */
  readonly opponents: number
  /** Updates after which the policy's current weights replace the oldest earlier self. Default 20. */
  readonly every?: number
  /** Fraction of the games played against earlier selves; in the others all lanes are the learner's. Default 0.5. */
  readonly share?: number
}

/** Self-play of a cohort with memory. */
export interface SelfPlay {
  readonly options: Required<SelfPlayOptions>
  /** Elo rating of each set of weights: the learning policy first, then the frozen earlier selves. */
  readonly rating: Float64Array
  /** Index of the oldest earlier self, from 0. */
  readonly oldest: Uint32Array
}

/** Initial rating of the policy. */
const FIRST_RATING = 1000
/** Maximum rating change by a game. It is small because a rollout has many games. */
const POINTS = 4
/** Rating difference of two players, one of whom scores ten times as often as the other. */
const SCALE = 400

const DEFAULTS = { every: 20, share: 0.5 }

/** @throws InputError for an environment without several players, and an invalid option. */
export function checkSelfPlay(
  given: unknown,
  { id, numPlayers = 1 }: EnvironmentDefinition,
): Required<SelfPlayOptions> {
  if (typeof given !== 'object' || given === null) {
    throw new InputError('selfPlay', show(given), 'an object like { opponents: 4 }')
  }
  const names = ['opponents', ...Object.keys(DEFAULTS)]
  for (const name of Object.keys(given)) if (!names.includes(name)) throw unknownWord('selfPlay', name, names)
  const options = { ...DEFAULTS, ...(given as SelfPlayOptions) }
  const { opponents, every, share } = options
  checkCount('selfPlay opponents', opponents, 1, 255)
  checkCount('selfPlay every', every)
  if (!(typeof share === 'number' && share > 0 && share <= 1)) {
    throw new InputError('selfPlay share', show(share), 'a number above 0 and at most 1')
  }
  if (numPlayers < 2) {
    throw new InputError('selfPlay', `${id}, whose games have ${numPlayers} player`, 'a game of several players')
  }
  return options
}

export function selfPlayPlan(numSets: number) {
  return { rating: saved(column('f64', numSets)), oldest: saved(column('u32', 1)) }
}

/** Creates self-play over its columns. `isFresh`: the columns have no initial values, and lanes no opponents yet. */
export function createSelfPlay(
  options: Required<SelfPlayOptions>,
  columns: Columns<ReturnType<typeof selfPlayPlan>>,
  { lanes }: League,
  numPlayers: number,
  isFresh: boolean,
): SelfPlay {
  if (isFresh) {
    columns.rating.fill(FIRST_RATING)
    assignOpponents(lanes.policy, options, numPlayers)
  }
  return { options, ...columns }
}

/** Assigns the second half of the lanes in games against earlier selves to these, each equally often. */
function assignOpponents(
  policy: Uint8Array,
  { opponents, share }: Required<SelfPlayOptions>,
  numPlayers: number,
): void {
  for (let game = 0; game < policy.length / numPlayers; game++) {
    const before = Math.floor(game * share)
    if (Math.floor((game + 1) * share) === before) continue
    const first = game * numPlayers
    policy.fill(1 + (before % opponents), first + Math.ceil(numPlayers / 2), first + numPlayers)
  }
}

/** Results of a rollout's games against earlier selves. */
interface Played {
  readonly games: number
  /** Mean score of the policy: 1 for a win, ½ for a draw; NaN without games. */
  readonly score: number
}

/**
 * Rates the policy by the finished games of a full rollout, in order. The side with the higher mean return wins. Earlier selves keep the
 * ratings with which they were frozen.
 */
export function ratePolicy(
  { rating }: SelfPlay,
  { acted }: League,
  { episodeReturn, terminated, truncated, valid }: RolloutColumns,
  numPlayers: number,
): Played {
  let [games, score] = [0, 0]
  for (let first = 0; first < acted.length; first += numPlayers) {
    const opponent = acted[first + numPlayers - 1]!
    const ends = valid[first] === 1 && (terminated[first] === 1 || truncated[first] === 1)
    if (!ends || opponent === 0) continue
    const own = Math.ceil(numPlayers / 2)
    let margin = 0
    for (let i = 0; i < own; i++) margin += episodeReturn[first + i]! / own
    for (let i = own; i < numPlayers; i++) margin -= episodeReturn[first + i]! / (numPlayers - own)
    const won = margin > 0 ? 1 : margin < 0 ? 0 : 1 / 2
    const expected = 1 / (1 + 10 ** ((rating[opponent]! - rating[0]!) / SCALE))
    rating[0] = rating[0]! + POINTS * (won - expected)
    games++
    score += won
  }
  return { games, score: score / games }
}

/** Replaces the oldest earlier self by the current policy after every `every` updates. */
export function exchangeOldest({ options, rating, oldest }: SelfPlay, { weights }: League, update: number): void {
  if (update % options.every !== 0) return
  const set = 1 + oldest[0]!
  weights[set]!.set(weights[0]!)
  rating[set] = rating[0]!
  oldest[0] = set % options.opponents
}
