/** `npm run bench -- games`: policies that learned a game of two by self-play, against programs. */
import type { EnvironmentId } from '../../src/index.ts'
import { type Figure, figure } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { type Opponent, playPerfectly, searchTwoPlies } from './opponents.ts'
import { judge, trainBySelfPlay } from './self-play.ts'

const figures: Figure[] = []

/** Both ways: the policy begins, and the program. */
async function measure(id: EnvironmentId, opponent: Opponent, games: number, asked: 'won' | 'notLost', share: number) {
  const shares: number[] = []
  for (const seed of [1, 2, 3]) {
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

await measure('TicTacToeDuel-v0', playPerfectly, 1000, 'notLost', 1)
await measure('ConnectFour-v0', searchTwoPlies, 100, 'won', 0.9)
reportRoom('games', figures)
