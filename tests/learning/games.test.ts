import { expect, test } from 'vitest'
import { playPerfectly, searchTwoPlies } from '../../bench/games/opponents.ts'
import { ratingsOf } from '../../bench/games/ratings.ts'
import { rateRoles } from '../../bench/games/roles.ts'
import { judge, trainBySelfPlay } from '../../bench/games/self-play.ts'
import { measureSnakes } from '../../bench/games/snakes.ts'

const learns = test.runIf(import.meta.env.MODE === 'learn')

learns(
  'tic-tac-toe learned by self-play is never lost to perfect play, whoever begins',
  async () => {
    const trained = await trainBySelfPlay('TicTacToeDuel-v0', 1)
    for (const begins of ['policy', 'opponent'] as const) {
      expect(await judge(trained, playPerfectly, 1000, begins, 5)).toEqual({ won: 0, drawn: 1000, lost: 0 })
    }
  },
  600_000,
)

learns(
  'connect four learned by self-play wins against a search of two plies',
  async () => {
    const trained = await trainBySelfPlay('ConnectFour-v0', 1)
    let won = 0
    for (const begins of ['policy', 'opponent'] as const) {
      won += (await judge(trained, searchTwoPlies, 100, begins, 5)).won
    }
    expect(won).toBeGreaterThanOrEqual(180)
  },
  3_600_000,
)

test('ratings are those by which the games were played', () => {
  const played = [1200, 1000, 950, 700]
  const games = played.flatMap((mine, first) =>
    played.flatMap((theirs, second) =>
      first < second
        ? Array.from({ length: 4000 }, (_, k) => {
            const expected = 1 / (1 + 10 ** ((theirs - mine) / 400))
            return { first, second, score: k < 4000 * expected ? 1 : 0 }
          })
        : [],
    ),
  )
  const ratings = ratingsOf(games, 4)
  for (const [player, rating] of ratings.entries()) {
    expect(Math.abs(rating - ratings[1]! - (played[player]! - 1000))).toBeLessThan(2)
  }
  const [best, worst] = ratingsOf([{ first: 0, second: 1, score: 1 }], 2)
  expect(best).toBeGreaterThan(worst!) // And finite, though one has won them all.
  expect(Number.isFinite(best)).toBe(true)
})

learns(
  'predators and prey with a policy of each both learn, by games of frozen versions',
  async () => {
    const { caught, predators, prey } = await rateRoles(1)
    const [first, last] = [caught[0]!, caught.at(-1)!]
    expect(last[0]! / first[0]!).toBeGreaterThan(2)
    expect(last[0]! / last.at(-1)!).toBeGreaterThan(1.5)
    for (const ratings of [predators, prey]) expect(ratings.at(-1)! - ratings[0]!).toBeGreaterThan(300)
  },
  600_000,
)

learns(
  'snakes become ten times as long as those at random',
  async () => {
    const { random, learned } = await measureSnakes(1)
    expect(learned / random).toBeGreaterThan(10)
  },
  3_600_000,
)

test('a search of two plies wins where it can, prevents what the other would win by, and else leaves nothing open', () => {
  const empty = new Array<number>(42).fill(0)
  const withMarks = (own: readonly number[], other: readonly number[]) =>
    empty.map((_, square) => (own.includes(square) ? 1 : other.includes(square) ? 2 : 0))
  const chosen = (position: readonly number[]) => {
    const moves = Array.from({ length: 50 }, (_, k) => searchTwoPlies(position, () => k / 50))
    return [...new Set(moves)].toSorted()
  }
  expect(chosen(empty)).toEqual([0, 1, 2, 3, 4, 5, 6])
  expect(chosen(withMarks([35, 36, 37], [28, 29, 30]))).toEqual([3]) // Wins, and need not defend.
  expect(chosen(withMarks([41, 34], [35, 36, 37]))).toEqual([3]) // Has to defend.
  // A mark in column 3 would let the other win on top of it.
  expect(chosen(withMarks([35, 37], [28, 29, 30, 36]))).toEqual([0, 1, 2, 4, 5, 6])
})

test('perfect play of tic-tac-toe draws against itself, and takes its one move where there is but one', () => {
  expect(playPerfectly([0, 0, 0, 0, 2, 0, 0, 0, 0], () => 0)).toBe(0) // A corner against the center.
  expect([0, 2, 6, 8]).toContain(playPerfectly([0, 0, 0, 0, 2, 0, 0, 0, 0], () => 0.99))
  expect(playPerfectly([2, 2, 0, 0, 1, 0, 0, 0, 0], () => 0.5)).toBe(2)
})
