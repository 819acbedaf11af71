/**
 * The common part of connect four and two-lane tic-tac-toe: games of two in which a line of marks wins. Lanes 2g and 2g + 1 play game g
 * and take turns; the first to move is random.
 */
import { integer, type SettingValues } from '../../base/settings.ts'
import { box, discrete } from '../../base/space.ts'
import type { EnvironmentModel, State, StateDeclaration } from '../environment.ts'
import { Dice } from '../grids/grid-rooms.ts'

/** Channels of own marks, the opponent's marks, and the turn. */
const CHANNELS = 3
/** Per side, if lines are shown: squares that complete a line, by the free squares below; squares of lines that lack two marks. */
const LINE_CHANNELS = 4
/** Free squares below a square are counted up to this number. */
const BELOW_MAX = 2
/** Contents of a square, from the lane's view. */
const Mark = { none: 0, own: 1, other: 2 } as const
const Turn = { over: 0, moves: 1, waits: 2 } as const
/** Down, right, and the two diagonals, as changes of row and column. */
const DIRECTIONS = [
  [1, 0],
  [0, 1],
  [1, 1],
  [1, -1],
] as const

/** The rules in which these games differ. */
export interface LineRules {
  readonly rows: number
  readonly columns: number
  /** Number of marks in a winning line. */
  readonly inLine: number
  /** Whether a move is a column, in which the mark falls to the lowest free square; otherwise it is a square. */
  readonly falls: boolean
}

export function lineState({ rows, columns }: LineRules) {
  return {
    /** Each square, row by row from the top: 0 free, 1 own, 2 the opponent's. */
    marks: ['u8', rows * columns],
    /** 0: the game is over, 1: the lane moves, 2: it waits. */
    turn: 'u8',
  } as const satisfies StateDeclaration
}

type LineState = State<ReturnType<typeof lineState>>

export function lineSettings({ inLine }: LineRules) {
  return {
    openingMoves: integer(0, 'maximum of random moves (from 0) at the beginning of an episode', {
      min: 0,
      max: 2 * (inLine - 1), // No side can have a line yet.
    }),
  }
}

type LineOptions = SettingValues<ReturnType<typeof lineSettings>> & {
  /** Whether lanes observe lines that are almost complete. */
  readonly showLines?: boolean
}

/** The environment of a line game. A waiting lane can only choose 0, which has no effect. */
export function lineModel(
  rules: LineRules,
  { openingMoves, showLines = false }: LineOptions,
): EnvironmentModel<LineState> {
  const { rows, columns, falls } = rules
  const numSquares = rows * columns
  const numMoves = falls ? columns : numSquares
  const lines = linesOf(rules)
  const through = Array.from({ length: numSquares }, (_, square) => lines.filter((line) => line.includes(square)))
  const channels = CHANNELS + (showLines ? 2 * LINE_CHANNELS : 0)
  const dice = new Dice()

  /** The square that a move takes; −1 if it is not free. */
  function squareOf(marks: Uint8Array, first: number, move: number): number {
    let square = falls ? numSquares - columns + move : move
    while (square >= 0 && marks[first + square] !== Mark.none) square = falls ? square - columns : -1
    return square
  }

  /** The square of a random move, by the next number of the dice. */
  function randomSquare(marks: Uint8Array, first: number): number {
    let numLegal = 0
    for (let move = 0; move < numMoves; move++) if (squareOf(marks, first, move) >= 0) numLegal++
    let move = 0
    for (let skipped = dice.below(numLegal); skipped > 0 || squareOf(marks, first, move) < 0; move++) {
      if (squareOf(marks, first, move) >= 0) skipped--
    }
    return squareOf(marks, first, move)
  }

  /** Whether one of the lines through the square has only marks of one side. */
  function isLine(marks: Uint8Array, first: number, square: number): boolean {
    const side = marks[first + square]!
    for (const line of through[square]!) {
      let k = 0
      while (k < line.length && marks[first + line[k]!] === side) k++
      if (k === line.length) return true
    }
    return false
  }

  function isFull(marks: Uint8Array, first: number): boolean {
    for (let square = 0; square < numSquares; square++) if (marks[first + square] === Mark.none) return false
    return true
  }

  /** Free squares below a square, up to BELOW_MAX: this many marks must fall before one can lie on it. */
  function freeBelow(marks: Uint8Array, first: number, square: number): number {
    let count = 0
    let below = square + columns
    while (falls && count < BELOW_MAX && below < numSquares && marks[first + below] === Mark.none) {
      count++
      below += columns
    }
    return count
  }

  /** Writes the channels of lines with marks of only one side and one or two free squares. */
  function drawLines(observation: Float32Array, marks: Uint8Array, first: number): void {
    for (const line of lines) {
      let [own, other, free, secondFree] = [0, 0, -1, -1]
      for (let k = 0; k < line.length; k++) {
        const square = line[k]!
        const mark = marks[first + square]!
        if (mark === Mark.own) own++
        else if (mark === Mark.other) other++
        else if (free < 0) free = square
        else secondFree = square
      }
      if (own > 0 && other > 0) continue
      const side = CHANNELS + (own > 0 ? 0 : LINE_CHANNELS)
      if (own + other === line.length - 1) {
        observation[channels * (first + free) + side + freeBelow(marks, first, free)] = 1
      } else if (own + other === line.length - 2) {
        observation[channels * (first + free) + side + LINE_CHANNELS - 1] = 1
        observation[channels * (first + secondFree) + side + LINE_CHANNELS - 1] = 1
      }
    }
  }

  function show(observation: Float32Array, actionMask: Uint8Array, { marks, turn }: LineState, n: number): void {
    const first = n * numSquares
    const moves = turn[n] === Turn.moves
    for (let square = 0; square < numSquares; square++) {
      const at = channels * (first + square)
      const mark = marks[first + square]!
      observation[at] = mark === Mark.own ? 1 : 0
      observation[at + 1] = mark === Mark.other ? 1 : 0
      observation[at + 2] = moves ? 1 : 0
      observation.fill(0, at + CHANNELS, at + channels)
    }
    if (showLines) drawLines(observation, marks, first)
    for (let move = 0; move < numMoves; move++) {
      // A column has room while its top square is free; the top square has the column's number.
      const isLegal = moves ? marks[first + move] === Mark.none : move === 0
      actionMask[numMoves * n + move] = isLegal ? 1 : 0
    }
  }

  return {
    observationSpace: box({ low: 0, high: 1, shape: [rows, columns, channels] }),
    actionSpace: discrete(numMoves),
    actionMask: true,
    numPlayers: 2,
    moves: ({ turn }, n) => turn[n] === Turn.moves,
    maxEpisodeSteps: numSquares,
    returnThreshold: null,
    draw({ marks }, n) {
      const fields = Uint8Array.from(marks.subarray(n * numSquares, (n + 1) * numSquares), (mark) =>
        mark === Mark.none ? 0 : mark === Mark.own ? 1 : 2,
      )
      return { rows, columns, fields }
    },
    reset({ state, observation, actionMask, lane, episode, random }, list, count) {
      for (let i = 0; i < count; i++) {
        const n = list[i]!
        const player = n % 2
        dice.begin(random, lane[n - player]!, episode[n]!)
        let mover = dice.below(2)
        state.marks.fill(Mark.none, n * numSquares, (n + 1) * numSquares)
        for (let left = dice.below(openingMoves + 1); left > 0; left--) {
          const square = randomSquare(state.marks, n * numSquares)
          state.marks[n * numSquares + square] = mover === player ? Mark.own : Mark.other
          mover = 1 - mover
        }
        state.turn[n] = mover === player ? Turn.moves : Turn.waits
        show(observation, actionMask, state, n)
      }
    },
    step({ state, observation, actionMask, reward, terminated, action }, from, to) {
      const { marks, turn } = state
      for (let n = from; n < to; n += 2) {
        reward[n] = 0
        reward[n + 1] = 0
        if (turn[n] !== Turn.over) {
          const mover = turn[n] === Turn.moves ? n : n + 1
          const other = mover ^ 1
          const square = squareOf(marks, mover * numSquares, action[mover]!)
          if (square >= 0) {
            marks[mover * numSquares + square] = Mark.own
            marks[other * numSquares + square] = Mark.other
          }
          const hasWon = square >= 0 && isLine(marks, mover * numSquares, square)
          const isOver = hasWon || isFull(marks, n * numSquares)
          if (hasWon) {
            reward[mover] = 1
            reward[other] = -1
          }
          turn[mover] = isOver ? Turn.over : Turn.waits
          turn[other] = isOver ? Turn.over : Turn.moves
          terminated[n] = isOver ? 1 : 0
          terminated[n + 1] = isOver ? 1 : 0
        }
        show(observation, actionMask, state, n)
        show(observation, actionMask, state, n + 1)
      }
    },
  }
}

/** All lines of the board, as lists of squares. */
function linesOf({ rows, columns, inLine }: LineRules): number[][] {
  const lines: number[][] = []
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      for (const [down, right] of DIRECTIONS) {
        const lastRow = row + (inLine - 1) * down
        const lastColumn = column + (inLine - 1) * right
        if (lastRow >= rows || lastColumn >= columns || lastColumn < 0) continue
        lines.push(Array.from({ length: inLine }, (_, k) => (row + k * down) * columns + column + k * right))
      }
    }
  }
  return lines
}
