/**
 * Recomputes the masks of constrained tokens from the constraints and tokens of trajectories. Equal masks are stored
 * once, in memory that all threads share.
 */
import { InputError } from '../../../base/errors.ts'
import { type Grammars, grammarsOf } from '../../../language/grammars/grammars.ts'
import type { Tokenizer } from '../../../language/tokenizers/tokenizer.ts'
import type { TransformerModel } from '../../../language/transformer/model.ts'
import type { TokenMasks } from '../../../language/transformer/packed.ts'
import type { TrajectoryRows } from '../../../tables/trajectories/trajectories.ts'
import { isOfModel } from '../../../tables/trajectories/trajectory.ts'

/** The columns needed for the masks. */
type FormRows = Pick<
  TrajectoryRows,
  'begin' | 'end' | 'token' | 'turn' | 'lossMask' | 'version' | 'forms' | 'group' | 'member'
>

/**
 * The masks of the rows' tokens; null if no turn is constrained. `cohort` has the tokenizer and the model that sampled
 * the tokens, null if unknown.
 * @throws InputError if constrained turns have no tokenizer, a constraint cannot be enforced, or a token violates its
 * constraint.
 */
export function formMasks(
  rows: FormRows,
  cohort: { readonly tokenizer: Tokenizer; readonly model: TransformerModel } | null,
): TokenMasks | null {
  const { begin, end, token, turn, lossMask, version, forms } = rows
  if (forms.every(({ length }) => length === 0)) return null
  if (cohort === null) throw new InputError('trajectories', 'constrained turns, and no tokenizer', 'a world with one')
  const grammars: Grammars = grammarsOf(cohort.tokenizer, cohort.model.shape.vocabularySize)
  const index = shared(token.length).fill(-1)
  const masks = new Map<Int32Array, number>()
  for (const [row, ofRow] of forms.entries()) {
    for (const form of ofRow) {
      const matcher = grammars.matcherOf(form.constraint)
      for (let t = begin[row]!; t < end[row]!; t++) {
        if (turn[t] !== form.turn || !isOfModel(lossMask, version, t)) continue
        const mask = matcher.next()
        if (mask === null || !matcher.accept(token[t]!)) {
          const subject = `trajectory of group ${rows.group[row]}, member ${rows.member[row]}, token ${t - begin[row]!}`
          throw new InputError(subject, `id ${token[t]}`, `a token that the constraint of turn ${form.turn} allows`)
        }
        const known = masks.get(mask) ?? masks.size
        masks.set(mask, known)
        index[t] = known
      }
    }
  }
  const words = shared(masks.size * grammars.numWords)
  for (const [mask, number] of masks) words.set(mask, number * grammars.numWords)
  return { index, words }
}

function shared(length: number): Int32Array {
  return new Int32Array(new SharedArrayBuffer(length * Int32Array.BYTES_PER_ELEMENT))
}
