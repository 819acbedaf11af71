/**
 * How a rollout becomes minibatches, and a minibatch blocks. What is shuffled and dealt out is a unit: one row; or, for a
 * policy with a memory, one sequence, which is a stretch of one lane's rows with a burn-in before it. Blocks hold whole
 * units, at most `blockRows` rows.
 */
import { InputError } from '../base/errors.ts'
import { type Columns, column } from '../components/column.ts'
import type { RolloutColumns } from '../components/rollout.ts'
import type { Kernels } from '../kernels/kernels.ts'
import { BLOCK_ROWS, type PolicyModel, type Sequence } from '../policies/policy.ts'

/** What the cut of a rollout depends on. */
export interface RolloutShape {
  readonly numSteps: number
  readonly numLanes: number
  readonly numMinibatches: number
}

/**
 * The sizes of the cut.
 * @throws InputError where there are more minibatches than units, or the rollout does not divide into sequences.
 */
export function cutOf({ numSteps, numLanes, numMinibatches }: RolloutShape, model: PolicyModel) {
  const sequence = model.sequence ?? null
  if (sequence !== null) checkSequence(sequence, numSteps)
  const unitRows = sequence === null ? 1 : sequence.burnIn + sequence.length
  const numUnits = sequence === null ? numSteps * numLanes : (numSteps / sequence.length) * numLanes
  const noun = sequence === null ? 'rows' : 'sequences'
  if (numMinibatches > numUnits) {
    throw new InputError('numMinibatches', String(numMinibatches), `at most the ${numUnits} ${noun} of a rollout`)
  }
  const minibatchUnits = Math.ceil(numUnits / numMinibatches)
  const unitsPerBlock = Math.max(1, Math.floor((model.blockRows ?? BLOCK_ROWS) / unitRows))
  const evaluatedRows = sequence?.length ?? 1
  return {
    sequence,
    numUnits,
    minibatchUnits,
    unitsPerBlock,
    /** Rows of a block that are seen, and that are evaluated, at most. */
    seenRows: Math.min(unitsPerBlock, minibatchUnits) * unitRows,
    blockRows: Math.min(unitsPerBlock, minibatchUnits) * evaluatedRows,
    /** Rows of a minibatch of which the policy learns, at most. */
    minibatchRows: minibatchUnits * evaluatedRows,
    /** Blocks of the largest minibatch. */
    numBlocks: Math.ceil(minibatchUnits / unitsPerBlock),
  }
}

/** The sizes of a cut. */
export type Cut = ReturnType<typeof cutOf>

function checkSequence({ length, burnIn }: Sequence, numSteps: number): void {
  if (numSteps % length !== 0) {
    throw new InputError('numSteps', String(numSteps), `a multiple of the policy's sequence length, ${length}`)
  }
  if (burnIn + length > numSteps) {
    const sum = `${burnIn} + ${length}`
    throw new InputError('burnIn + sequenceLength', sum, `at most the ${numSteps} rows of a lane's rollout`)
  }
}

/** What one thread needs to cut minibatches into blocks of sequences; single rows stand in the order itself. */
export function cutPlan({ sequence, unitsPerBlock, minibatchUnits }: Cut) {
  const { burnIn, length } = sequence ?? { burnIn: 0, length: 0 }
  const sequences = Math.min(unitsPerBlock, minibatchUnits)
  return {
    /** Rows of the rollout of which the minibatch at hand learns. */
    minibatch: column('u32', minibatchUnits * length),
    /** Rows of the block at hand that are seen (burn-in included), whether each goes on from the one before, … */
    seen: column('u32', sequences * (burnIn + length)),
    continues: column('u8', sequences * (burnIn + length)),
    /** … that are evaluated, … */
    evaluated: column('u32', sequences * length),
    /** … and that are learned of, with their places among the evaluated ones. */
    learned: column('u32', sequences * length),
    places: column('u32', sequences * length),
  }
}

/** Lists units in their first order: the valid rows, or the sequences that have one. Returns how many they are. */
export function listUnits(
  order: Uint32Array,
  { sequence, numUnits }: Pick<ReturnType<typeof cutOf>, 'sequence' | 'numUnits'>,
  numLanes: number,
  { valid }: RolloutColumns,
  kernels: Kernels,
): number {
  if (sequence === null) return kernels.listValid(order, valid, valid.length)
  let listed = 0
  for (let unit = 0; unit < numUnits; unit++) {
    let k = 0
    while (k < sequence.length && valid[rowOf(unit, k, sequence.length, numLanes)] === 0) k++
    if (k === sequence.length) continue
    order[listed] = unit
    listed++
  }
  return listed
}

/** Lists the rows of which the units order[first … first + count) learn: the valid ones. Returns how many they are. */
export function listLearned(
  minibatch: Uint32Array,
  order: Uint32Array,
  first: number,
  count: number,
  { length }: Sequence,
  numLanes: number,
  { valid }: RolloutColumns,
): number {
  let numLearned = 0
  for (let i = first; i < first + count; i++) {
    for (let k = 0; k < length; k++) {
      const row = rowOf(order[i]!, k, length, numLanes)
      if (valid[row] === 0) continue
      minibatch[numLearned] = row
      numLearned++
    }
  }
  return numLearned
}

/** The row of the k-th step of a sequence, before it where k < 0: unit `stretch * numLanes + n` is a stretch of lane n. */
function rowOf(unit: number, k: number, length: number, numLanes: number): number {
  const stretch = Math.floor(unit / numLanes)
  return (stretch * length + k) * numLanes + (unit % numLanes)
}

/**
 * Lists a block of sequences order[first … first + count), one after another. The first sequence of a lane has no past in
 * this rollout: its first row stands in for the burn-in, and it goes on from none of it. Returns of how many rows the block
 * learns.
 */
export function listBlock(
  { seen, continues, evaluated, learned, places }: Columns<ReturnType<typeof cutPlan>>,
  order: Uint32Array,
  first: number,
  count: number,
  { length, burnIn }: Sequence,
  numLanes: number,
  { valid, step }: RolloutColumns,
): number {
  let numSeen = 0
  let numEvaluated = 0
  let numLearned = 0
  for (let i = first; i < first + count; i++) {
    const unit = order[i]!
    for (let k = -burnIn; k < length; k++) {
      const row = rowOf(unit, k, length, numLanes)
      const hasPast = k > -burnIn && row >= numLanes && step[row]! !== 0
      seen[numSeen] = row < 0 ? unit % numLanes : row
      continues[numSeen] = hasPast ? 1 : 0
      numSeen++
      if (k < 0) continue
      evaluated[numEvaluated] = row
      if (valid[row] !== 0) {
        learned[numLearned] = row
        places[numLearned] = numEvaluated
        numLearned++
      }
      numEvaluated++
    }
  }
  return numLearned
}
