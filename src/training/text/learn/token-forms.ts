/**
 * Recomputes, from the recorded tokens, which tokens constrained turns allowed and how logits were changed. Equal masks are stored
 * once; all memory is shared by the threads.
 */

import { InputError } from '../../../base/errors.ts'
import { sharedBytes } from '../../../base/shared.ts'
import type { LogitChanges } from '../../../environments/text.ts'
import { type Grammars, grammarsOf, type Matcher } from '../../../language/grammars/grammars.ts'
import type { Tokenizer } from '../../../language/tokenizers/tokenizer.ts'
import type { TransformerModel } from '../../../language/transformer/model.ts'
import type { TokenChanges, TokenMasks } from '../../../language/transformer/packed.ts'
import type { TrajectoryRows } from '../../../tables/trajectories/trajectories.ts'
import { isOfModel } from '../../../tables/trajectories/trajectory.ts'

/** The columns from which they are recomputed. */
type FormRows = Pick<
  TrajectoryRows,
  'begin' | 'end' | 'token' | 'turn' | 'lossMask' | 'version' | 'forms' | 'group' | 'member'
>

/** The input of `packBatch` for turns with constraints and changed logits; null if no turn has any. */
export interface TokenForms {
  readonly masks: TokenMasks | null
  readonly changes: TokenChanges | null
}

/**
 * The masks and changes of the rows' tokens. `cohort` has the tokenizer and the model that sampled the tokens, null if unknown.
 * @throws InputError if constrained turns have no tokenizer, a constraint cannot be enforced, or a token violates its constraint.
 */
export function tokenForms(
  rows: FormRows,
  cohort: { readonly tokenizer: Tokenizer; readonly model: TransformerModel } | null,
): TokenForms {
  const { begin, end, token, turn, lossMask, version, forms } = rows
  if (forms.every(({ length }) => length === 0)) return { masks: null, changes: null }
  if (cohort === null) throw new InputError('trajectories', 'constrained turns, and no tokenizer', 'a world with one')
  const grammars: Grammars = grammarsOf(cohort.tokenizer, cohort.model.shape.vocabularySize)
  const masks = new Masks(grammars, token.length)
  const changed = new Changes(token.length)
  for (const [row, ofRow] of forms.entries()) {
    for (const form of ofRow) {
      const { constraint, changes = {} } = form
      const { minTokens = 0 } = changes
      const matcher = constraint === undefined ? null : grammars.matcherOf(constraint)
      const answer: number[] = []
      for (let t = begin[row]!; t < end[row]!; t++) {
        if (turn[t] === form.turn && isOfModel(lossMask, version, t)) answer.push(t)
      }
      changed.add(changes, answer)
      for (const [said, t] of answer.entries()) {
        if (masks.add(t, token[t]!, matcher, said < minTokens)) continue
        const subject = `trajectory of group ${rows.group[row]}, member ${rows.member[row]}, token ${t - begin[row]!}`
        throw new InputError(subject, `id ${token[t]}`, `a token that the constraint of turn ${form.turn} allows`)
      }
    }
  }
  return { masks: masks.columns(), changes: changed.columns() }
}

class Masks {
  readonly #grammars: Grammars
  readonly #index: Int32Array
  /** Each mask and its number. */
  readonly #masks = new Map<Int32Array, number>()

  constructor(grammars: Grammars, numTokens: number) {
    this.#grammars = grammars
    this.#index = sharedIntegers(numTokens).fill(-1)
  }

  /** Notes the mask of token t, which has this id; `isEarly` if it may not end the turn. Returns false if the id is not allowed. */
  add(t: number, id: number, matcher: Matcher | null, isEarly: boolean): boolean {
    if (matcher === null && !isEarly) return true
    const allowed = matcher === null ? this.#grammars.all : matcher.next()
    if (allowed === null || matcher?.accept(id) === false) return false
    const mask = isEarly ? this.#grammars.withoutEnds(allowed) : allowed
    if (((mask[id >> 5]! >>> (id & 31)) & 1) === 0) return false
    const number = this.#masks.get(mask) ?? this.#masks.size
    this.#masks.set(mask, number)
    this.#index[t] = number
    return true
  }

  columns(): TokenMasks | null {
    if (this.#masks.size === 0) return null
    const { numWords } = this.#grammars
    const words = sharedIntegers(this.#masks.size * numWords)
    for (const [mask, number] of this.#masks) words.set(mask, number * numWords)
    return { index: this.#index, words }
  }
}

class Changes {
  readonly #index: Int32Array
  readonly #answer: Int32Array
  readonly #turns: LogitChanges[] = []

  constructor(numTokens: number) {
    this.#index = sharedIntegers(numTokens).fill(-1)
    this.#answer = sharedIntegers(numTokens)
  }

  /** Notes the changes of the tokens of an answer. */
  add(changes: LogitChanges, answer: readonly number[]): void {
    const { minTokens: _, ...others } = changes
    if (Object.keys(others).length === 0) return
    for (const t of answer) {
      this.#index[t] = this.#turns.length
      this.#answer[t] = answer[0]!
    }
    this.#turns.push(changes)
  }

  columns(): TokenChanges | null {
    const turns = this.#turns
    if (turns.length === 0) return null
    const biases = turns.map(({ bias = {} }) => Object.entries(bias))
    let numBiases = 0
    const biasEnd = biases.map(({ length }) => (numBiases += length))
    return {
      ...{ index: this.#index, answer: this.#answer },
      turns: {
        repetition: sharedNumbers(turns.map(({ repetition = 1 }) => repetition)),
        frequency: sharedNumbers(turns.map(({ frequency = 0 }) => frequency)),
        presence: sharedNumbers(turns.map(({ presence = 0 }) => presence)),
        biasBegin: sharedIntegers([0, ...biasEnd.slice(0, -1)]),
        biasEnd: sharedIntegers(biasEnd),
        biasId: sharedIntegers(biases.flatMap((each) => each.map(([id]) => Number(id)))),
        bias: sharedNumbers(biases.flatMap((each) => each.map(([, value]) => value))),
      },
    }
  }
}

function sharedIntegers(given: number | readonly number[]): Int32Array<SharedArrayBuffer> {
  const length = typeof given === 'number' ? given : given.length
  const column = new Int32Array(sharedBytes(length * Int32Array.BYTES_PER_ELEMENT))
  if (typeof given !== 'number') column.set(given)
  return column
}

function sharedNumbers(values: readonly number[]): Float32Array {
  const column = new Float32Array(sharedBytes(values.length * Float32Array.BYTES_PER_ELEMENT))
  column.set(values)
  return column
}
