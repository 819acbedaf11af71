/** The best return that is possible on the grids with a partial view: shortest paths with a full view. */
import { configureRun, createWorld, type EnvironmentId, reset } from '../../src/index.ts'

const LANES = 2000
/** What may lie on a field, as in `src/environments/grids/grid-rooms.ts`. */
const Field = { empty: 0, goal: 2, key: 3, door: 4, open: 5 }
const COLUMN = [1, 0, -1, 0] as const
const ROW = [0, 1, 0, -1] as const

interface GridState {
  readonly fields: Uint8Array
  readonly x: Uint8Array
  readonly y: Uint8Array
  readonly facing: Uint8Array
}

/** The mean of the best returns over the starts of `LANES` episodes. */
export async function bestReturn(id: EnvironmentId): Promise<number> {
  const { environment, policy } = await configureRun(id, {})
  const world = await createWorld({ environment, policy, numLanes: LANES, seed: 12_345 })
  reset(world)
  const { fields, x, y, facing } = world.cohort().state as unknown as GridState
  const side = Math.sqrt(fields.length / LANES)
  let sum = 0
  for (let n = 0; n < LANES; n++) {
    const start = { field: y[n]! * side + x[n]!, facing: facing[n]! }
    const steps = shortestWay(fields.subarray(n * side * side, (n + 1) * side * side), side, start)
    sum += 1 - (0.9 * steps) / environment.maxEpisodeSteps!
  }
  world.close()
  return sum / LANES
}

/** Steps to the goal, by a breadth-first search over field, facing, key in hand and open door. */
export function shortestWay(fields: Uint8Array, side: number, start: { field: number; facing: number }): number {
  const indexOf = (field: number, facing: number, hasKey: number, isOpen: number) =>
    ((field * 4 + facing) * 2 + hasKey) * 2 + isOpen
  const steps = new Int32Array(fields.length * 16).fill(-1)
  const first = indexOf(start.field, start.facing, 0, 0)
  steps[first] = 0
  const reached = [first]
  for (const state of reached) {
    const [isOpen, hasKey, facing, field] = [state & 1, (state >> 1) & 1, (state >> 2) & 3, state >> 4]
    const ahead = field + COLUMN[facing]! + ROW[facing]! * side
    const there = fields[ahead]!
    if (there === Field.goal) return steps[state]! + 1
    const next = [indexOf(field, (facing + 1) % 4, hasKey, isOpen), indexOf(field, (facing + 3) % 4, hasKey, isOpen)]
    if (there === Field.key && hasKey === 0) next.push(indexOf(field, facing, 1, isOpen))
    if (there === Field.door && hasKey === 1) next.push(indexOf(field, facing, hasKey, 1))
    const isFree =
      there === Field.empty ||
      there === Field.open ||
      (there === Field.key && hasKey === 1) ||
      (there === Field.door && isOpen === 1)
    if (isFree) next.push(indexOf(ahead, facing, hasKey, isOpen))
    for (const each of next) {
      if (steps[each] !== -1) continue
      steps[each] = steps[state]! + 1
      reached.push(each)
    }
  }
  throw new Error('the goal cannot be reached')
}
