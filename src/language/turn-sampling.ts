/** How a single turn is drawn, if its agent, its environment or its example sets that. */
import { InputError, show } from '../base/errors.ts'
import type { TurnSampling } from '../environments/text.ts'
import { StopStrings } from './tokenizers/stop-strings.ts'
import type { Tokenizer } from './tokenizers/tokenizer.ts'
import { checkSampling, type Sampling } from './transformer/sampling.ts'

/** The distribution of a turn's tokens, and its stop strings. */
export interface TurnDrawing {
  readonly sampling: Sampling
  readonly stopStrings: readonly string[]
  /** False if the distribution differs from the cohort's, which training uses: the turn is not learned. */
  readonly isLearned: boolean
}

/** How a turn is drawn, by `given` or the cohort. @throws InputError as `checkSampling` and `StopStrings` do. */
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
  new StopStrings(tokenizer, stopStrings) // Refuses invalid ones.
  const isLearned = Object.entries(sampling).every(([name, value]) => value === own.sampling[name as keyof Sampling])
  return { sampling, stopStrings: [...stopStrings], isLearned }
}
