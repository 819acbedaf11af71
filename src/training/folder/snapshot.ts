/** Converts a world's saved columns to tensors and back. Weights have their parameters' names. */
import type { DefinitionRecord } from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import type { Tensor, TensorType } from '../../base/files/safetensors.ts'
import { type Column, type ColumnType, elementBytes } from '../../components/column.ts'
import { asEpisodes } from '../../world/cohort.ts'
import type { World } from '../../world/world.ts'
import type { EpisodeRecord } from './checkpoint.ts'

const TENSOR_TYPES: Readonly<Record<ColumnType, TensorType>> = {
  f32: 'F32',
  f64: 'F64',
  i32: 'I32',
  u32: 'U32',
  u8: 'U8',
}

/** Every saved column, or its replacement in `instead`: views, valid until the next tick. */
export function savedTensors(world: World, instead: ReadonlyMap<Column, Column> = new Map()): Tensor[] {
  const tensors: Tensor[] = []
  for (const { planned, column: own } of world.columns()) {
    if (!planned.saved) continue
    const column = instead.get(own) ?? own
    const { name, rows, width } = planned
    const type = TENSOR_TYPES[planned.type]
    const bytes = new Uint8Array(column.buffer, column.byteOffset, column.byteLength)
    const cohort = column.length === 0 ? undefined : world.cohorts.find((candidate) => candidate.weights === column)
    if (cohort === undefined) {
      tensors.push({ name, type, shape: width === 1 ? [rows] : [rows, width], bytes })
      continue
    }
    for (const { name: parameter, offset, shape } of cohort.model.parameters) {
      const size = shape.reduce((product, side) => product * side, 1)
      const part = bytes.subarray(offset * elementBytes.f32, (offset + size) * elementBytes.f32)
      tensors.push({ name: `${name}.${parameter}`, type, shape, bytes: part })
    }
  }
  return tensors
}

export interface SavedState {
  readonly tensors: readonly Tensor[]
  readonly manifest: Parameters<typeof import('./checkpoint.ts').writeCheckpoint>[2]
}

/**
 * Splits a state by cohort: each part is the state of a trainer with one cohort, in a world with its seed, named after
 * its policy, with an equal share of the seconds.
 * @throws InputError for cohorts of conversations, and cohorts with different numbers of steps per update.
 */
export function splitState({ tensors, manifest }: SavedState, world: World): Map<string, SavedState> {
  const records = Object.entries(manifest.cohorts) as [string, EpisodeRecord][]
  const stepsOf = (name: string) => {
    const { numLanes, numSteps } = asEpisodes('splitState', world.cohort(name))
    return numLanes * numSteps
  }
  const different = new Set(records.map(([name]) => stepsOf(name)))
  if (different.size > 1) {
    throw new InputError(
      'splitState',
      `cohorts of ${[...different].join(' and ')} steps an update`,
      'cohorts with equal steps per update',
    )
  }
  const share = <N extends number | null>(value: N) => (value === null ? value : value / records.length) as N
  return new Map(
    records.map(([name, { seed = manifest.seed, ...record }]) => {
      const { steps, seconds, solvedAtStep, solvedAtSeconds, policy } = record
      const shares = { steps: share(steps), seconds: share(seconds) }
      const own = {
        ...{ ...record, ...shares },
        ...{ solvedAtStep: share(solvedAtStep), solvedAtSeconds: share(solvedAtSeconds) },
      }
      const renamed = tensors
        .filter((tensor) => tensor.name.startsWith(`${name}.`))
        .map((tensor) => ({ ...tensor, name: `${policy.id}${tensor.name.slice(name.length)}` }))
      return [
        name,
        { tensors: renamed, manifest: { ...manifest, ...shares, seed, cohorts: { [policy.id]: own } } },
      ] as const
    }),
  )
}

/** Compares a checkpoint's record with the current one. @throws InputError that names the first difference. */
export function compare(subject: string, what: string, got: unknown, expected: unknown): void {
  if (JSON.stringify(got) === JSON.stringify(expected)) return
  const pair = [got, expected].map((value) => (value as DefinitionRecord | null)?.parameters)
  if (pair[0] && pair[1] && (got as DefinitionRecord).id === (expected as DefinitionRecord).id) {
    for (const key of Object.keys({ ...pair[0], ...pair[1] })) {
      compare(subject, `${what}, ${key}`, pair[0][key], pair[1][key])
    }
    const [then = [], now = []] = [got, expected].map((value) => (value as DefinitionRecord).wrappers ?? [])
    const names = [then, now].map((wrappers) => wrappers.map(({ id }) => id))
    compare(subject, `${what}, wrappers`, names[0], names[1])
    for (const [i, { id }] of now.entries()) compare(subject, `${what}, ${id}`, then[i], now[i])
    return // In another order.
  }
  throw new InputError(`${subject}, ${what}`, show(got), `${show(expected)}, as in this training`)
}

/** Compares definitions; returns a warning for another `number`. @throws InputError for any other difference. */
export function compareUpTo(
  subject: string,
  what: string,
  number: string,
  got: DefinitionRecord | null,
  expected: DefinitionRecord | null,
): string[] {
  const then = got?.parameters?.[number]
  if (expected === null || typeof then !== 'number') {
    compare(subject, what, got, expected)
    return []
  }
  const now = expected.parameters[number]
  compare(subject, what, got, { ...expected, parameters: { ...expected.parameters, [number]: then } })
  if (then === now) return []
  return [`${what}.${number} was ${then} and is ${now}: schedules use the new number from now on`]
}

/** The given folder, or else the trainer's. @throws InputError without one, or if it is not a path. */
export function folderOf(action: string, given: string | undefined, own?: string): string {
  const folder = given ?? own
  if (typeof folder === 'string' && folder !== '') return folder
  const got = folder === undefined ? 'no folder' : show(folder)
  throw new InputError(action, got, 'the path of a folder, here or as the option folder of the trainer')
}
