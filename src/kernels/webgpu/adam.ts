/** Adam with a clipped gradient, as shaders (kernels/optimizer/adam.ts). */
import type { AdamSettings } from '../optimizer/adam.ts'
import {
  type DeviceColumn,
  elementwise,
  floatNumber,
  floatOf,
  GROUP,
  IS_FINITE,
  type Step,
  step,
  sumInGroup,
  wholeNumber,
} from './step.ts'

export type { AdamSettings }

/** Workgroups of the sum of squares. */
const NORM_GROUPS = 256

export interface TrainedColumns {
  readonly weights: DeviceColumn
  readonly moment: DeviceColumn
  readonly squareMoment: DeviceColumn
  readonly gradient: DeviceColumn
  readonly numbers: DeviceColumn
  /** `resultWidth` numbers per minibatch, of which the last is the gradient's norm before clipping. */
  readonly results: DeviceColumn
}

/** The partial sums of the norm. */
export const normColumnLength = NORM_GROUPS

/**
 * One step of the first `length` weights with the gradient clipped to the norm `maxNorm`. If the norm is not finite, no weight changes.
 * `squares` has `normColumnLength` elements of workspace. Weights in the ranges `undecayed` do not decay.
 */
export function adamSteps(
  { weights, moment, squareMoment, gradient, numbers, results }: TrainedColumns,
  squares: DeviceColumn,
  { beta1, beta2, epsilon, weightDecay }: AdamSettings,
  length: number,
  resultWidth: number,
  undecayed: readonly { readonly from: number; readonly to: number }[] = [],
): Step[] {
  const strip = Math.ceil(length / NORM_GROUPS / GROUP) * GROUP
  const squareStep = step(
    'squares of the gradient',
    { reads: { gradient }, writes: { squares } },
    [NORM_GROUPS, 1, 1],
    `var<workgroup> work: array<f32, ${GROUP}>;
@compute @workgroup_size(${GROUP})
fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) group: vec3u) {
  var sum = 0.0;
  let end = min(${length}u, (group.x + 1u) * ${strip}u);
  for (var i = group.x * ${strip}u + lane; i < end; i += ${GROUP}u) { sum += gradient[i] * gradient[i]; }
  work[lane] = sum;
  ${sumInGroup('work')}
  if (lane == 0u) { squares[group.x] = work[0]; }
}`,
  )
  const norm = step(
    'norm of the gradient',
    { reads: { squares, numbers }, writes: { results } },
    [1, 1, 1],
    `var<workgroup> work: array<f32, ${GROUP}>;
@compute @workgroup_size(${GROUP})
fn main(@builtin(local_invocation_index) lane: u32) {
  work[lane] = select(0.0, squares[min(lane, ${NORM_GROUPS - 1}u)], lane < ${NORM_GROUPS}u);
  ${sumInGroup('work')}
  if (lane == 0u) { results[${wholeNumber('minibatch')} * ${resultWidth}u + ${resultWidth - 1}u] = sqrt(work[0]); }
}`,
  )
  const isUndecayed = undecayed.map(({ from, to }) => `(i >= ${from}u && i < ${to}u)`).join(' || ')
  const decay =
    weightDecay === 0 || isUndecayed === ''
      ? `let decay = ${floatOf(weightDecay)};`
      : `let decay = select(${floatOf(weightDecay)}, 0.0, ${isUndecayed});`
  const update = elementwise(
    'Adam',
    { reads: { gradient, numbers, results }, writes: { weights, moment, squareMoment } },
    length,
    `let norm = results[${wholeNumber('minibatch')} * ${resultWidth}u + ${resultWidth - 1}u];
  if (!isFinite(norm)) { return; }
  let g = gradient[i] * min(1.0, ${floatNumber('maxNorm')} / (norm + 1e-6));
  let m = ${floatOf(beta1)} * moment[i] + ${floatOf(1 - beta1)} * g;
  let v = ${floatOf(beta2)} * squareMoment[i] + ${floatOf(1 - beta2)} * g * g;
  moment[i] = m;
  squareMoment[i] = v;
  let direction = m / ${floatNumber('correction1')} / (sqrt(v / ${floatNumber('correction2')}) + ${floatOf(epsilon)});
  ${decay}
  weights[i] = weights[i] - ${floatNumber('learningRate')} * (direction + decay * weights[i]);`,
    IS_FINITE,
  )
  return [squareStep, norm, update]
}
