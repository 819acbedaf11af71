/**
 * Candidate sets: the tokens that may follow a row, as a run of ids in ascending order. All other logits become so low
 * that their exponentials are exactly 0 in every build. So every kernel over the vocabulary computes the distribution
 * that is renormalized over the candidate set.
 */

/** What z becomes outside the candidate set. */
const EXCLUDED = -1e9

/**
 * Applies the filters in this order, each to the distribution that the previous filter left: the `topK` most probable
 * tokens (0: all), the fewest most probable tokens whose total probability is `topP` (Holtzman et al. 2020; 1: all),
 * and tokens with at least `minP` of the highest probability (Nguyen et al. 2024; 0: all). Of equal logits the
 * lower id comes first. `max` and `sum` are those of `sumVocabulary` over the whole rows of logits (numRows × vocabularySize).
 *
 * Row i's ids are candidates[offset[i]] to candidates[offset[i + 1]]; `candidates` has room for numRows × vocabularySize. The
 * number of operations per row is, on average, proportional to the vocabulary.
 */
export function selectCandidates(
  candidates: Int32Array,
  offset: Int32Array,
  logits: Float32Array,
  max: Float32Array,
  sum: Float32Array,
  inverseTemperature: number,
  topK: number,
  topP: number,
  minP: number,
  numRows: number,
  vocabularySize: number,
): void {
  offset[0] = 0
  for (let row = 0; row < numRows; row++) {
    const at = row * vocabularySize
    const m = max[row]!
    const begin = offset[row]!
    let end = begin
    if (topK > 0 && topK < vocabularySize) {
      // Tokens that a mask excluded are not candidates, even if fewer than topK tokens are left.
      for (let id = 0; id < vocabularySize; id++) {
        if (logits[at + id]! * inverseTemperature > EXCLUDED / 2) candidates[end++] = id
      }
      end = selectFirst(candidates, begin, end, logits, row, vocabularySize, inverseTemperature, max, topK, null, 1)
    } else {
      // All tokens below this probability have less than 1 − topP together, so none of them is needed for topP.
      const share = Math.log((sum[row]! * (1 - topP)) / vocabularySize)
      const lowest = Math.max(topP < 1 ? share : Number.NEGATIVE_INFINITY, Math.log(minP)) - 0.01
      for (let id = 0; id < vocabularySize; id++) {
        if (Math.fround(logits[at + id]! * inverseTemperature) - m >= lowest) candidates[end++] = id
      }
    }
    if (topP < 1) {
      const whole = topK > 0 && topK < vocabularySize ? null : sum
      end = selectFirst(candidates, begin, end, logits, row, vocabularySize, inverseTemperature, max, 0, whole, topP)
    }
    if (minP > 0) {
      const last = end
      end = begin
      for (let i = begin; i < last; i++) {
        const id = candidates[i]!
        if (exponential(logits[at + id]!, inverseTemperature, m) >= minP) candidates[end++] = id
      }
    }
    sortIds(candidates, begin, end)
    offset[row + 1] = end
  }
}

/**
 * Excludes what is not in the candidate set from a chunk of logits (numRows × count, the tokens `firstToken` to `firstToken` +
 * count): row i's ids, in ascending order, are candidates[begin[i]] to candidates[end[i]]; an empty list means that all tokens are in the set.
 */
export function restrictVocabulary(
  logits: Float32Array,
  candidates: Int32Array,
  begin: Int32Array,
  end: Int32Array,
  inverseTemperature: number,
  numRows: number,
  firstToken: number,
  count: number,
): void {
  const excluded = EXCLUDED / inverseTemperature
  for (let row = 0; row < numRows; row++) {
    if (begin[row] === end[row]) continue
    const first = row * count - firstToken
    let from = row * count
    for (let i = firstNotBelow(candidates, begin[row]!, end[row]!, firstToken); i < end[row]!; i++) {
      if (candidates[i]! >= firstToken + count) break
      const until = first + candidates[i]!
      // Element by element: most of these stretches are short, and `fill` would box the number at each call.
      for (; from < until; from++) logits[from] = excluded
      from++
    }
    for (; from < (row + 1) * count; from++) logits[from] = excluded
  }
}

/**
 * Excludes the tokens whose bit is 0 from a chunk of logits, as `restrictVocabulary` does. Row i uses mask index[i], or none if that is
 * −1. Mask k is the words k · numWords to (k + 1) · numWords of `masks`; the lowest bit comes first.
 */
export function maskVocabulary(
  logits: Float32Array,
  masks: Int32Array,
  index: Int32Array,
  inverseTemperature: number,
  numRows: number,
  firstToken: number,
  count: number,
  numWords: number,
): void {
  const excluded = EXCLUDED / inverseTemperature
  for (let row = 0; row < numRows; row++) {
    const mask = index[row]!
    if (mask < 0) continue
    const at = row * count - firstToken
    const end = firstToken + count
    for (let id = firstToken; id < end; ) {
      const word = masks[mask * numWords + (id >> 5)]!
      const next = Math.min((id & ~31) + 32, end)
      if (word === -1) id = next
      else for (; id < next; id++) if (((word >>> (id & 31)) & 1) === 0) logits[at + id] = excluded
    }
  }
}

function exponential(logit: number, inverseTemperature: number, max: number): number {
  return Math.exp(Math.fround(logit * inverseTemperature) - max)
}

/**
 * Brings the first `topK` ids to the beginning of ids[from, to), and returns their end; or, if topK is 0, of the fewest
 * first ids whose exponentials sum to the fraction `topP` of the whole sum (sum[row], or computed here). Ids are
 * ordered by descending logit, then by ascending id. (Hoare's selection, 1961.) The function takes columns and the row,
 * because a number from the column would be boxed.
 */
function selectFirst(
  ids: Int32Array,
  from: number,
  to: number,
  logits: Float32Array,
  row: number,
  vocabularySize: number,
  inverseTemperature: number,
  max: Float32Array,
  topK: number,
  sum: Float32Array | null,
  topP: number,
): number {
  const at = row * vocabularySize
  const m = max[row]!
  const byMass = topK === 0
  let total = sum === null ? 0 : sum[row]!
  if (byMass && sum === null) {
    for (let i = from; i < to; i++) total += exponential(logits[at + ids[i]!]!, inverseTemperature, m)
  }
  // `+` tells V8 that it is a number: a value of unknown type would be boxed in each iteration.
  let left = byMass ? topP * total : +topK
  while (to - from > 1) {
    // The median of three as pivot, kept at the end meanwhile.
    const a = ids[from]!
    const b = ids[(from + to) >> 1]!
    const c = ids[to - 1]!
    const isFirst = comesFirst(logits, at, a, b)
    const isMiddle = comesFirst(logits, at, b, c) === isFirst
    const middle = isMiddle ? (from + to) >> 1 : comesFirst(logits, at, a, c) === isFirst ? to - 1 : from
    const pivot = ids[middle]!
    ids[middle] = ids[to - 1]!
    let place = from
    let weight = 0
    for (let i = from; i < to - 1; i++) {
      const id = ids[i]!
      if (!comesFirst(logits, at, id, pivot)) continue
      weight += byMass ? exponential(logits[at + id]!, inverseTemperature, m) : 1
      ids[i] = ids[place]!
      ids[place++] = id
    }
    ids[to - 1] = ids[place]!
    ids[place] = pivot
    if (weight >= left) {
      to = place
      continue
    }
    left -= weight + (byMass ? exponential(logits[at + pivot]!, inverseTemperature, m) : 1)
    from = place + 1
    if (left <= 0) return from
  }
  return to
}

function comesFirst(logits: Float32Array, at: number, a: number, b: number): boolean {
  const x = logits[at + a]!
  const y = logits[at + b]!
  return x > y || (x === y && a < b)
}

/** Sorts ids[from, to) in ascending order, in place, without a view, which would be an object per row. (Williams's heapsort, 1964.) */
function sortIds(ids: Int32Array, from: number, to: number): void {
  const count = to - from
  for (let root = (count >> 1) - 1; root >= 0; root--) sink(ids, from, root, count)
  for (let last = count - 1; last > 0; last--) {
    const largest = ids[from]!
    ids[from] = ids[from + last]!
    ids[from + last] = largest
    sink(ids, from, 0, last)
  }
}

/** Sifts the id at `root` down in the heap ids[from, from + count). */
function sink(ids: Int32Array, from: number, root: number, count: number): void {
  const id = ids[from + root]!
  let at = root
  for (let child = 2 * at + 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && ids[from + child]! < ids[from + child + 1]!) child++
    if (ids[from + child]! <= id) break
    ids[from + at] = ids[from + child]!
    at = child
  }
  ids[from + at] = id
}

/** The place of the first of ids[from, to), in ascending order, that is not below `id`; `to` if all are below. */
function firstNotBelow(ids: Int32Array, from: number, to: number, id: number): number {
  while (from < to) {
    const middle = (from + to) >> 1
    if (ids[middle]! < id) from = middle + 1
    else to = middle
  }
  return from
}
