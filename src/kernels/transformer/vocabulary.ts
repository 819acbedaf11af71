/**
 * The categorical distribution over a vocabulary, with only one chunk of logits in memory at a time. Logits come as
 * numRows × count for the tokens `firstToken` to `firstToken + count`, chunk after chunk in ascending order. The length
 * of each chunk but the last is a multiple of VOCABULARY_STEP, so that it does not affect the bits.
 *
 *     z = logit · inverseTemperature        m = max z        S = Σ exp(z − m)        W = Σ exp(z − m) (z − m)
 *     log p[t] = z[t] − m − log S        entropy H = log S − W / S        in nats
 *
 * m, S and W (numRows each) are running values: when m rises to m', W becomes e^(m − m') (W + (m − m') S), and S becomes e^(m − m') S.
 */

/** Number of tokens after which the running sums are updated. */
export const VOCABULARY_STEP = 64

/** Less than every logit, but not infinite, so that differences stay numbers. */
const LOWEST = -1e30

/** Updates max, sum and weighted with a chunk, and writes z of the row's `target` into targetLogit if the chunk has it. */
export function sumVocabulary(
  max: Float32Array,
  sum: Float32Array,
  weighted: Float32Array,
  targetLogit: Float32Array,
  logits: Float32Array,
  target: Int32Array,
  inverseTemperature: number,
  numRows: number,
  firstToken: number,
  count: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * count
    let m = firstToken === 0 ? LOWEST : max[row]!
    let s = firstToken === 0 ? 0 : sum[row]!
    let w = firstToken === 0 ? 0 : weighted[row]!
    for (let step = 0; step < count; step += VOCABULARY_STEP) {
      const end = Math.min(step + VOCABULARY_STEP, count)
      let higher = m
      for (let j = step; j < end; j++) higher = Math.max(higher, Math.fround(logits[at + j]! * inverseTemperature))
      const shrink = Math.exp(m - higher)
      w = shrink * (w + (m - higher) * s)
      s *= shrink
      m = higher
      for (let j = step; j < end; j++) {
        const shifted = Math.fround(logits[at + j]! * inverseTemperature) - m
        const e = Math.exp(shifted)
        s += e
        w += e * shifted
      }
      s = Math.fround(s)
      w = Math.fround(w)
    }
    max[row] = m
    sum[row] = s
    weighted[row] = w
    const chosen = target[row]! - firstToken
    if (chosen >= 0 && chosen < count) targetLogit[row] = logits[at + chosen]! * inverseTemperature
  }
}

/** logprob of the target, and entropy (numRows each), after all chunks. */
export function evaluateVocabulary(
  logprob: Float32Array,
  entropy: Float32Array,
  max: Float32Array,
  sum: Float32Array,
  weighted: Float32Array,
  targetLogit: Float32Array,
  numRows: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const logSum = Math.log(sum[row]!)
    logprob[row] = targetLogit[row]! - max[row]! - logSum
    entropy[row] = logSum - weighted[row]! / sum[row]!
  }
}

/**
 * Replaces a chunk's logits by the gradient by them, from dLogprob and dEntropy (numRows each):
 *
 *     ∂ log p[t] / ∂ z[j] = [t = j] − p[j]        ∂ H / ∂ z[j] = −p[j] (log p[j] + H)        ∂ z / ∂ logit = inverseTemperature
 */
export function vocabularyBackward(
  logits: Float32Array,
  dLogprob: Float32Array,
  dEntropy: Float32Array,
  entropy: Float32Array,
  max: Float32Array,
  sum: Float32Array,
  target: Int32Array,
  inverseTemperature: number,
  numRows: number,
  firstToken: number,
  count: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * count
    const logSum = Math.log(sum[row]!)
    for (let j = 0; j < count; j++) {
      const logp = Math.fround(logits[at + j]! * inverseTemperature) - max[row]! - logSum
      const p = Math.exp(logp)
      const isTarget = firstToken + j === target[row] ? 1 : 0
      const dz = dLogprob[row]! * (isTarget - p) - dEntropy[row]! * p * (logp + entropy[row]!)
      logits[at + j] = dz * inverseTemperature
    }
  }
}

/**
 * Chooses a token for each row of whole logits (numRows × vocabularySize) by inverting the cumulative distribution at
 * `uniform` (numRows, in [0, 1)), never one of probability 0; max and sum are those of `sumVocabulary`. Writes z of the
 * token into targetLogit.
 */
export function sampleVocabulary(
  token: Int32Array,
  targetLogit: Float32Array,
  logits: Float32Array,
  max: Float32Array,
  sum: Float32Array,
  uniform: Float32Array,
  inverseTemperature: number,
  numRows: number,
  vocabularySize: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * vocabularySize
    const threshold = uniform[row]! * sum[row]!
    let cumulative = 0
    let chosen = 0
    for (let j = 0; j < vocabularySize; j++) {
      const e = Math.exp(Math.fround(logits[at + j]! * inverseTemperature) - max[row]!)
      if (e > 0) chosen = j // If rounding keeps the sum below the threshold, the last token is chosen.
      cumulative += e
      if (cumulative > threshold) break
    }
    token[row] = chosen
    targetLogit[row] = logits[at + chosen]! * inverseTemperature
  }
}

/** Chooses the most probable token of each row, the first of equals. Writes z of it into targetLogit. */
export function modeOfVocabulary(
  token: Int32Array,
  targetLogit: Float32Array,
  logits: Float32Array,
  inverseTemperature: number,
  numRows: number,
  vocabularySize: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * vocabularySize
    let best = 0
    for (let j = 1; j < vocabularySize; j++) if (logits[at + j]! > logits[at + best]!) best = j
    token[row] = best
    targetLogit[row] = logits[at + best]! * inverseTemperature
  }
}
