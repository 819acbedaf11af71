/**
 * Rows drawn by priority (Schaul, Quan, Antonoglou, Silver 2016, "Prioritized Experience Replay"). `tree` is a sum tree of
 * 2 · leaves elements, leaves a power of two: element 1 is the sum of all priorities, element leaves + r that of row r. A row of
 * priority 0 is never drawn.
 */
import { philox4x32, Stream, unitFromWord } from '../../base/random.ts'

/** Added to errors, so that a row with error 0 can be drawn again. */
const LEAST_ERROR = 1e-6

/** Turns `count` absolute errors into priorities, error^exponent (§ 3.3 there). Returns the highest of them and of `highest`. */
export function prioritiesOfErrors(error: Float32Array, exponent: number, highest: number, count: number): number {
  let found = highest
  for (let i = 0; i < count; i++) {
    error[i] = Math.exp(exponent * Math.log(error[i]! + LEAST_ERROR))
    found = Math.max(found, error[i]!)
  }
  return found
}

/** Gives rows[i] the priority priority[i], for i < count. Returns the change in the number of rows with a priority above 0. */
export function setPriorities(tree: Float64Array, rows: Uint32Array, priority: Float32Array, count: number): number {
  const leaves = tree.length / 2
  let added = 0
  for (let i = 0; i < count; i++) {
    let node = leaves + rows[i]!
    if (tree[node]! > 0) added--
    if (priority[i]! > 0) added++
    tree[node] = priority[i]!
    for (node >>= 1; node >= 1; node >>= 1) tree[node] = tree[2 * node]! + tree[2 * node + 1]!
  }
  return added
}

/**
 * Draws `count` rows, each from its own stretch of the sum (§ 3.3 there), keyed by (seed, step). weight[i] = (N · P(i))^−correction
 * over the largest of the draw (§ 3.4 there), N = `numRows` rows of a priority above 0. `words` (4) is workspace.
 */
export function drawByPriority(
  rows: Uint32Array,
  weight: Float32Array,
  tree: Float64Array,
  words: Uint32Array,
  numRows: number,
  correction: number,
  count: number,
  step: number,
  key0: number,
  key1: number,
): void {
  const leaves = tree.length / 2
  const sum = tree[1]!
  let largest = 0
  for (let i = 0; i < count; i++) {
    if (i % 4 === 0) philox4x32(words, i / 4, step, 0, Stream.replay, key0, key1)
    let left = ((i + unitFromWord(words[i % 4]!)) / count) * sum
    let node = 1
    while (node < leaves) {
      node *= 2
      // Even with rounding errors the walk ends at a row with a priority above 0.
      if ((left < tree[node]! && tree[node]! > 0) || tree[node + 1] === 0) continue
      left -= tree[node]!
      node++
    }
    rows[i] = node - leaves
    weight[i] = correction === 0 ? 1 : Math.exp(-correction * Math.log((numRows * tree[node]!) / sum))
    largest = Math.max(largest, weight[i]!)
  }
  for (let i = 0; i < count; i++) weight[i] = weight[i]! / largest
}
