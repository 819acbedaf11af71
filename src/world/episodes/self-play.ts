/**
 * Self-play against earlier selves: a league that keeps itself. In a part of the games some lanes act by frozen earlier weights of the
 * policy. These are exchanged between two updates, the oldest first, and all are rated by the games that they play.
 */
import { checkCount, InputError, show, unknownWord } from '../../base/errors.ts'
import { type Columns, column, saved } from '../../components/column.ts'
import type { RolloutColumns } from '../../components/rollout.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { League } from './league.ts'

/** How lanes play against earlier selves of their policy. */
export interface SelfPlayOptions {
  /** How many earlier selves there are: sets of weights beside the one that learns. */
  readonly opponents: number
  /** Updates after which the oldest of them becomes what the policy is then. Default 20. */
  readonly every?: number
  /** Part of the games that are played against them; in the others all lanes are the learner's. Default 0.5. */
  readonly share?: number
}

/** Self-play at work. */
export interface SelfPlay {
  readonly options: Required<SelfPlayOptions>
  /** Elo rating of each set of weights: of the policy as it learns, then of its earlier selves as they were frozen. */
  readonly rating: Float64Array
  /** Which of the earlier selves is the oldest, from 0. */
  readonly oldest: Uint32Array
}

/** What the first policy is rated. */
const FIRST_RATING = 1000
/** Points that a game moves the rating by, at most. A rollout has many games, so it is small. */
const POINTS = 4
/** Rating points between two players if one scores ten times as often as the other. */
const SCALE = 400

const DEFAULTS = { every: 20, share: 0.5 }

/** @throws InputError where lanes of this environment cannot play so, or an option is none. */
export function checkSelfPlay(given: unknown, { id, numAgents = 1 }: EnvironmentDefinition): Required<SelfPlayOptions> {
  if (typeof given !== 'object' || given === null) {
    throw new InputError('selfPlay', show(given), 'an object, like { opponents: 4 }')
  }
  const names = ['opponents', ...Object.keys(DEFAULTS)]
  for (const name of Object.keys(given)) if (!names.includes(name)) throw unknownWord('selfPlay', name, names)
  const options = { ...DEFAULTS, ...(given as SelfPlayOptions) }
  const { opponents, every, share } = options
  checkCount('selfPlay opponents', opponents, 1, 255)
  checkCount('selfPlay every', every)
  if (!(typeof share === 'number' && share > 0 && share <= 1)) {
    throw new InputError('selfPlay share', show(share), 'a number above 0, and at most 1')
  }
  if (numAgents < 2) {
    throw new InputError('selfPlay', `${id}, whose games have ${numAgents} player`, 'a game of several players')
  }
  return options
}

/** Plans what self-play keeps. */
export function selfPlayPlan(numSets: number) {
  return { rating: saved(column('f64', numSets)), oldest: saved(column('u32', 1)) }
}

/** Self-play over its columns; `isFresh` where they wait for their first values, and lanes for their opponents. */
export function createSelfPlay(
  options: Required<SelfPlayOptions>,
  columns: Columns<ReturnType<typeof selfPlayPlan>>,
  { lanes }: League,
  numAgents: number,
  isFresh: boolean,
): SelfPlay {
  if (isFresh) {
    columns.rating.fill(FIRST_RATING)
    assignOpponents(lanes.policy, options, numAgents)
  }
  return { options, ...columns }
}

/** In games against earlier selves, each as often, the second half of the lanes is theirs. */
function assignOpponents(policy: Uint8Array, { opponents, share }: Required<SelfPlayOptions>, numAgents: number): void {
  for (let game = 0; game < policy.length / numAgents; game++) {
    const before = Math.floor(game * share)
    if (Math.floor((game + 1) * share) === before) continue
    const first = game * numAgents
    policy.fill(1 + (before % opponents), first + Math.ceil(numAgents / 2), first + numAgents)
  }
}

/** What came of a rollout's games against earlier selves. */
interface Played {
  readonly games: number
  /** Mean score of the policy: a game won counts 1, a draw ½. NaN of no game. */
  readonly score: number
}

/**
 * Rates the policy by the games of a full rollout that ended, in their order. The side wins whose lanes have the higher mean return.
 * Earlier selves keep the ratings with which they were frozen.
 */
export function ratePolicy(
  { rating }: SelfPlay,
  { acted }: League,
  { episodeReturn, terminated, truncated, valid }: RolloutColumns,
  numAgents: number,
): Played {
  let [games, score] = [0, 0]
  for (let first = 0; first < acted.length; first += numAgents) {
    const opponent = acted[first + numAgents - 1]!
    const ends = valid[first] === 1 && (terminated[first] === 1 || truncated[first] === 1)
    if (!ends || opponent === 0) continue
    const own = Math.ceil(numAgents / 2)
    let margin = 0
    for (let i = 0; i < own; i++) margin += episodeReturn[first + i]! / own
    for (let i = own; i < numAgents; i++) margin -= episodeReturn[first + i]! / (numAgents - own)
    const won = margin > 0 ? 1 : margin < 0 ? 0 : 1 / 2
    const expected = 1 / (1 + 10 ** ((rating[opponent]! - rating[0]!) / SCALE))
    rating[0] = rating[0]! + POINTS * (won - expected)
    games++
    score += won
  }
  return { games, score: score / games }
}

/** After every so many updates the oldest of the earlier selves becomes what the policy is now. */
export function exchangeOldest({ options, rating, oldest }: SelfPlay, { weights }: League, update: number): void {
  if (update % options.every !== 0) return
  const set = 1 + oldest[0]!
  weights[set]!.set(weights[0]!)
  rating[set] = rating[0]!
  oldest[0] = set % options.opponents
}
