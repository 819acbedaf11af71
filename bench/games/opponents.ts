/** Who the trained policies play against: a search of two plies in connect four, and perfect play in tic-tac-toe. */

/** A position as the side to move has it: of each square 0 free, 1 its own, 2 the other's. */
export type Position = readonly number[]

/** Chooses a move. `chance` gives a number in [0, 1). */
export type Opponent = (position: Position, chance: () => number) => number

const pick = (moves: readonly number[], chance: () => number) => moves[Math.floor(chance() * moves.length)]!

/** How many squares from (row, column) on, in one direction, hold the side's marks. */
function run(position: Position, side: number, row: number, column: number, down: number, right: number): number {
  let count = 0
  for (let r = row + down, c = column + right; r >= 0 && r < 6 && c >= 0 && c < 7; r += down, c += right) {
    if (position[r * 7 + c] !== side) break
    count++
  }
  return count
}

/** The row in which a mark comes to lie; −1 where the column is full. */
function landing(position: Position, column: number): number {
  for (let row = 5; row >= 0; row--) if (position[row * 7 + column] === 0) return row
  return -1
}

function wins(position: Position, side: number, column: number): boolean {
  const row = landing(position, column)
  if (row < 0) return false
  const pairs = [
    [0, 1],
    [1, 0],
    [1, 1],
    [1, -1],
  ] as const
  return pairs.some(
    ([down, right]) =>
      run(position, side, row, column, down, right) + run(position, side, row, column, -down, -right) >= 3,
  )
}

/**
 * Connect four by a search of two plies: wins where it can, else makes no move that the other can answer by winning, as far as
 * there is a choice; among what is left at random.
 */
export const searchTwoPlies: Opponent = (position, chance) => {
  const legal = [0, 1, 2, 3, 4, 5, 6].filter((column) => landing(position, column) >= 0)
  const winning = legal.filter((column) => wins(position, 1, column))
  if (winning.length > 0) return pick(winning, chance)
  const safe = legal.filter((column) => {
    const after = [...position]
    after[7 * landing(position, column) + column] = 1
    return !legal.some((answer) => wins(after, 2, answer))
  })
  return pick(safe.length > 0 ? safe : legal, chance)
}

const LINES = ['012', '345', '678', '036', '147', '258', '048', '246'].map((line) => [...line].map(Number))
const values = new Map<string, number>()

/** What the side to move comes to with perfect play: 1, 0 or −1. */
function worthOf(position: Position): number {
  const key = position.join('')
  let value = values.get(key)
  if (value === undefined) {
    if (LINES.some((line) => line.every((square) => position[square] === 2))) value = -1
    else if (!position.includes(0)) value = 0
    else value = Math.max(...movesOf(position).map((move) => -worthOf(answered(position, move))))
    values.set(key, value)
  }
  return value
}

const movesOf = (position: Position) => [...position.keys()].filter((square) => position[square] === 0)

/** The position after a move, as the other side has it. */
const answered = (position: Position, move: number) =>
  position.map((mark, square) => (square === move ? 2 : mark === 0 ? 0 : 3 - mark))

/** Tic-tac-toe by perfect play: one of the best moves, each as often. */
export const playPerfectly: Opponent = (position, chance) => {
  const best = worthOf(position)
  return pick(
    movesOf(position).filter((move) => -worthOf(answered(position, move)) === best),
    chance,
  )
}
