/**
 * Independent categorical distributions over the segments of a row of logits: one segment for a discrete action, one per
 * choice for a multi-discrete action. `sizes` (numChoices) are the segments' lengths, numLogits their sum; logits are
 * numRows × numLogits from row 0, actions numRows × numChoices from row `from`.
 *
 *     log p[a] = z[a] − log Σ exp z        logprob and entropy of a row are the sums over its choices
 *
 * All in f64, shifted by the segment's maximum, rounded once where they are stored.
 */

/**
 * Masks illegal choices: where a row's mask (numRows × numLogits bytes, from row `from`) is 0 the logit becomes −10⁹, so
 * that its probability is exactly 0 and no gradient passes. In a row without a legal choice, all choices are equally probable.
 */
export function maskLogits(
  logits: Float32Array,
  mask: Uint8Array,
  numRows: number,
  numLogits: number,
  from: number,
): void {
  const MASKED = -1e9
  const first = from * numLogits
  for (let i = 0; i < numRows * numLogits; i++) if (mask[first + i] === 0) logits[i] = MASKED
}

/** Chooses actions by inverting the cumulative distribution at `uniform` (numRows × numChoices, in [0, 1)), with their logprob. */
export function categoricalSample(
  action: Int32Array,
  logprob: Float32Array,
  logits: Float32Array,
  uniform: Float32Array,
  sizes: Int32Array,
  numRows: number,
  numChoices: number,
  numLogits: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    let start = row * numLogits
    let sumLogprob = 0
    for (let c = 0; c < numChoices; c++) {
      const size = sizes[c]!
      const max = maximum(logits, start, size)
      const total = sumExp(logits, start, size, max)
      const threshold = uniform[row * numChoices + c]! * total
      let chosen = 0
      let cumulative = Math.exp(logits[start]! - max)
      while (cumulative <= threshold && chosen < size - 1) {
        chosen++
        cumulative += Math.exp(logits[start + chosen]! - max)
      }
      action[(from + row) * numChoices + c] = chosen
      sumLogprob += logits[start + chosen]! - max - Math.log(total)
      start += size
    }
    logprob[from + row] = sumLogprob
  }
}

/** Chooses the most probable actions (the first of equals), with their logprob. */
export function categoricalMode(
  action: Int32Array,
  logprob: Float32Array,
  logits: Float32Array,
  sizes: Int32Array,
  numRows: number,
  numChoices: number,
  numLogits: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    let start = row * numLogits
    let sumLogprob = 0
    for (let c = 0; c < numChoices; c++) {
      const size = sizes[c]!
      let best = 0
      for (let j = 1; j < size; j++) if (logits[start + j]! > logits[start + best]!) best = j
      const max = logits[start + best]!
      action[(from + row) * numChoices + c] = best
      sumLogprob -= Math.log(sumExp(logits, start, size, max))
      start += size
    }
    logprob[from + row] = sumLogprob
  }
}

/** logprob and entropy (numRows, in nats) of given actions. */
export function categoricalEvaluate(
  logprob: Float32Array,
  entropy: Float32Array,
  action: Int32Array,
  logits: Float32Array,
  sizes: Int32Array,
  numRows: number,
  numChoices: number,
  numLogits: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    let start = row * numLogits
    let sumLogprob = 0
    let sumEntropy = 0
    for (let c = 0; c < numChoices; c++) {
      const size = sizes[c]!
      const max = maximum(logits, start, size)
      const total = sumExp(logits, start, size, max)
      sumLogprob += logits[start + action[(from + row) * numChoices + c]!]! - max - Math.log(total)
      sumEntropy += segmentEntropy(logits, start, size, max, total)
      start += size
    }
    logprob[row] = sumLogprob
    entropy[row] = sumEntropy
  }
}

/**
 * dLogits from dLogprob and dEntropy (numRows each):
 *
 *     ∂ log p[a] / ∂ z[j] = [a = j] − p[j]        ∂ H / ∂ z[j] = −p[j] (log p[j] + H)
 */
export function categoricalBackward(
  dLogits: Float32Array,
  dLogprob: Float32Array,
  dEntropy: Float32Array,
  action: Int32Array,
  logits: Float32Array,
  sizes: Int32Array,
  numRows: number,
  numChoices: number,
  numLogits: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    let start = row * numLogits
    for (let c = 0; c < numChoices; c++) {
      const size = sizes[c]!
      const chosen = action[(from + row) * numChoices + c]!
      const max = maximum(logits, start, size)
      const total = sumExp(logits, start, size, max)
      const entropy = segmentEntropy(logits, start, size, max, total)
      for (let j = 0; j < size; j++) {
        const logp = logits[start + j]! - max - Math.log(total)
        const p = Math.exp(logp)
        dLogits[start + j] = dLogprob[row]! * ((j === chosen ? 1 : 0) - p) - dEntropy[row]! * p * (logp + entropy)
      }
      start += size
    }
  }
}

function maximum(logits: Float32Array, start: number, size: number): number {
  let max = logits[start]!
  for (let j = 1; j < size; j++) max = Math.max(max, logits[start + j]!)
  return max
}

function sumExp(logits: Float32Array, start: number, size: number, max: number): number {
  let total = 0
  for (let j = 0; j < size; j++) total += Math.exp(logits[start + j]! - max)
  return total
}

/** H = log Σ − Σ p (z − max), in nats. */
function segmentEntropy(logits: Float32Array, start: number, size: number, max: number, total: number): number {
  let weighted = 0
  for (let j = 0; j < size; j++) {
    const shifted = logits[start + j]! - max
    weighted += (Math.exp(shifted) / total) * shifted
  }
  return Math.log(total) - weighted
}
