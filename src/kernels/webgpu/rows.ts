/** Shaders over the rows of a minibatch: the gather of observations, and the head with its loss. */
import {
  type DeviceColumn,
  elementwise,
  floatNumber,
  GROUP,
  Numbers,
  type Step,
  step,
  sumInGroup,
  wholeNumber,
} from './step.ts'

/** Copies rows order[first … first + count) of `from` to rows 0 … of `into`; with `moments` normalized, and clipped to ±clip. */
export function gatherRows(
  into: DeviceColumn,
  from: DeviceColumn,
  order: DeviceColumn,
  numbers: DeviceColumn,
  width: number,
  moments: {
    readonly weights: DeviceColumn
    readonly center: number
    readonly deviation: number
    readonly clip: number
  } | null,
): Step {
  const read = `source[order[${wholeNumber('first')} + i / ${width}u] * ${width}u + i % ${width}u]`
  const value =
    moments === null
      ? read
      : `clamp((${read} - weights[${moments.center}u + i % ${width}u]) / weights[${moments.deviation}u + i % ${width}u], -${moments.clip}.0, ${moments.clip}.0)`
  const reads = { source: from, order, numbers, ...(moments && { weights: moments.weights }) }
  return elementwise(
    'gather rows',
    { reads, writes: { into } },
    into.length,
    `if (i >= ${wholeNumber('count')} * ${width}u) { return; }
  into[i] = ${value};`,
  )
}

/** The loss of a row, as a shader. */
export interface DeviceLoss {
  /**
   * WGSL that reads logprob, entropy, value, oldLogprob, oldValue, advantage (normalized), returned (the return), weight and the constants
   * and numbers below; that sets dLogprob, dEntropy and dValue; and that sets sums[i] to the row's part of metric i.
   */
  readonly code: string
  readonly numSums: number
  /** The names in `code` of its numbers, which may change between updates. */
  readonly names: readonly string[]
  /** Their values, among others. */
  readonly numbers: Readonly<Record<string, number>>
}

/** The distribution of actions: choices of these sizes, or a box action with its log standard deviations among the weights. */
export interface DeviceHead {
  readonly choices: readonly number[]
  readonly actionWidth: number
  readonly numOutputs: number
  /** Position of the log standard deviations among the weights. */
  readonly logStd: number
  readonly hasMask: boolean
}

/** The columns of a head. Those of the rollout have a row per row of it, the others a row per row of the block. */
export interface HeadColumns {
  readonly order: DeviceColumn
  readonly numbers: DeviceColumn
  readonly weights: DeviceColumn
  readonly action: DeviceColumn
  /** Per row of the rollout: logprob, value, advantage, return. */
  readonly recorded: DeviceColumn
  /** A word per choice, 1: legal. */
  readonly mask: DeviceColumn
  /** Logits (means) of all rows of the block, then their values; and the gradients by them. */
  readonly outputs: DeviceColumn
  readonly dOutputs: DeviceColumn
  /** Of each workgroup of each block: sums of the loss's metrics, then of the gradient by the log standard deviations. */
  readonly partial: DeviceColumn
}

const HEAD_GROUP = 64

/** Workgroups of the head for so many rows. */
export const headGroups = (blockRows: number): number => Math.ceil(blockRows / HEAD_GROUP)

/** The number of sums that a head makes. */
export const headSums = (head: DeviceHead, loss: DeviceLoss): number =>
  loss.numSums + (head.choices.length > 0 ? 0 : head.actionWidth)

/** Log-probability and entropy of each row's action, the loss, and the gradients by outputs and values. */
export function headAndLoss(head: DeviceHead, loss: DeviceLoss, columns: HeadColumns, blockRows: number): Step {
  const { numOutputs } = head
  const isChoice = head.choices.length > 0
  const numSums = headSums(head, loss)
  const { order, numbers, weights, action, recorded, mask, outputs, dOutputs, partial } = columns
  const values = blockRows * numOutputs
  const own = loss.names.map((name, i) => `let ${name} = numbers[${Numbers.loss + i}];`).join(' ')
  const reads = {
    ...{ order, numbers, action, recorded, outputs },
    ...(head.hasMask ? { mask } : {}),
    ...(isChoice ? {} : { weights }),
  }
  const groups = headGroups(blockRows)
  return step(
    'head and loss',
    { reads, writes: { dOutputs, partial } },
    [groups, 1, 1],
    `const MASKED = -1e9;
var<workgroup> work: array<f32, ${HEAD_GROUP}>;
${
  isChoice
    ? `fn logit(row: u32, place: u32, j: u32) -> f32 {
  ${head.hasMask ? `if (mask[place * ${numOutputs}u + j] == 0u) { return MASKED; }` : ''}
  return outputs[row * ${numOutputs}u + j];
}`
    : ''
}
@compute @workgroup_size(${HEAD_GROUP})
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3u) {
  let row = id.x;
  var sums: array<f32, ${numSums}>;
  if (row < ${wholeNumber('count')}) {
    let place = order[${wholeNumber('first')} + row];
    var logprob = 0.0;
    var entropy = 0.0;
    var dLogprob = 0.0;
    var dEntropy = 0.0;
    var dValueOfRow = 0.0;
    ${isChoice ? choicesForward(head) : boxForward(head)}
    let weight = ${floatNumber('weight')};
    let advantage = (recorded[place * 4u + 2u] - ${floatNumber('advantageMean')}) * ${floatNumber('advantageScale')};
    let oldLogprob = recorded[place * 4u];
    let oldValue = recorded[place * 4u + 1u];
    let returned = recorded[place * 4u + 3u];
    let valueOfRow = outputs[${values}u + row];
    ${own}
    { ${loss.code} }
    dOutputs[${values}u + row] = dValueOfRow;
    ${isChoice ? choicesBackward(head) : boxBackward(head, loss.numSums)}
  }
  let at = (${wholeNumber('block')} * ${groups}u + group.x) * ${numSums}u;
  for (var s = 0u; s < ${numSums}u; s++) {
    work[lane] = sums[s];
    workgroupBarrier();
    for (var half = ${HEAD_GROUP / 2}u; half > 0u; half = half >> 1u) {
      if (lane < half) { work[lane] += work[lane + half]; }
      workgroupBarrier();
    }
    if (lane == 0u) { partial[at + s] = work[0]; }
    workgroupBarrier();
  }
}`,
  )
}

/** Over the choices of a row: `code` has its start `s0`, size, and the maximum and sum of exponentials. */
function overChoices({ choices, actionWidth }: DeviceHead, code: (size: number, choice: number) => string): string {
  let start = 0
  return choices
    .map((size, c) => {
      const text = `{ let start = ${start}u; let chosen = u32(action[place * ${actionWidth}u + ${c}u]);
      var most = logit(row, place, start);
      for (var j = 1u; j < ${size}u; j++) { most = max(most, logit(row, place, start + j)); }
      var total = 0.0;
      var weighted = 0.0;
      for (var j = 0u; j < ${size}u; j++) {
        let shifted = logit(row, place, start + j) - most;
        let e = exp(shifted);
        total += e;
        weighted += e * shifted;
      }
      let logTotal = log(total);
      let own = logTotal - weighted / total;
      ${code(size, c)} }`
      start += size
      return text
    })
    .join('\n    ')
}

const choicesForward = (head: DeviceHead): string =>
  overChoices(head, () => 'logprob += logit(row, place, start + chosen) - most - logTotal; entropy += own;')

const choicesBackward = (head: DeviceHead): string =>
  overChoices(
    head,
    (size) => `for (var j = 0u; j < ${size}u; j++) {
        let logp = logit(row, place, start + j) - most - logTotal;
        let p = exp(logp);
        dOutputs[row * ${head.numOutputs}u + start + j] = dLogprob * (select(0.0, 1.0, j == chosen) - p) - dEntropy * p * (logp + own);
      }`,
  )

const boxForward = ({ actionWidth, logStd }: DeviceHead): string => `for (var j = 0u; j < ${actionWidth}u; j++) {
      let spread = weights[${logStd}u + j];
      let z = (action[place * ${actionWidth}u + j] - outputs[row * ${actionWidth}u + j]) * exp(-spread);
      logprob += -0.5 * z * z - spread - ${0.5 * Math.log(2 * Math.PI)};
      entropy += spread + ${0.5 * Math.log(2 * Math.PI * Math.E)};
    }`

const boxBackward = (
  { actionWidth, logStd }: DeviceHead,
  at: number,
): string => `for (var j = 0u; j < ${actionWidth}u; j++) {
      let inverse = exp(-weights[${logStd}u + j]);
      let z = (action[place * ${actionWidth}u + j] - outputs[row * ${actionWidth}u + j]) * inverse;
      dOutputs[row * ${actionWidth}u + j] = dLogprob * z * inverse;
      sums[${at}u + j] = dLogprob * (z * z - 1.0) + dEntropy;
    }`

/**
 * Adds up the sums of the workgroups of a minibatch's head: the loss's metrics into `results`, at the minibatch's row,
 * and the gradient by the log standard deviations into `gradient`. One workgroup per sum.
 */
export function sumPartials(
  head: DeviceHead,
  loss: DeviceLoss,
  { partial, numbers }: Pick<HeadColumns, 'partial' | 'numbers'>,
  gradient: DeviceColumn,
  results: DeviceColumn,
  blockRows: number,
): Step {
  const numSums = headSums(head, loss)
  const store = `if (s < ${loss.numSums}u) { results[${wholeNumber('minibatch')} * ${loss.numSums + 1}u + s] = work[0]; }`
  const storeSpread = `else { gradient[${head.logStd}u + s - ${loss.numSums}u] = work[0]; }`
  const isChoice = head.choices.length > 0
  return step(
    'sum partials',
    { reads: { partial, numbers }, writes: isChoice ? { results } : { results, gradient } },
    [numSums, 1, 1],
    `var<workgroup> work: array<f32, ${GROUP}>;
@compute @workgroup_size(${GROUP})
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3u) {
  let s = group.x;
  var sum = 0.0;
  for (var i = lane; i < ${wholeNumber('numBlocks')} * ${headGroups(blockRows)}u; i += ${GROUP}u) { sum += partial[i * ${numSums}u + s]; }
  work[lane] = sum;
  ${sumInGroup('work')}
  if (lane == 0u) { ${store} ${isChoice ? '' : storeSpread} }
}`,
  )
}
