/** The games of several lanes as rows of the suite's table; docs/roles.svg. */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { EnvironmentId } from '../../src/index.ts'
import { drawCurves } from '../../src/telemetry/curves.ts'
import type { Outcome, Row } from '../worlds/row.ts'
import { type Opponent, playPerfectly, searchTwoPlies } from './opponents.ts'
import { type Roles, rateRoles } from './roles.ts'
import { judge, trainBySelfPlay } from './self-play.ts'
import { measureSnakes } from './snakes.ts'

/** Games against a program: half of them the policy begins, the other half the program. */
function gamesAgainst(
  id: EnvironmentId,
  opponent: Opponent,
  { games, asked, share, what, published }: GamesAgainst,
): Row {
  return {
    environment: id,
    settings: {},
    figures: [{ what, wanted: { atLeast: share }, published }],
    async measure(seeds) {
      const outcomes: Outcome[] = []
      for (const seed of seeds) {
        const { training, ...trained } = await trainBySelfPlay(id, seed)
        let reached = 0
        for (const begins of ['policy', 'opponent'] as const) {
          const { won, drawn } = await judge(trained, opponent, games / 2, begins, 1000 + seed)
          reached += won + (asked === 'won' ? 0 : drawn)
          console.log(`${id}, seed ${seed}, ${begins} begins: ${won} won, ${drawn} drawn of ${games / 2}`)
        }
        outcomes.push({ ...training, values: [reached / games] })
      }
      return outcomes
    },
  }
}

interface GamesAgainst {
  /** An even number. */
  readonly games: number
  readonly asked: 'won' | 'not lost'
  /** Of the games. */
  readonly share: number
  readonly what: string
  readonly published: string
}

const snakes: Row = {
  environment: 'Snake-v0',
  settings: {},
  figures: [{ what: 'mean length, in lengths of snakes at random', wanted: { atLeast: 10 }, published: '–' }],
  async measure(seeds) {
    const outcomes: Outcome[] = []
    for (const seed of seeds) {
      const { random, learned, training } = await measureSnakes(seed)
      console.log(`Snake-v0, seed ${seed}: ${random.toFixed(2)} fields at random, ${learned.toFixed(2)} learned`)
      outcomes.push({ ...training, values: [learned / random] })
    }
    return outcomes
  },
}

/** Both roles learn: predators catch more of the first prey, and the last predators less of the last prey. */
const roles: Row = {
  environment: 'PredatorPrey-v0',
  atOnce: true,
  settings: {},
  figures: [
    {
      what: 'prey of the first version caught by the last predators, in what the first predators catch',
      wanted: { atLeast: 2 },
      published: '–',
    },
    {
      what: 'prey of the first version caught by the last predators, in what they catch of the last version',
      wanted: { atLeast: 1.5 },
      published: '–',
    },
  ],
  async measure(seeds) {
    const outcomes: Outcome[] = []
    const rated: Roles[] = []
    for (const seed of seeds) {
      const found = await rateRoles(seed)
      rated.push(found)
      const { caught, predators, prey, training } = found
      console.log(`PredatorPrey-v0, seed ${seed}: prey of each version (columns) caught by predators of each (rows)`)
      for (const row of caught) console.log(row.map((mean) => mean.toFixed(2).padStart(8)).join(''))
      for (const [role, ratings] of Object.entries({ predators, prey })) {
        console.log(`${role} rated ${ratings.map((rating) => rating.toFixed(0)).join(', ')}`)
      }
      const [first, last] = [caught[0]!, caught.at(-1)!]
      outcomes.push({ ...training, values: [last[0]! / first[0]!, last[0]! / last.at(-1)!] })
    }
    drawRatings(rated)
    return outcomes
  },
}

/** Writes `docs/roles.svg`: the ratings of both roles' frozen versions, the mean of all seeds and their least and greatest. */
function drawRatings(rated: readonly Roles[]): void {
  const curves = (['predators', 'prey'] as const).map((role) => {
    const ofVersions = rated[0]!.steps.map((_, version) => rated.map((each) => each[role][version]!))
    return {
      name: role,
      points: ofVersions.map((ratings, version) => ({
        x: rated[0]!.steps[version]! / 1000,
        y: ratings.reduce((sum, rating) => sum + rating) / ratings.length,
      })),
      band: {
        low: ofVersions.map((ratings) => Math.min(...ratings)),
        high: ofVersions.map((ratings) => Math.max(...ratings)),
      },
    }
  })
  const inDist = import.meta.url.includes('/dist/bench/')
  const path = fileURLToPath(new URL(`${inDist ? '../../../' : '../../'}docs/roles.svg`, import.meta.url))
  const drawn = drawCurves(curves, { x: 'thousand steps of the training', y: 'Elo rating' })
  writeFileSync(
    path,
    drawn.replace(
      '>\n',
      '>\n<title>Frozen versions of predators and of prey, rated by games of each with each</title>\n',
    ),
  )
  console.log(`wrote ${path}`)
}

/** The rows of the games. */
export const gameRows = {
  snakes,
  roles,
  ticTacToe: gamesAgainst('TicTacToeDuel-v0', playPerfectly, {
    ...{ games: 2000, asked: 'not lost', share: 1 },
    what: 'share of 2,000 games not lost to perfect play, 1,000 from either side, by self-play',
    published: '1 is the best possible',
  }),
  connectFour: gamesAgainst('ConnectFour-v0', searchTwoPlies, {
    ...{ games: 200, asked: 'won', share: 0.9 },
    what: 'share of 200 games won against a search of two plies, 100 from either side, by self-play',
    published: '–',
  }),
}
