import { describe, expect, test } from 'vitest'
import { connectFour } from '../../src/environments/games/connect-four.ts'
import { ticTacToeDuel } from '../../src/environments/games/tic-tac-toe-duel.ts'
import { lanesOf, resetAll } from '../support/lanes.ts'

interface State {
  readonly marks: Uint8Array
  readonly turn: Uint8Array
}

/** Plays moves in game 0 of a fresh board, and says which lane made the last one, of those who won, and what ended. */
function play(environment: ReturnType<typeof connectFour>, moves: readonly number[]) {
  const lanes = lanesOf<State>(environment, 2)
  resetAll(environment, lanes)
  const begins = lanes.state.turn[0] === 1 ? 0 : 1
  for (const [t, move] of moves.entries()) {
    lanes.action.fill(0)
    lanes.action[(begins + t) % 2] = move
    lanes.terminated.fill(0)
    environment.step(lanes, 0, 2)
  }
  const last = (begins + moves.length - 1) % 2
  return { lanes, reward: [lanes.reward[last], lanes.reward[1 - last]], terminated: [...lanes.terminated] }
}

/** The rules written another way: a board as text, a line as a pattern over its rows, columns and diagonals. */
class TextBoard {
  readonly rows: number
  readonly columns: number
  readonly inLine: number
  readonly falls: boolean
  readonly squares: string[]

  constructor(rows: number, columns: number, inLine: number, falls: boolean) {
    this.rows = rows
    this.columns = columns
    this.inLine = inLine
    this.falls = falls
    this.squares = new Array<string>(rows * columns).fill('.')
  }

  legal(): number[] {
    if (!this.falls) return [...this.squares.keys()].filter((square) => this.squares[square] === '.')
    return [...Array(this.columns).keys()].filter((column) => this.squares[column] === '.')
  }

  put(move: number, mark: string): void {
    const free = (square: number) => this.squares[square] === '.'
    const places = this.falls ? [...Array(this.rows).keys()].map((row) => row * this.columns + move) : [move]
    this.squares[places.filter(free).at(-1)!] = mark
  }

  hasLine(mark: string): boolean {
    const groups = new Map<string, string>()
    for (const [square, held] of this.squares.entries()) {
      const [row, column] = [Math.floor(square / this.columns), square % this.columns]
      for (const key of [`row ${row}`, `column ${column}`, `falling ${row - column}`, `rising ${row + column}`]) {
        groups.set(key, (groups.get(key) ?? '') + held)
      }
    }
    return [...groups.values()].some((text) => text.includes(mark.repeat(this.inLine)))
  }
}

describe.each([
  ['ConnectFour-v0', connectFour(), () => new TextBoard(6, 7, 4, true), 7],
  ['TicTacToeDuel-v0', ticTacToeDuel(), () => new TextBoard(3, 3, 3, false), 9],
] as const)('%s', (_, environment, makeBoard, numMoves) => {
  test('games at random are, square by square, those of the rules on a board of text', () => {
    const numGames = 20
    const lanes = lanesOf<State>(environment, 2 * numGames, 4)
    const boards = Array.from({ length: numGames }, makeBoard)
    const numSquares = boards[0]!.squares.length
    const { state, observation, actionMask, action, reward, terminated } = lanes
    resetAll(environment, lanes)
    const over = new Array<boolean>(numGames).fill(false)
    const outcomes = { won: 0, drawn: 0 }
    let word = 7
    const chance = () => {
      word = (Math.imul(word, 1664525) + 1013904223) >>> 0
      return word / 2 ** 32
    }
    for (let t = 0; t < numSquares; t++) {
      const movers = boards.map((_, g) => (state.turn[2 * g] === 1 ? 2 * g : 2 * g + 1))
      const chosen = boards.map((board) => {
        const legal = board.legal()
        return legal[Math.floor(chance() * legal.length)] ?? 0
      })
      for (const [g, board] of boards.entries()) {
        if (over[g]) continue
        const waits = movers[g]! ^ 1
        const allowed = (n: number) => [...actionMask.subarray(n * numMoves, (n + 1) * numMoves)]
        expect(allowed(movers[g]!)).toEqual(Array.from({ length: numMoves }, (_, m) => +board.legal().includes(m)))
        expect(allowed(waits)).toEqual(Array.from({ length: numMoves }, (_, m) => +(m === 0)))
        for (const n of [2 * g, 2 * g + 1]) {
          const seen = [...observation.subarray(n * 3 * numSquares, (n + 1) * 3 * numSquares)]
          const [own, other] = n % 2 === 0 ? ['x', 'o'] : ['o', 'x']
          const wanted = board.squares.flatMap((mark) => [+(mark === own), +(mark === other), +(n === movers[g])])
          expect(seen).toEqual(wanted)
        }
        board.put(chosen[g]!, movers[g]! % 2 === 0 ? 'x' : 'o')
        action[movers[g]!] = chosen[g]!
        action[waits] = numMoves - 1 // What the lane that waits does is not asked.
      }
      terminated.fill(0)
      environment.step(lanes, 0, 2 * numGames)
      for (const [g, board] of boards.entries()) {
        const [mine, theirs] = movers[g]! % 2 === 0 ? ['x', 'o'] : ['o', 'x']
        const hasWon = !over[g] && board.hasLine(mine!)
        expect(board.hasLine(theirs!)).toBe(over[g] && board.hasLine(theirs!))
        expect(reward[movers[g]!]).toBe(hasWon ? 1 : 0)
        expect(reward[movers[g]! ^ 1]! + reward[movers[g]!]!).toBe(0)
        const ends = !over[g] && (hasWon || board.legal().length === 0)
        expect([terminated[2 * g], terminated[2 * g + 1]]).toEqual([+ends, +ends])
        if (!ends) continue
        over[g] = true
        outcomes[hasWon ? 'won' : 'drawn']++
      }
    }
    expect(over).not.toContain(false)
    expect(outcomes.won).toBeGreaterThan(10)
  })

  test('each lane begins in half of the games, and the other waits', () => {
    const lanes = lanesOf<State>(environment, 4000)
    resetAll(environment, lanes)
    let first = 0
    for (let g = 0; g < 2000; g++) {
      const turns = [lanes.state.turn[2 * g], lanes.state.turn[2 * g + 1]]
      expect(turns.toSorted()).toEqual([1, 2])
      if (turns[0] === 1) first++
    }
    expect(Math.abs(first - 1000)).toBeLessThan(5 * Math.sqrt(500))
  })
})

test('openings are moves at random, up to so many, as often as each other, and the same board for both lanes', () => {
  const game = connectFour({ openingMoves: 6 })
  const lanes = lanesOf<State>(game, 2000)
  resetAll(game, lanes)
  const { marks, turn } = lanes.state
  const counts = new Array<number>(7).fill(0)
  const inColumn = new Array<number>(7).fill(0)
  for (let n = 0; n < 2000; n += 2) {
    const [mine, theirs] = [n, n + 1].map((lane) => [...marks.subarray(42 * lane, 42 * lane + 42)])
    expect(theirs).toEqual(mine!.map((mark) => (mark === 0 ? 0 : 3 - mark)))
    const [own, other] = [1, 2].map((side) => mine!.filter((mark) => mark === side).length)
    // Whoever is to move has as many marks as the other, or one less.
    expect(turn[n] === 1 ? other! - own! : own! - other!).toBeOneOf([0, 1])
    counts[own! + other!]!++
    for (const [square, mark] of mine!.entries()) {
      if (mark === 0) continue
      inColumn[square % 7]!++
    }
    expect(mine!.findIndex((mark, square) => mark !== 0 && mine![square + 7] === 0)).toBe(-1) // Nothing hangs.
  }
  for (const count of counts) expect(Math.abs(count - 1000 / 7)).toBeLessThan(5 * Math.sqrt(1000 / 7))
  for (const count of inColumn) expect(Math.abs(count - 3000 / 7)).toBeLessThan(5 * Math.sqrt(3000 / 7))
})

test('lines that are one or two marks short are shown as a board of text has them', () => {
  const game = connectFour({ showLines: true, openingMoves: 6 })
  const numGames = 16
  const lanes = lanesOf<State>(game, 2 * numGames, 8)
  resetAll(game, lanes)
  const channels = 11
  let [word, completing] = [5, 0]
  for (let t = 0; t < 30; t++) {
    for (let n = 0; n < 2 * numGames; n++) {
      const marks = [...lanes.state.marks.subarray(42 * n, 42 * n + 42)]
      const wanted = new Set<number>()
      for (const [row, column, down, right] of segments()) {
        const squares = [0, 1, 2, 3].map((k) => 7 * (row + k * down) + column + k * right)
        for (const [side, other] of [
          [1, 2],
          [2, 1],
        ]) {
          const free = squares.filter((square) => marks[square] === 0)
          if (squares.some((square) => marks[square] === other) || free.length > 2 || free.length === 0) continue
          for (const square of free) {
            const below = [square + 7, square + 14].filter((each) => marks[each] === 0).length
            wanted.add(channels * square + 3 + 4 * (side! - 1) + (free.length === 2 ? 3 : below))
          }
          completing += free.length === 1 ? 1 : 0
        }
      }
      const seen = [...lanes.observation.subarray(42 * channels * n, 42 * channels * (n + 1))]
      const shown = seen.flatMap((value, k) => (k % channels < 3 || value === 0 ? [] : [k]))
      expect(shown).toEqual([...wanted].toSorted((a, b) => a - b))
      const legal = [...lanes.actionMask.subarray(7 * n, 7 * n + 7)].flatMap((allowed, k) => (allowed ? [k] : []))
      word = (Math.imul(word, 1664525) + 1013904223) >>> 0
      lanes.action[n] = legal[(word >>> 8) % legal.length]!
    }
    game.step(lanes, 0, 2 * numGames)
  }
  expect(completing).toBeGreaterThan(200)
})

/** Where each line of four begins, and how it goes on. */
function* segments() {
  for (let row = 0; row < 6; row++) {
    for (let column = 0; column < 7; column++) {
      if (column < 4) yield [row, column, 0, 1] as const
      if (row < 3) yield [row, column, 1, 0] as const
      if (row < 3 && column < 4) yield [row, column, 1, 1] as const
      if (row < 3 && column > 2) yield [row, column, 1, -1] as const
    }
  }
}

test.each([
  ['a row', [0, 0, 1, 1, 2, 2, 3]],
  ['a column', [6, 0, 6, 0, 6, 0, 6]],
  ['a rising diagonal', [0, 1, 1, 2, 2, 3, 2, 3, 3, 6, 3]],
  ['a falling diagonal', [6, 5, 5, 4, 4, 3, 4, 3, 3, 0, 3]],
])('connect four: %s of four wins', (_, moves) => {
  const before = play(connectFour(), moves.slice(0, -1))
  expect(before.terminated).toEqual([0, 0])
  const { reward, terminated } = play(connectFour(), moves)
  expect([reward, terminated]).toEqual([
    [1, -1],
    [1, 1],
  ])
})

test('four squares that follow one another over the edge of the board are no line', () => {
  // 3, 4, 5, 6 of one row would follow on 0 of the next: marks on 4, 5, 6 and 0 above.
  const { reward, terminated } = play(connectFour(), [0, 1, 4, 1, 5, 1, 6, 2, 0])
  expect([reward, terminated]).toEqual([
    [0, 0],
    [0, 0],
  ])
})

test('a full board without a line is drawn, and one that is over stays as it is', () => {
  const game = ticTacToeDuel()
  const { lanes, reward, terminated } = play(game, [0, 1, 2, 4, 3, 5, 7, 6, 8])
  expect([reward, terminated]).toEqual([
    [0, 0],
    [1, 1],
  ])
  const marks = [...lanes.state.marks]
  lanes.terminated.fill(0)
  game.step(lanes, 0, 2)
  expect([...lanes.state.marks]).toEqual(marks)
  expect([...lanes.terminated, ...lanes.reward]).toEqual([0, 0, 0, 0])
})

test('games of its range move, and no others', () => {
  const game = connectFour()
  const lanes = lanesOf<State>(game, 6)
  resetAll(game, lanes)
  const before = [...lanes.state.turn]
  lanes.action.fill(3)
  game.step(lanes, 2, 4)
  expect([...lanes.state.turn]).toEqual([...before.slice(0, 2), before[3], before[2], ...before.slice(4)])
  expect([...lanes.reward]).toEqual([Number.NaN, Number.NaN, 0, 0, Number.NaN, Number.NaN])
})
