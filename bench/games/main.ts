/** `npm run bench -- games`: policies that learned games of several lanes, against programs, chance and earlier selves. */
import type { EnvironmentId } from '../../src/index.ts'
import { type Figure, figure } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { type Opponent, playPerfectly, searchTwoPlies } from './opponents.ts'
import { rateRoles } from './roles.ts'
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
  for (const seed of SEEDS) {
    const caught = await rateRoles(seed)
    console.log(`PredatorPrey-v0, seed ${seed}: prey of each version (columns) caught by predators of each (rows)`)
    for (const row of caught) console.log(row.map((mean) => mean.toFixed(2).padStart(8)).join(''))
    const [first, last] = [caught[0]!, caught.at(-1)!]
    hunting.push(last[0]! / first[0]!)
    fleeing.push(last[0]! / last.at(-1)!)
  }
  const unit = 'times as much as the first version'
  figures.push(figure('PredatorPrey-v0, caught by the last predators of the first prey', unit, hunting, { atLeast: 2 }))
  figures.push(
    figure('PredatorPrey-v0, kept by the last prey from the last predators', unit, fleeing, { atLeast: 1.5 }),
  )
}

await playSnakes()
await playRoles()
await playPrograms('TicTacToeDuel-v0', playPerfectly, 1000, 'notLost', 1)
await playPrograms('ConnectFour-v0', searchTwoPlies, 100, 'won', 0.9)
reportRoom('games', figures)
