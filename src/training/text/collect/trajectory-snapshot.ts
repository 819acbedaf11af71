/** Trajectories in checkpoints: tokens as tensors, other fields as JSON. */
import { InputError } from '../../../base/errors.ts'
import { type Tensor, type TensorType, tensorValues } from '../../../base/files/safetensors.ts'
import type { Trajectories } from '../../../tables/trajectories/trajectories.ts'
import type { Trajectory } from '../../../tables/trajectories/trajectory.ts'

const TOKEN_COLUMNS = {
  token: 'I32',
  lossMask: 'U8',
  logprob: 'F32',
  version: 'I32',
  turn: 'I32',
  candidateCount: 'I32',
} as const
type TokenColumn = keyof typeof TOKEN_COLUMNS

/** The rows without tokens, and all rows' tokens as tensors whose names begin with `name`. */
export function packTrajectories(trajectories: Trajectories, name: string): { rows: object[]; tensors: Tensor[] } {
  const rows: object[] = []
  const columns = trajectories.columns()
  for (let i = 0; i < trajectories.count; i++) {
    const row = trajectories.row(i)
    const rest = Object.fromEntries(Object.entries(row).filter(([name]) => !Object.hasOwn(TOKEN_COLUMNS, name)))
    const { token, candidateIds = [], turnReward = [] } = row
    const lists = { candidateIds: Array.from(candidateIds), turnReward: Array.from(turnReward) } // JSON makes NaN null.
    rows.push({ ...rest, ...lists, length: token.length })
  }
  const tensors = Object.entries(TOKEN_COLUMNS).map(([column, type]) => {
    const values = columns[column as TokenColumn]
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength).slice()
    return { name: `${name}.${column}`, type: type as TensorType, shape: [values.length], bytes }
  })
  return { rows, tensors }
}

/** Appends the output of `packTrajectories`. */
export function unpackTrajectories(
  trajectories: Trajectories,
  name: string,
  rows: readonly object[],
  tensors: ReadonlyMap<string, Tensor>,
): void {
  const values = Object.fromEntries(
    Object.keys(TOKEN_COLUMNS).map((column) => {
      const tensor = tensors.get(`${name}.${column}`)
      if (tensor === undefined) throw new InputError('checkpoint', `no tensor ${name}.${column}`, 'that tensor')
      return [column, tensorValues(tensor)]
    }),
  )
  let first = 0
  for (const row of rows as (Trajectory & { length: number; turnReward: (number | null)[] })[]) {
    const { length, turnReward, ...rest } = row
    const tokens = Object.entries(values).map(([name, all]) => [name, all.subarray(first, first + length)])
    const rewards = { turnReward: turnReward.map((reward) => reward ?? Number.NaN) }
    trajectories.append({ ...rest, ...rewards, ...Object.fromEntries(tokens) })
    first += length
  }
}
