/** Shaders over the rows of packed tokens: embeddings, rotation, the gated activation, and the distribution over a vocabulary. */
import { RowField } from './attention.ts'
import { type DeviceColumn, elementwise, GROUP, Numbers, type Step, step, sumInGroup, wholeNumber } from './step.ts'

const field = (row: string, name: keyof typeof RowField) => `rows[(${row}) * ${RowField.length}u + ${RowField[name]}u]`
const INVERSE_TEMPERATURE = `numbers[${Numbers.loss}]`

/** The place of the inverse temperature in the column `numbers`. */
export const inverseTemperaturePlace: number = Numbers.loss

/** x (rows × width): the embedding of each row's token, which begins at element `at` of the weights. */
export function gatherTokens(
  x: DeviceColumn,
  weights: DeviceColumn,
  rows: DeviceColumn,
  numbers: DeviceColumn,
  width: number,
  at: number,
): Step {
  return elementwise(
    'gather embeddings',
    { reads: { weights, rows, numbers }, writes: { x } },
    x.length,
    `let row = i / ${width}u;
  if (row >= ${wholeNumber('count')}) { return; }
  x[i] = weights[${at}u + u32(${field('row', 'token')}) * ${width}u + i % ${width}u];`,
  )
}

/** Adds each row of dx to the gradient by its token's embedding. The first row of a token in their order sums all of them. */
export function scatterTokens(
  gradient: DeviceColumn,
  dx: DeviceColumn,
  rows: DeviceColumn,
  numbers: DeviceColumn,
  width: number,
  at: number,
): Step {
  return elementwise(
    'gradient by embeddings',
    { reads: { dx, rows, numbers }, writes: { gradient } },
    dx.length,
    `let count = ${wholeNumber('count')};
  let begin = i / ${width}u;
  let k = i % ${width}u;
  if (begin >= count) { return; }
  let token = tokenAt(begin);
  if (begin > 0u && tokenAt(begin - 1u) == token) { return; }
  var sum = 0.0;
  for (var place = begin; place < count; place++) {
    if (tokenAt(place) != token) { break; }
    sum += dx[u32(${field('place', 'byToken')}) * ${width}u + k];
  }
  gradient[${at}u + token * ${width}u + k] += sum;`,
    `fn tokenAt(place: u32) -> u32 { return u32(${field(`u32(${field('place', 'byToken')})`, 'token')}); }`,
  )
}

export interface Rotation {
  readonly heads: number
  readonly headWidth: number
  readonly rotaryWidth: number
  readonly turnsNeighbors: boolean
  /** Elements of a row. */
  readonly stride: number
}

/** Rotates the first heads of each row in place, or turns them back. `angles`: cosine and sine by turns, positions × rotaryWidth / 2. */
export function rotate(
  x: DeviceColumn,
  angles: DeviceColumn,
  rows: DeviceColumn,
  numbers: DeviceColumn,
  { heads, headWidth, rotaryWidth, turnsNeighbors, stride }: Rotation,
  inverse: boolean,
  blockRows: number,
): Step {
  const half = rotaryWidth / 2
  const perRow = heads * half
  const [distance, apart] = turnsNeighbors ? [2, 1] : [1, half]
  return elementwise(
    inverse ? 'turn back' : 'rotate',
    { reads: { angles, rows, numbers }, writes: { x } },
    blockRows * perRow,
    `let row = i / ${perRow}u;
  if (row >= ${wholeNumber('count')}) { return; }
  let k = i % ${half}u;
  let angle = (u32(${field('row', 'position')}) * ${half}u + k) * 2u;
  let place = row * ${stride}u + ((i % ${perRow}u) / ${half}u) * ${headWidth}u + k * ${distance}u;
  let cosine = angles[angle];
  let sine = ${inverse ? '-' : ''}angles[angle + 1u];
  let first = x[place];
  let second = x[place + ${apart}u];
  x[place] = first * cosine - second * sine;
  x[place + ${apart}u] = second * cosine + first * sine;`,
  )
}

/** y = silu(gate) · up (rows × width); `fed` has gate and up side by side. */
export function swigluForward(
  y: DeviceColumn,
  fed: DeviceColumn,
  numbers: DeviceColumn,
  width: number,
  blockRows: number,
): Step {
  return elementwise(
    'gated activation',
    { reads: { fed, numbers }, writes: { y } },
    blockRows * width,
    `let row = i / ${width}u;
  if (row >= ${wholeNumber('count')}) { return; }
  let at = row * ${2 * width}u + i % ${width}u;
  y[i] = fed[at] / (1.0 + exp(-fed[at])) * fed[at + ${width}u];`,
  )
}

/** `fed` becomes the gradient by gate and up, from dy. */
export function swigluBackward(
  fed: DeviceColumn,
  dy: DeviceColumn,
  numbers: DeviceColumn,
  width: number,
  blockRows: number,
): Step {
  return elementwise(
    'gradient by gate and up',
    { reads: { dy, numbers }, writes: { fed } },
    blockRows * width,
    `let row = i / ${width}u;
  if (row >= ${wholeNumber('count')}) { return; }
  let at = row * ${2 * width}u + i % ${width}u;
  let x = fed[at];
  let sigmoid = 1.0 / (1.0 + exp(-x));
  let up = fed[at + ${width}u];
  fed[at] = dy[i] * up * sigmoid * (1.0 + x * (1.0 - sigmoid));
  fed[at + ${width}u] = dy[i] * x * sigmoid;`,
  )
}

export interface VocabularyColumns {
  /** rows × the chunk's tokens. */
  readonly logits: DeviceColumn
  readonly rows: DeviceColumn
  readonly numbers: DeviceColumn
  /** Per row: maximum, sum of exponentials, weighted sum, and the target's logit (kernels/transformer/vocabulary.ts). */
  readonly running: DeviceColumn
  /** Per row: log-probability of the target, entropy, and the value. */
  readonly evaluated: DeviceColumn
  /** The gradients by them. */
  readonly derivatives: DeviceColumn
}

/** Takes a chunk of `tokens` logits of each row into the running sums. `at[1]` is its first token; the first chunk begins them. */
export function sumVocabulary(
  { logits, rows, numbers, running }: VocabularyColumns,
  at: DeviceColumn,
  tokens: number,
  blockRows: number,
): Step {
  return step(
    'sum the vocabulary',
    { reads: { logits, rows, numbers, at }, writes: { running } },
    [blockRows, 1, 1],
    `var<workgroup> work: array<f32, ${GROUP}>;
@compute @workgroup_size(${GROUP})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = group.x;
  if (row >= ${wholeNumber('count')}) { return; }
  let inverse = ${INVERSE_TEMPERATURE};
  let first = at[1];
  let begin = row * ${tokens}u;
  var higher = -1e30;
  for (var j = lane; j < ${tokens}u; j += ${GROUP}u) { higher = max(higher, logits[begin + j] * inverse); }
  work[lane] = higher;
  workgroupBarrier();
  for (var half = ${GROUP / 2}u; half > 0u; half = half >> 1u) {
    if (lane < half) { work[lane] = max(work[lane], work[lane + half]); }
    workgroupBarrier();
  }
  let most = work[0];
  workgroupBarrier();
  var sum = 0.0;
  var weighted = 0.0;
  for (var j = lane; j < ${tokens}u; j += ${GROUP}u) {
    let shifted = logits[begin + j] * inverse - most;
    let e = exp(shifted);
    sum += e;
    weighted += e * shifted;
  }
  work[lane] = sum;
  ${sumInGroup('work')}
  sum = work[0];
  workgroupBarrier();
  work[lane] = weighted;
  ${sumInGroup('work')}
  if (lane == 0u) {
    var m = most;
    var s = sum;
    var w = work[0];
    if (first > 0u) {
      let former = running[row * 4u];
      m = max(former, most);
      let shrink = exp(former - m);
      let grow = exp(most - m);
      w = shrink * (running[row * 4u + 2u] + (former - m) * running[row * 4u + 1u]) + grow * (w + (most - m) * s);
      s = shrink * running[row * 4u + 1u] + grow * s;
    }
    running[row * 4u] = m;
    running[row * 4u + 1u] = s;
    running[row * 4u + 2u] = w;
    let chosen = ${field('row', 'target')} - i32(first);
    if (chosen >= 0 && chosen < ${tokens}) { running[row * 4u + 3u] = logits[begin + u32(chosen)] * inverse; }
  }
}`,
  )
}

/** Log-probability and entropy of each row, once every chunk was taken in. */
export function evaluateVocabulary({ numbers, running, evaluated }: VocabularyColumns, blockRows: number): Step {
  return elementwise(
    'evaluate the vocabulary',
    { reads: { numbers, running }, writes: { evaluated } },
    blockRows,
    `if (i >= ${wholeNumber('count')}) { return; }
  let logSum = log(running[i * 4u + 1u]);
  evaluated[i * 3u] = running[i * 4u + 3u] - running[i * 4u] - logSum;
  evaluated[i * 3u + 1u] = logSum - running[i * 4u + 2u] / running[i * 4u + 1u];`,
  )
}

/** A chunk's logits become the gradient by them. */
export function vocabularyBackward(
  { logits, rows, numbers, running, evaluated, derivatives }: VocabularyColumns,
  at: DeviceColumn,
  tokens: number,
  blockRows: number,
): Step {
  return elementwise(
    'gradient by the vocabulary',
    { reads: { rows, numbers, running, evaluated, derivatives, at }, writes: { logits } },
    blockRows * tokens,
    `let row = i / ${tokens}u;
  if (row >= ${wholeNumber('count')}) { return; }
  let inverse = ${INVERSE_TEMPERATURE};
  let logp = logits[i] * inverse - running[row * 4u] - log(running[row * 4u + 1u]);
  let p = exp(logp);
  let isTarget = select(0.0, 1.0, i32(at[1] + i % ${tokens}u) == ${field('row', 'target')});
  let byLogprob = derivatives[row * 3u] * (isTarget - p);
  logits[i] = inverse * (byLogprob - derivatives[row * 3u + 1u] * p * (logp + evaluated[row * 3u + 1u]));`,
  )
}
