/**
 * Mixtures of experts: chooses the experts of a row and the weights of their outputs. A row's result does not depend on
 * other rows: its experts are added in the order of their indices.
 */

/**
 * Turns `probability` (count × numExperts) from logits into probabilities, and chooses the `numChosen` most probable experts of each row;
 * ties go to the lower index. `chosen` (count × numChosen) has their indices in rising order; `share` their probabilities, divided by
 * their sum if `normalized`.
 */
export function chooseExperts(
  share: Float32Array,
  chosen: Int32Array,
  probability: Float32Array,
  count: number,
  numExperts: number,
  numChosen: number,
  normalized: boolean,
): void {
  for (let row = 0; row < count; row++) {
    const from = row * numExperts
    const at = row * numChosen
    let max = -Infinity
    for (let e = 0; e < numExperts; e++) max = Math.max(max, probability[from + e]!)
    let sum = 0
    for (let e = 0; e < numExperts; e++) sum += Math.exp(probability[from + e]! - max)
    for (let e = 0; e < numExperts; e++) probability[from + e] = Math.exp(probability[from + e]! - max) / sum
    for (let j = 0; j < numChosen; j++) {
      // Rows with NaN stay NaN, and get the first experts.
      let best = j
      let most = -1
      for (let e = 0; e < numExperts; e++) {
        if (!(probability[from + e]! > most) || isAmong(chosen, at, j, e)) continue
        best = e
        most = probability[from + e]!
      }
      chosen[at + j] = best
    }
    let total = 0
    for (let j = 0; j < numChosen; j++) {
      const each = chosen[at + j]!
      let i = j
      for (; i > 0 && chosen[at + i - 1]! > each; i--) chosen[at + i] = chosen[at + i - 1]!
      chosen[at + i] = each
    }
    for (let j = 0; j < numChosen; j++) total += probability[from + chosen[at + j]!]!
    for (let j = 0; j < numChosen; j++) share[at + j] = probability[from + chosen[at + j]!]! / (normalized ? total : 1)
  }
}

function isAmong(chosen: Int32Array, from: number, length: number, expert: number): boolean {
  for (let i = 0; i < length; i++) if (chosen[from + i] === expert) return true
  return false
}

/**
 * Lists the places of `chosen` (count × numChosen) by expert, each expert's in ascending order: expert e has `place`
 * and `row` from begin[e] to begin[e + 1].
 */
export function listByExpert(
  place: Uint32Array,
  row: Uint32Array,
  begin: Int32Array,
  chosen: Int32Array,
  count: number,
  numExperts: number,
  numChosen: number,
): void {
  begin.fill(0, 0, numExperts + 1)
  const length = count * numChosen
  for (let i = 0; i < length; i++) begin[chosen[i]! + 1] = begin[chosen[i]! + 1]! + 1
  for (let e = 0; e < numExperts; e++) begin[e + 1] = begin[e + 1]! + begin[e]!
  for (let i = 0; i < length; i++) {
    const at = begin[chosen[i]!]!
    begin[chosen[i]!] = at + 1
    place[at] = i
    row[at] = Math.floor(i / numChosen)
  }
  for (let e = numExperts; e > 0; e--) begin[e] = begin[e - 1]!
  begin[0] = 0
}

/** y[row[i]] += share[place[i]] · x[i − first] for i from `first` on, `count` rows of `width` elements. */
export function addShares(
  y: Float32Array,
  x: Float32Array,
  share: Float32Array,
  place: Uint32Array,
  row: Uint32Array,
  first: number,
  count: number,
  width: number,
): void {
  for (let i = 0; i < count; i++) {
    const to = row[first + i]! * width
    const by = share[place[first + i]!]!
    for (let k = 0; k < width; k++) y[to + k] = y[to + k]! + Math.fround(by * x[i * width + k]!)
  }
}

/**
 * Backpropagates `addShares` through an expert's last product. In `dx` (count × inner) is the gradient by that product's input x as if the
 * share were 1; dShare[place] becomes dx · x, and then `dx` and `dy` (count × width) are multiplied by the share.
 */
export function addSharesBackward(
  dShare: Float32Array,
  dx: Float32Array,
  dy: Float32Array,
  x: Float32Array,
  share: Float32Array,
  place: Uint32Array,
  first: number,
  count: number,
  inner: number,
  width: number,
): void {
  for (let i = 0; i < count; i++) {
    const at = place[first + i]!
    const by = share[at]!
    let sum = 0
    for (let k = i * inner; k < (i + 1) * inner; k++) {
      sum += dx[k]! * x[k]!
      dx[k] = by * dx[k]!
    }
    for (let k = i * width; k < (i + 1) * width; k++) dy[k] = by * dy[k]!
    dShare[at] = sum
  }
}

/**
 * Backpropagates `chooseExperts`: turns `probability` into the gradient by the logits. The choice itself has no gradient. `pull` has
 * further derivatives by the probabilities, alike for all rows of a sequence, which has them at its first row (numExperts each); empty:
 * none. `first` is each row's.
 */
export function chooseExpertsBackward(
  probability: Float32Array,
  dShare: Float32Array,
  share: Float32Array,
  chosen: Int32Array,
  pull: Float32Array,
  first: Int32Array,
  count: number,
  numExperts: number,
  numChosen: number,
  normalized: boolean,
): void {
  const hasPull = pull.length > 0
  for (let row = 0; row < count; row++) {
    const from = row * numExperts
    const at = row * numChosen
    const pulledFrom = hasPull ? first[row]! * numExperts : 0
    let total = 1
    let mean = 0
    if (normalized) {
      total = 0
      for (let j = 0; j < numChosen; j++) {
        total += probability[from + chosen[at + j]!]!
        mean += dShare[at + j]! * share[at + j]!
      }
    }
    /** Σ p · dp over all experts; without a pull, dp is 0 for those not chosen. */
    let weighted = 0
    for (let j = 0; j < numChosen; j++) {
      weighted += (probability[from + chosen[at + j]!]! * (dShare[at + j]! - mean)) / total
    }
    if (hasPull) for (let e = 0; e < numExperts; e++) weighted += probability[from + e]! * pull[pulledFrom + e]!
    let next = 0
    for (let e = 0; e < numExperts; e++) {
      const isChosen = next < numChosen && chosen[at + next] === e
      const byShare = isChosen ? (dShare[at + next]! - mean) / total : 0
      const dp = hasPull ? byShare + pull[pulledFrom + e]! : byShare
      if (isChosen) next++
      probability[from + e] = probability[from + e]! * (dp - weighted)
    }
  }
}

/**
 * Counts the choices of a layer by sequence, and sums its probabilities: both have numExperts numbers at each sequence's first row, and
 * zeros before the first layer. `first` is each row's.
 */
export function addLoad(
  load: Float32Array,
  routed: Float32Array,
  chosen: Int32Array,
  probability: Float32Array,
  first: Int32Array,
  count: number,
  numExperts: number,
  numChosen: number,
): void {
  for (let row = 0; row < count; row++) {
    const at = first[row]! * numExperts
    for (let e = 0; e < numExperts; e++) routed[at + e] = routed[at + e]! + probability[row * numExperts + e]!
    for (let j = 0; j < numChosen; j++) {
      const to = at + chosen[row * numChosen + j]!
      load[to] = load[to]! + 1
    }
  }
}

/** Turns `x` into 1 / (1 + e⁻ˣ). */
export function sigmoidForward(x: Float32Array, length: number): void {
  for (let i = 0; i < length; i++) x[i] = 1 / (1 + Math.exp(-x[i]!))
}

/** Turns `dy` into the gradient by the sigmoid's input, from its output y. */
export function sigmoidBackward(dy: Float32Array, y: Float32Array, length: number): void {
  for (let i = 0; i < length; i++) dy[i] = dy[i]! * y[i]! * (1 - y[i]!)
}
