/** The distribution over a vocabulary, four logits at a time; the plain twin `vocabulary.ts` says what is computed. */
import { exp4, firstLanes, load4, log4, madd, store4, sum4 } from '../vector.simd'

const VOCABULARY_STEP: i32 = 64
const LOWEST: f32 = -1e30

export function sumVocabulary(
  max: usize,
  sum: usize,
  weighted: usize,
  targetLogit: usize,
  logits: usize,
  target: usize,
  inverseTemperature: f32,
  numRows: i32,
  firstToken: i32,
  count: i32,
): void {
  const inverse = f32x4.splat(inverseTemperature)
  const row = <usize>count << 2
  for (; numRows > 0; numRows--) {
    let m = LOWEST
    let s: f32 = 0
    let w: f32 = 0
    if (firstToken > 0) {
      m = load<f32>(max)
      s = load<f32>(sum)
      w = load<f32>(weighted)
    }
    for (let left = count, at = logits; left > 0; left -= VOCABULARY_STEP, at += <usize>VOCABULARY_STEP << 2) {
      const part = min(left, VOCABULARY_STEP)
      let highest = f32x4.splat(m)
      for (let i = part, from = at; i > 0; i -= 4, from += 16) highest = f32x4.max(highest, scaled(from, i, inverse))
      const higher = maximum(highest)
      const shrink = f32x4.extract_lane(exp4(f32x4.splat(m - higher)), 0)
      w = shrink * (w + (m - higher) * s)
      s *= shrink
      m = higher
      const shift = f32x4.splat(m)
      let sums = f32x4.splat(0)
      let products = f32x4.splat(0)
      for (let i = part, from = at; i > 0; i -= 4, from += 16) {
        const shifted = f32x4.sub(scaled(from, i, inverse), shift)
        const e = exp4(shifted)
        sums = f32x4.add(sums, e)
        products = madd(e, shifted, products)
      }
      s += sum4(sums)
      w += sum4(products)
    }
    store<f32>(max, m)
    store<f32>(sum, s)
    store<f32>(weighted, w)
    const chosen = load<i32>(target) - firstToken
    if (chosen >= 0 && chosen < count) {
      store<f32>(targetLogit, load<f32>(logits + (<usize>chosen << 2)) * inverseTemperature)
    }
    max += 4
    sum += 4
    weighted += 4
    targetLogit += 4
    target += 4
    logits += row
  }
}

export function evaluateVocabulary(
  logprob: usize,
  entropy: usize,
  max: usize,
  sum: usize,
  weighted: usize,
  targetLogit: usize,
  numRows: i32,
): void {
  for (let at: usize = 0, end = <usize>numRows << 2; at < end; at += 4) {
    const s = load<f32>(sum + at)
    const logSum = f32x4.extract_lane(log4(f32x4.splat(s)), 0)
    store<f32>(logprob + at, load<f32>(targetLogit + at) - load<f32>(max + at) - logSum)
    store<f32>(entropy + at, logSum - load<f32>(weighted + at) / s)
  }
}

export function vocabularyBackward(
  logits: usize,
  dLogprob: usize,
  dEntropy: usize,
  entropy: usize,
  max: usize,
  sum: usize,
  target: usize,
  inverseTemperature: f32,
  numRows: i32,
  firstToken: i32,
  count: i32,
): void {
  const inverse = f32x4.splat(inverseTemperature)
  const row = <usize>count << 2
  for (; numRows > 0; numRows--) {
    const m = v128.load32_splat(max)
    const logSum = log4(v128.load32_splat(sum))
    const h = v128.load32_splat(entropy)
    const byLogprob = v128.load32_splat(dLogprob)
    const byEntropy = v128.load32_splat(dEntropy)
    for (let left = count, at = logits; left > 0; left -= 4, at += 16) {
      const logp = f32x4.sub(f32x4.sub(f32x4.mul(load4(at, left), inverse), m), logSum)
      const pull = madd(byEntropy, f32x4.add(logp, h), byLogprob)
      store4(at, f32x4.mul(f32x4.neg(f32x4.mul(exp4(logp), pull)), inverse), left)
    }
    const chosen = load<i32>(target) - firstToken
    if (chosen >= 0 && chosen < count) {
      const at = logits + (<usize>chosen << 2)
      store<f32>(at, load<f32>(at) + load<f32>(dLogprob) * inverseTemperature)
    }
    dLogprob += 4
    dEntropy += 4
    entropy += 4
    max += 4
    sum += 4
    target += 4
    logits += row
  }
}

export function sampleVocabulary(
  token: usize,
  targetLogit: usize,
  logits: usize,
  max: usize,
  sum: usize,
  uniform: usize,
  inverseTemperature: f32,
  numRows: i32,
  vocabularySize: i32,
): void {
  const inverse = f32x4.splat(inverseTemperature)
  const row = <usize>vocabularySize << 2
  for (; numRows > 0; numRows--, logits += row) {
    const m = v128.load32_splat(max)
    const threshold = <f64>load<f32>(uniform) * <f64>load<f32>(sum)
    let cumulative: f64 = 0
    let chosen = 0
    for (let j = 0; j < vocabularySize && cumulative <= threshold; j += 4) {
      const e = exp4(f32x4.sub(scaled(logits + (<usize>j << 2), vocabularySize - j, inverse), m))
      for (let lane = 0; lane < 4 && cumulative <= threshold; lane++) {
        const probability =
          lane == 0
            ? f32x4.extract_lane(e, 0)
            : lane == 1
              ? f32x4.extract_lane(e, 1)
              : lane == 2
                ? f32x4.extract_lane(e, 2)
                : f32x4.extract_lane(e, 3)
        if (probability > 0) chosen = j + lane
        cumulative += <f64>probability
      }
    }
    store<i32>(token, chosen)
    store<f32>(targetLogit, load<f32>(logits + (<usize>chosen << 2)) * inverseTemperature)
    token += 4
    targetLogit += 4
    max += 4
    sum += 4
    uniform += 4
  }
}

export function modeOfVocabulary(
  token: usize,
  targetLogit: usize,
  logits: usize,
  inverseTemperature: f32,
  numRows: i32,
  vocabularySize: i32,
): void {
  const row = <usize>vocabularySize << 2
  for (; numRows > 0; numRows--, token += 4, targetLogit += 4, logits += row) {
    let best = 0
    let highest = load<f32>(logits)
    for (let j = 1; j < vocabularySize; j++) {
      const logit = load<f32>(logits + (<usize>j << 2))
      if (logit > highest) {
        best = j
        highest = logit
      }
    }
    store<i32>(token, best)
    store<f32>(targetLogit, highest * inverseTemperature)
  }
}

/** Four logits over the temperature, or fewer where fewer are left, the others LOWEST. */
// @ts-ignore: decorator
@inline
function scaled(at: usize, left: i32, inverse: v128): v128 {
  const v = f32x4.mul(load4(at, left), inverse)
  return left >= 4 ? v : v128.bitselect(v, f32x4.splat(LOWEST), firstLanes(left))
}

// @ts-ignore: decorator
@inline
function maximum(v: v128): f32 {
  const pairs = f32x4.max(v, v128.shuffle<i32>(v, v, 2, 3, 0, 1))
  return max(f32x4.extract_lane(pairs, 0), f32x4.extract_lane(pairs, 1))
}
