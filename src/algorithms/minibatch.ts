/**
 * How a rollout becomes minibatches, and a minibatch blocks. What is shuffled and dealt out is a unit: one row; or, for a
 * policy with a memory, one sequence, which is a stretch of one lane's rows with a burn-in before it. Blocks hold whole
 * units, at most `blockRows` rows.
 */
import { type Columns, column } from '../components/column.ts'
import type { RolloutColumns } from '../components/rollout.ts'
import { InputError } from '../errors.ts'
import type { Kernels } from '../kernels/bind.ts'
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
  return {
    sequence,
    numUnits,
    unitsPerBlock,
    /** Rows of a block, at most. */
    blockRows: Math.min(unitsPerBlock, minibatchUnits) * unitRows,
    /** Rows of a minibatch of which the policy learns, at most. */
    minibatchRows: minibatchUnits * (sequence?.length ?? 1),
    /** Blocks of the largest minibatch. */
    numBlocks: Math.ceil(minibatchUnits / unitsPerBlock),
  }
}

function checkSequence({ length, burnIn }: Sequence, numSteps: number): void {
  if (numSteps % length !== 0) {
    throw new InputError('numSteps', String(numSteps), `a multiple of the policy's sequence length, ${length}`)
  }
  if (burnIn + length > numSteps) {
    const sum = `${burnIn} + ${length}`
    throw new InputError('burnIn + sequenceLength', sum, `at most the ${numSteps} rows of a lane's rollout`)
  }
}

/** What one thread needs to cut minibatches. */
export function cutPlan({ sequence, blockRows, minibatchRows }: ReturnType<typeof cutOf>) {
  return {
    /** Rows of the rollout of which the minibatch at hand learns; of single rows they stand in the order itself. */
    minibatch: column('u32', sequence === null ? 0 : minibatchRows),
    /** Rows of the block at hand, burn-in included. */
    rows: column('u32', sequence === null ? 0 : blockRows),
    /** Those of which the policy learns, and their places in the block. */
    learned: column('u32', sequence === null ? 0 : blockRows),
    places: column('u32', sequence === null ? 0 : blockRows),
  }
}

/** Lists units in their first order: the valid rows, or all sequences. Returns how many they are. */
export function listUnits(
  order: Uint32Array,
  { sequence, numUnits }: Pick<ReturnType<typeof cutOf>, 'sequence' | 'numUnits'>,
  { valid }: RolloutColumns,
  kernels: Kernels,
): number {
  if (sequence === null) return kernels.listValid(order, valid, valid.length)
  for (let unit = 0; unit < numUnits; unit++) order[unit] = unit
  return numUnits
}

/** The rows of a sequence: unit `k * numLanes + n` is the k-th stretch of lane n. */
function sequenceRows(unit: number, { length, burnIn }: Sequence, numLanes: number) {
  const learnsFrom = Math.floor(unit / numLanes) * length
  const from = Math.max(0, learnsFrom - burnIn) // The first has no past in this rollout: rows after it fill its place.
  return { lane: unit % numLanes, from, to: from + burnIn + length, learnsFrom, learnsTo: learnsFrom + length }
}

/** Lists the rows of which the units order[first … first + count) learn: the valid ones. Returns how many they are. */
export function listLearned(
  minibatch: Uint32Array,
  order: Uint32Array,
  first: number,
  count: number,
  sequence: Sequence,
  numLanes: number,
  valid: Uint8Array,
): number {
  let length = 0
  for (let i = first; i < first + count; i++) {
    const { lane, learnsFrom, learnsTo } = sequenceRows(order[i]!, sequence, numLanes)
    for (let t = learnsFrom; t < learnsTo; t++) {
      const row = t * numLanes + lane
      if (valid[row] === 0) continue
      minibatch[length] = row
      length++
    }
  }
  return length
}

/** Lists the rows of a block of sequences order[first … first + count), sequence by sequence. Returns how many it learns of. */
export function listBlock(
  { rows, learned, places }: Columns<ReturnType<typeof cutPlan>>,
  order: Uint32Array,
  first: number,
  count: number,
  sequence: Sequence,
  numLanes: number,
  valid: Uint8Array,
): number {
  let place = 0
  let length = 0
  for (let i = first; i < first + count; i++) {
    const { lane, from, to, learnsFrom, learnsTo } = sequenceRows(order[i]!, sequence, numLanes)
    for (let t = from; t < to; t++) {
      const row = t * numLanes + lane
      rows[place] = row
      if (t >= learnsFrom && t < learnsTo && valid[row] !== 0) {
        learned[length] = row
        places[length] = place
        length++
      }
      place++
    }
  }
  return length
}
