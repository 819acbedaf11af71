/** How a single turn of the model is drawn, where its agent, its environment or its example asks for it. */
import { InputError, show } from '../base/errors.ts'
import type { TurnSampling } from '../environments/text.ts'
import { StopStrings } from './tokenizers/stop-strings.ts'
import type { Tokenizer } from './tokenizers/tokenizer.ts'
import { checkSampling, type Sampling } from './transformer/sampling.ts'

/** The distribution that a turn's tokens are drawn from, and the texts that end it beside its end tokens. */
export interface TurnDrawing {
  readonly sampling: Sampling
  readonly stopStrings: readonly string[]
  /** False where that is another distribution than the cohort's, which is what a training learns: nothing is learned of the turn. */
  readonly isLearned: boolean
}

/**
 * How a turn is drawn of which `given` is told; what is not given is the cohort's.
 * @throws InputError for a name that is none, and as `checkSampling` and `StopStrings` do.
 */
export function turnDrawing(
  given: TurnSampling,
  own: Pick<TurnDrawing, 'sampling' | 'stopStrings'>,
  tokenizer: Tokenizer,
): TurnDrawing {
  if (typeof given !== 'object' || given === null) {
    throw new InputError('sampling of a turn', show(given), 'an object, like { temperature: 0.7 }')
  }
  const { stopStrings = own.stopStrings, ...others } = given
  const told = Object.fromEntries(Object.entries(others).filter(([, value]) => value !== undefined))
  const sampling = checkSampling({ ...own.sampling, ...told })
  new StopStrings(tokenizer, stopStrings) // Refuses what are none.
  const isLearned = Object.entries(sampling).every(([name, value]) => value === own.sampling[name as keyof Sampling])
  return { sampling, stopStrings: [...stopStrings], isLearned }
}
