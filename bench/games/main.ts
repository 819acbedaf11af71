/**
 * `npm run bench -- games`: policies that learned games of several lanes, against programs, chance and earlier selves; docs/roles.svg.
 * `PARTS=roles` asks for some of its parts: snakes, roles, ticTacToe, connectFour.
 */
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { drawCurves } from '../../src/curves.ts'
import { unknownWord } from '../../src/errors.ts'
import type { EnvironmentId } from '../../src/index.ts'
import { type Figure, figure } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { type Opponent, playPerfectly, searchTwoPlies } from './opponents.ts'
import { type Roles, rateRoles } from './roles.ts'
import { judge, trainBySelfPlay } from './self-play.ts'
import { measureSnakes } from './snakes.ts'

const SEEDS = [1, 2, 3]

const figures: Figure[] = []

/** Both ways: the policy begins, and the program. */
async function playPrograms(
  id: EnvironmentId,
  opponent: Opponent,
  games: number,
  asked: 'won' | 'notLost',
  share: number,
) {
  const shares: number[] = []
  for (const seed of SEEDS) {
    const trained = await trainBySelfPlay(id, seed)
    for (const begins of ['policy', 'opponent'] as const) {
      const { won, drawn } = await judge(trained, opponent, games, begins, 1000 + seed)
      shares.push((won + (asked === 'won' ? 0 : drawn)) / games)
      console.log(`${id}, seed ${seed}, ${begins} begins: ${won} won, ${drawn} drawn, ${games - won - drawn} lost`)
    }
  }
  const name = asked === 'won' ? 'games won' : 'games not lost'
  figures.push(figure(`${id}, ${name} by self-play`, 'of 1', shares, { atLeast: share }))
}

/** How many times as long snakes are as those at random. */
async function playSnakes() {
  const ratios: number[] = []
  for (const seed of SEEDS) {
    const { random, learned } = await measureSnakes(seed)
    console.log(
      `Snake-v0, seed ${seed}: ${random.toFixed(2)} fields long at random, ${learned.toFixed(2)} when it has learned`,
    )
    ratios.push(learned / random)
  }
  figures.push(figure('Snake-v0, mean length', 'times that of actions at random', ratios, { atLeast: 10 }))
}

/** What both roles have learned: predators catch more of the first prey, and the last predators less of the last prey. */
async function playRoles() {
  const [hunting, fleeing]: [number[], number[]] = [[], []]
  const rated: Roles[] = []
  for (const seed of SEEDS) {
    const roles = await rateRoles(seed)
    rated.push(roles)
    const { caught, predators, prey } = roles
    console.log(`PredatorPrey-v0, seed ${seed}: prey of each version (columns) caught by predators of each (rows)`)
    for (const row of caught) console.log(row.map((mean) => mean.toFixed(2).padStart(8)).join(''))
    for (const [role, ratings] of Object.entries({ predators, prey })) {
      console.log(`${role} rated ${ratings.map((rating) => rating.toFixed(0)).join(', ')}`)
    }
    const [first, last] = [caught[0]!, caught.at(-1)!]
    hunting.push(last[0]! / first[0]!)
    fleeing.push(last[0]! / last.at(-1)!)
  }
  drawRatings(rated)
  const unit = 'times as much as the first version'
  figures.push(figure('PredatorPrey-v0, caught by the last predators of the first prey', unit, hunting, { atLeast: 2 }))
  figures.push(
    figure('PredatorPrey-v0, kept by the last prey from the last predators', unit, fleeing, { atLeast: 1.5 }),
  )
}

/** Writes `docs/roles.svg`: the ratings of both roles' frozen versions, the mean of all seeds and their least and greatest. */
function drawRatings(rated: readonly Roles[]): void {
  const curves = (['predators', 'prey'] as const).map((role) => {
    const ofVersions = rated[0]!.steps.map((_, version) => rated.map((roles) => roles[role][version]!))
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

/** By name, those that are asked for; else all. */
const parts: Readonly<Record<string, () => Promise<void>>> = {
  snakes: playSnakes,
  roles: playRoles,
  ticTacToe: () => playPrograms('TicTacToeDuel-v0', playPerfectly, 1000, 'notLost', 1),
  connectFour: () => playPrograms('ConnectFour-v0', searchTwoPlies, 100, 'won', 0.9),
}
const asked = process.env.PARTS?.split(',') ?? Object.keys(parts)
for (const name of asked) {
  const part = parts[name]
  if (part === undefined) throw unknownWord('PARTS', name, Object.keys(parts))
  await part()
}
reportRoom('games', figures)
