/**
 * Mixtures of experts (Shazeer et al. 2017; Jiang et al. 2024): a router gives each row to a few of a layer's feed-forward layers, whose
 * outputs are added by its probabilities. A shared expert, if there is one, processes every row, with a weight of its own.
 *
 * A loss may balance the experts' loads in training (Fedus et al. 2021, equations 4 to 6): for a sequence, with E experts, the mean number
 * f of choices of each by a row and the mean probability P of each, both over all layers with experts,
 *
 *     E · Σₑ fₑ Pₑ
 *
 * as transformers' `load_balancing_loss_func` has it for a batch of one. The loss is a mean over a batch's sequences by their rows, so it
 * does not depend on how a batch is divided. f has no gradient.
 */
import type { Columns } from '../../components/column.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { forwardPlan } from './forward-plan.ts'
import type { TransformerModel } from './model.ts'
import type { ExpertWeights, MixtureWeights, Projection } from './parameters.ts'

type ForwardColumns = Columns<ReturnType<typeof forwardPlan>>
type LayerColumns = ForwardColumns['layers'][string]

interface Forward {
  readonly model: TransformerModel
  readonly kernels: Kernels
  readonly columns: ForwardColumns
  project(y: Float32Array, x: Float32Array, projection: Projection, count: number): void
  backwardInput(dx: Float32Array, dy: Float32Array, projection: Projection, count: number, accumulate: boolean): void
  activate(y: Float32Array, gate: Float32Array, up: Float32Array, length: number): void
  activateBackward(gate: Float32Array, up: Float32Array, dy: Float32Array, length: number): void
}

interface BackwardColumns {
  readonly dInner: Float32Array
  readonly dShare: Float32Array
  readonly dSharedShare: Float32Array
  readonly ones: Float32Array
}

/** An expert's rows: where they begin in the lists of places and rows, how many, and where their shares and activations are. */
interface Portion {
  /** -1: the shared expert. */
  readonly index: number
  readonly expert: ExpertWeights
  readonly first: number
  readonly count: number
  readonly place: Uint32Array
  readonly row: Uint32Array
  readonly share: Float32Array
  readonly gate: Float32Array
  readonly up: Float32Array
}

/** Sets y = the mixture's output for `count` rows of x. */
export function mixForward(
  forward: Forward,
  layer: LayerColumns,
  mixture: MixtureWeights,
  y: Float32Array,
  x: Float32Array,
  count: number,
): void {
  const { kernels, columns, model } = forward
  const { width } = model.shape
  const { count: numExperts, chosen, normalized } = model.shape.experts!
  const { none, scratch, expertInput, expertOutput, activated } = columns
  const { probability, sharedShare } = layer
  kernels.matmul(probability, x, mixture.router, none, scratch, count, numExperts, width, false, true, false)
  kernels.chooseExperts(layer.share, layer.chosen, probability, count, numExperts, chosen, normalized)
  if (mixture.shared !== null) {
    kernels.matmul(sharedShare, x, mixture.sharedGate, none, scratch, count, 1, width, false, true, false)
    kernels.sigmoidForward(sharedShare, count)
  }
  y.fill(0, 0, count * width)
  for (const { expert, first, count: own, place, row, share, gate, up } of portionsOf(forward, layer, mixture, count)) {
    kernels.gatherRows(expertInput, x, row, first, own, width)
    forward.project(gate, expertInput, expert.gate, own)
    forward.project(up, expertInput, expert.up, own)
    forward.activate(activated, gate, up, own * expert.gate.numOutputs)
    forward.project(expertOutput, activated, expert.down, own)
    kernels.addShares(y, expertOutput, share, place, row, first, own, width)
  }
}

/** Begins the sums of routers' choices and probabilities; nothing without a loss that balances them. */
export function clearRouted({ columns: { load, routed }, model }: Forward, count: number): void {
  if (load.length === 0) return
  const length = count * model.shape.experts!.count
  load.fill(0, 0, length)
  routed.fill(0, 0, length)
}

/** Adds a layer's to them. */
export function addRouted({ columns, model, kernels }: Forward, layer: LayerColumns, count: number): void {
  const { load, routed, firstKey } = columns
  if (load.length === 0) return
  const { count: numExperts, chosen } = model.shape.experts!
  kernels.addLoad(load, routed, layer.chosen, layer.probability, firstKey, count, numExperts, chosen)
}

/**
 * Sets `balance`, the part of these rows in the loss that balances the experts of a batch of `batchRows` rows, and turns `load` into its
 * derivatives by the probabilities.
 */
export function balanceLoads({ columns, model }: Forward, count: number, batchRows: number): void {
  const { load, routed, firstKey, balance } = columns
  balance[0] = 0
  if (load.length === 0) return
  const { count: numExperts, layers } = model.shape.experts!
  const numMixed = layers.filter((isMixed) => isMixed).length
  const scale = (model.routerLoss * numExperts) / (batchRows * numMixed)
  for (let begin = 0, end = 0; begin < count; begin = end) {
    while (end < count && firstKey[end] === begin) end++
    for (let i = begin * numExperts; i < (begin + 1) * numExperts; i++) {
      const pull = (scale * load[i]!) / (numMixed * (end - begin))
      balance[0] = balance[0]! + pull * routed[i]!
      load[i] = pull
    }
  }
}

/** Sets dx, the gradient by the mixture's input x, from dy, the gradient by its output, and adds those of its weights to `into`. */
export function mixBackward(
  forward: Forward,
  { dInner, dShare, dSharedShare, ones }: BackwardColumns,
  layer: LayerColumns,
  mixture: MixtureWeights,
  into: MixtureWeights,
  dx: Float32Array,
  dy: Float32Array,
  x: Float32Array,
  count: number,
): void {
  const { kernels, columns, model } = forward
  const { width } = model.shape
  const { count: numExperts, chosen, normalized } = model.shape.experts!
  const { none, scratch, expertInput, expertOutput, activated } = columns
  const { probability, sharedShare } = layer
  dx.fill(0, 0, count * width)
  for (const portion of portionsOf(forward, layer, mixture, count)) {
    const { index, expert, first, count: own, place, row, share, gate, up } = portion
    const inner = expert.gate.numOutputs
    const to = index < 0 ? into.shared! : into.experts[index]!
    kernels.gatherRows(expertInput, x, row, first, own, width)
    kernels.gatherRows(expertOutput, dy, row, first, own, width)
    forward.activate(activated, gate, up, own * inner)
    forward.backwardInput(dInner, expertOutput, expert.down, own, false)
    const dOwn = index < 0 ? dSharedShare : dShare
    kernels.addSharesBackward(dOwn, dInner, expertOutput, activated, share, place, first, own, inner, width)
    addGradient(forward, to.down.weight, expertOutput, activated, own, width, inner)
    forward.activateBackward(gate, up, dInner, own * inner)
    addGradient(forward, to.gate.weight, gate, expertInput, own, inner, width)
    addGradient(forward, to.up.weight, up, expertInput, own, inner, width)
    forward.backwardInput(expertOutput, gate, expert.gate, own, false)
    forward.backwardInput(expertOutput, up, expert.up, own, true)
    kernels.addShares(dx, expertOutput, ones, row, row, first, own, width)
  }
  const { load, firstKey } = columns
  const sizes = [count, numExperts, chosen, normalized] as const
  kernels.chooseExpertsBackward(probability, dShare, layer.share, layer.chosen, load, firstKey, ...sizes)
  addGradient(forward, into.router, probability, x, count, numExperts, width)
  kernels.matmul(dx, probability, mixture.router, none, scratch, count, width, numExperts, false, false, true)
  if (mixture.shared === null) return
  kernels.sigmoidBackward(dSharedShare, sharedShare, count)
  addGradient(forward, into.sharedGate, dSharedShare, x, count, 1, width)
  kernels.matmul(dx, dSharedShare, mixture.sharedGate, none, scratch, count, width, 1, false, false, true)
}

/** Adds dyᵀ · x to a trained weight (numOutputs × numInputs). */
function addGradient(
  { kernels, columns: { none, scratch } }: Forward,
  dWeight: Float32Array,
  dy: Float32Array,
  x: Float32Array,
  count: number,
  numOutputs: number,
  numInputs: number,
): void {
  if (dWeight.length === 0) return
  kernels.matmul(dWeight, dy, x, none, scratch, numOutputs, numInputs, count, true, false, true)
}

/** The experts that some row has chosen, in rising order, and then the shared one. */
function portionsOf(forward: Forward, layer: LayerColumns, mixture: MixtureWeights, count: number): Portion[] {
  const { kernels, columns, model } = forward
  const { count: numExperts, chosen, width } = model.shape.experts!
  const { place, placeRow, expertBegin, each } = columns
  kernels.listByExpert(place, placeRow, expertBegin, layer.chosen, count, numExperts, chosen)
  const portions: Portion[] = []
  mixture.experts.forEach((expert, index) => {
    const [first, end] = [expertBegin[index]!, expertBegin[index + 1]!]
    if (first === end) return
    const gate = layer.expertGate.subarray(first * width, end * width)
    const up = layer.expertUp.subarray(first * width, end * width)
    portions.push({ index, expert, first, count: end - first, place, row: placeRow, share: layer.share, gate, up })
  })
  const { shared } = mixture
  if (shared === null) return portions
  const { gate, up, sharedShare: share } = layer
  return [...portions, { index: -1, expert: shared, first: 0, count, place: each, row: each, share, gate, up }]
}
