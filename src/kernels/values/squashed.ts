/**
 * Gaussian actions squashed into their bounds (Haarnoja, Zhou, Abbeel, Levine 2018, appendix C): `outputs` has `width` means and
 * `width` log standard deviations s a row, the latter cut to [−20, 2]; ε is standard normal.
 *
 *     u = mean + exp(s) ε        a = tanh u, within ±1        log p(a) = Σ −½ ε² − s − ½ log 2π − log(1 − a²)
 *
 * The environment's action is middle + half · a: log p of that is less by Σ log half.
 */
import { boxMuller, philox4x32, Stream, unitFromWord } from '../../base/random.ts'

const HALF_LOG_TWO_PI = 0.5 * Math.log(2 * Math.PI)
const LOG_STD_MIN = -20
const LOG_STD_MAX = 2
/** Actions are moved at least this far from their bounds, so that their probability is finite. */
const UNIT_MAX = 1 - 1e-6

/**
 * Standard normal numbers for rows `first` on of a minibatch, keyed by (seed, step, use): `numRows` × `width`, row 0 on. `use`
 * ≥ 1 gives different numbers to different uses. `words` (4) is workspace.
 */
export function drawReplayNormal(
  normal: Float32Array,
  words: Uint32Array,
  step: number,
  use: number,
  first: number,
  key0: number,
  key1: number,
  numRows: number,
  width: number,
): void {
  const blocks = Math.ceil(width / 4)
  for (let row = 0; row < numRows; row++) {
    for (let k = 0; k < width; k++) {
      if (k % 4 === 0) philox4x32(words, (first + row) * blocks + k / 4, step, use, Stream.replay, key0, key1)
      const pair = k % 4 < 2 ? 0 : 2
      normal[row * width + k] = boxMuller(words[pair]!, words[pair + 1]!, k % 2)
    }
  }
}

/** As `drawReplayNormal`, uniform in [0, 1). */
export function drawReplayUniform(
  uniform: Float32Array,
  words: Uint32Array,
  step: number,
  use: number,
  first: number,
  key0: number,
  key1: number,
  numRows: number,
  width: number,
): void {
  const blocks = Math.ceil(width / 4)
  for (let row = 0; row < numRows; row++) {
    for (let k = 0; k < width; k++) {
      if (k % 4 === 0) philox4x32(words, (first + row) * blocks + k / 4, step, use, Stream.replay, key0, key1)
      uniform[row * width + k] = unitFromWord(words[k % 4]!)
    }
  }
}

/** a and log p(a) from `outputs` and ε, row 0 on. */
export function squashedSample(
  unit: Float32Array,
  logprob: Float32Array,
  outputs: Float32Array,
  normal: Float32Array,
  numRows: number,
  width: number,
): void {
  for (let row = 0; row < numRows; row++) {
    let sum = 0
    for (let k = 0; k < width; k++) {
      const epsilon = normal[row * width + k]!
      const logStd = cutLogStd(outputs[(2 * row + 1) * width + k]!)
      const u = outputs[2 * row * width + k]! + Math.exp(logStd) * epsilon
      unit[row * width + k] = Math.tanh(u)
      sum += -0.5 * epsilon * epsilon - logStd - HALF_LOG_TWO_PI - logSlope(u)
    }
    logprob[row] = sum
  }
}

/** log p of environment's actions from row `from` on, and the entropy of the Gaussian before it is squashed, in nats; row 0 on. */
export function squashedEvaluate(
  logprob: Float32Array,
  entropy: Float32Array,
  action: Float32Array,
  outputs: Float32Array,
  low: Float32Array,
  high: Float32Array,
  numRows: number,
  width: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    let sum = 0
    let spread = 0
    for (let k = 0; k < width; k++) {
      const half = (high[k]! - low[k]!) / 2
      const a = (action[(from + row) * width + k]! - low[k]!) / half - 1
      const u = Math.atanh(Math.min(UNIT_MAX, Math.max(-UNIT_MAX, a)))
      const logStd = cutLogStd(outputs[(2 * row + 1) * width + k]!)
      const epsilon = (u - outputs[2 * row * width + k]!) / Math.exp(logStd)
      sum += -0.5 * epsilon * epsilon - logStd - HALF_LOG_TWO_PI - logSlope(u) - Math.log(half)
      spread += 0.5 + HALF_LOG_TWO_PI + logStd
    }
    logprob[row] = sum
    entropy[row] = spread
  }
}

/**
 * The gradient by `outputs` of `scale` · (temperature · log p(a) + loss(a)), where dUnit is that of `scale` · loss by a, for the a
 * that `squashedSample` gave.
 */
export function squashedBackward(
  dOutputs: Float32Array,
  dUnit: Float32Array,
  unit: Float32Array,
  outputs: Float32Array,
  normal: Float32Array,
  temperature: number,
  scale: number,
  numRows: number,
  width: number,
): void {
  for (let row = 0; row < numRows; row++) {
    for (let k = 0; k < width; k++) {
      const a = unit[row * width + k]!
      const raw = outputs[(2 * row + 1) * width + k]!
      const dU = temperature * scale * 2 * a + dUnit[row * width + k]! * (1 - a * a)
      dOutputs[2 * row * width + k] = dU
      const dLogStd = dU * normal[row * width + k]! * Math.exp(cutLogStd(raw)) - temperature * scale
      dOutputs[(2 * row + 1) * width + k] = raw > LOG_STD_MIN && raw < LOG_STD_MAX ? dLogStd : 0
    }
  }
}

/** The environment's actions from row `from` on, for a in row 0 on. */
export function stretchActions(
  action: Float32Array,
  unit: Float32Array,
  low: Float32Array,
  high: Float32Array,
  numRows: number,
  width: number,
  from: number,
): void {
  for (let i = 0; i < numRows * width; i++) {
    const k = i % width
    action[from * width + i] = low[k]! + ((unit[i]! + 1) * (high[k]! - low[k]!)) / 2
  }
}

/** The inputs of critics: observations from row `from` on, and a beside them; from row 0 on. */
export function joinActions(
  joined: Float32Array,
  observation: Float32Array,
  unit: Float32Array,
  numRows: number,
  observationWidth: number,
  width: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * (observationWidth + width)
    const seen = (from + row) * observationWidth
    for (let k = 0; k < observationWidth; k++) joined[at + k] = observation[seen + k]!
    for (let k = 0; k < width; k++) joined[at + observationWidth + k] = unit[row * width + k]!
  }
}

/** a of environment's actions from row `from` on; row 0 on. */
export function shrinkActions(
  unit: Float32Array,
  action: Float32Array,
  low: Float32Array,
  high: Float32Array,
  numRows: number,
  width: number,
  from: number,
): void {
  for (let i = 0; i < numRows * width; i++) {
    const k = i % width
    unit[i] = (2 * (action[from * width + i]! - low[k]!)) / (high[k]! - low[k]!) - 1
  }
}

function cutLogStd(s: number): number {
  return Math.min(LOG_STD_MAX, Math.max(LOG_STD_MIN, s))
}

/** log(1 − tanh² u) = 2 (log 2 − u − log(1 + exp(−2u))), which keeps its digits if tanh u is near ±1. */
function logSlope(u: number): number {
  const size = Math.abs(u)
  return 2 * (Math.LN2 - size - Math.log1p(Math.exp(-2 * size)))
}
