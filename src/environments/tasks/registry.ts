/** The built-in text environments. */
import { byId } from '../../base/errors.ts'
import type { TextEnvironmentFactory } from '../text.ts'
import { arithmetic1, arithmetic2 } from './arithmetic.ts'
import { countdown } from './countdown.ts'
import { guessNumber } from './guess-number.ts'
import { mathMultiTurn } from './math-multi-turn.ts'
import { copy, reverse, sort } from './sequences.ts'
import { toolArithmetic } from './tool-arithmetic.ts'

export type TextTaskId =
  | 'text/reverse'
  | 'text/copy'
  | 'text/sort'
  | 'text/arithmetic-1'
  | 'text/arithmetic-2'
  | 'text/countdown'
  | 'text/guess-number'
  | 'text/math-multi-turn'
  | 'text/tool-arithmetic'

/** Every built-in text environment's factory. */
export const textEnvironments: readonly TextEnvironmentFactory[] = [
  reverse,
  copy,
  sort,
  arithmetic1,
  arithmetic2,
  countdown,
  guessNumber,
  mathMultiTurn,
  toolArithmetic,
] as unknown as TextEnvironmentFactory[]

/** Returns the factory of a built-in text environment. @throws InputError with the nearest id. */
export function textEnvironmentFactory(id: string): TextEnvironmentFactory {
  return byId('text environment', textEnvironments, id)
}
