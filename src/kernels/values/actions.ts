/** Values of actions: numActions per row, from row 0 on. In the cohort's columns the rows begin at `from`. */

/**
 * Chooses the action with the highest value (the first of equals) or, with probability `exploration`, a random legal
 * action. Writes the log-probability of the choice under this mixture (nats), and the action's value. `draws` has two
 * uniform numbers per row; illegal actions have the value −10⁹.
 */
export function chooseByValue(
  chosen: Int32Array,
  logprob: Float32Array,
  value: Float32Array,
  values: Float32Array,
  draws: Float32Array,
  exploration: number,
  numRows: number,
  numActions: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * numActions
    const best = bestOf(values, at, numActions)
    const legal = countLegal(values, at, numActions)
    let action = best
    if (draws[2 * row]! < exploration) {
      let left = Math.floor(draws[2 * row + 1]! * legal)
      for (action = 0; !isLegal(values[at + action]!) || left > 0; action++) if (isLegal(values[at + action]!)) left--
    }
    chosen[from + row] = action
    value[from + row] = values[at + action]!
    logprob[from + row] = Math.log((action === best ? 1 - exploration : 0) + exploration / legal)
  }
}

/**
 * Writes the outputs of `chooseByValue` for given actions, and the entropy of the choice, in nats; all from row 0 on.
 */
export function evaluateByValue(
  logprob: Float32Array,
  entropy: Float32Array,
  value: Float32Array,
  action: Int32Array,
  values: Float32Array,
  exploration: number,
  numRows: number,
  numActions: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    const at = row * numActions
    const legal = countLegal(values, at, numActions)
    const each = exploration / legal
    const best = 1 - exploration + each
    const chosen = action[from + row]!
    value[row] = values[at + chosen]!
    logprob[row] = Math.log((chosen === bestOf(values, at, numActions) ? 1 - exploration : 0) + each)
    entropy[row] = -(best * Math.log(best)) - (each > 0 ? (legal - 1) * each * Math.log(each) : 0)
  }
}

/** chosen[from + row] = the element of `values` at the action with the highest element of `judged`; both may be one column. */
export function valueOfBest(
  chosen: Float32Array,
  values: Float32Array,
  judged: Float32Array,
  numRows: number,
  numActions: number,
  from: number,
): void {
  for (let row = 0; row < numRows; row++) {
    chosen[from + row] = values[row * numActions + bestOf(judged, row * numActions, numActions)]!
  }
}

/**
 * Values from a dueling network's outputs (Wang, Schaul, Hessel, van Hasselt, Lanctot, de Freitas 2016, equation 9):
 * numActions advantages A and the state's value V per row; Q = V + A − mean(A).
 */
export function duelingForward(values: Float32Array, outputs: Float32Array, numRows: number, numActions: number): void {
  const width = numActions + 1
  for (let row = 0; row < numRows; row++) {
    let sum = 0
    for (let a = 0; a < numActions; a++) sum += outputs[row * width + a]!
    const shift = outputs[row * width + numActions]! - sum / numActions
    for (let a = 0; a < numActions; a++) values[row * numActions + a] = outputs[row * width + a]! + shift
  }
}

/**
 * The gradient by a network's outputs from the gradient by the value of the chosen action. With `isDueling` the outputs
 * are the inputs of `duelingForward`, otherwise the values themselves.
 */
export function chosenBackward(
  dOutputs: Float32Array,
  dValue: Float32Array,
  action: Int32Array,
  isDueling: boolean,
  numRows: number,
  numActions: number,
  from: number,
): void {
  const width = isDueling ? numActions + 1 : numActions
  for (let row = 0; row < numRows; row++) {
    const at = row * width
    const d = dValue[row]!
    for (let a = 0; a < numActions; a++) dOutputs[at + a] = isDueling ? -d / numActions : 0
    const chosen = at + action[from + row]!
    dOutputs[chosen] = dOutputs[chosen]! + d
    if (isDueling) dOutputs[at + numActions] = d
  }
}

const ILLEGAL = -1e9

function isLegal(value: number): boolean {
  return value > ILLEGAL
}

function bestOf(values: Float32Array, at: number, numActions: number): number {
  let best = 0
  for (let a = 1; a < numActions; a++) if (values[at + a]! > values[at + best]!) best = a
  return best
}

function countLegal(values: Float32Array, at: number, numActions: number): number {
  let count = 0
  for (let a = 0; a < numActions; a++) if (isLegal(values[at + a]!)) count++
  return count
}
