import { checkGiven, InputError, show } from '../../base/errors.ts'
import type { TransformerModel } from '../transformer/model.ts'
import type { Tokenizer } from './tokenizer.ts'

/**
 * Sees that a tokenizer and a model fit. A model may have more tokens than its tokenizer (vocabularies are padded to round
 * sizes), but not fewer.
 * @throws InputError where the tokenizer has ids that the model has no embedding for, or where the model's configuration
 * names end ids of which the tokenizer knows none: its turns would never end.
 */
export function checkTokenizer(tokenizer: Tokenizer, given: TransformerModel): void {
  checkGiven('tokenizer of checkTokenizer', tokenizer, ['encode', 'decode'])
  checkGiven('model of checkTokenizer', given, ['shape', 'config'])
  const { shape, config } = given
  const { vocabularySize, endIds } = tokenizer
  if (vocabularySize > shape.vocabularySize) {
    const expected = `ids below the ${shape.vocabularySize} tokens of the model`
    throw new InputError(`tokenizer ${tokenizer.id}`, `ids up to ${vocabularySize - 1}`, expected)
  }
  const ends = [config.eos_token_id ?? []].flat() as number[]
  if (ends.length > 0 && !ends.some((id) => endIds.includes(id))) {
    throw new InputError(`tokenizer ${tokenizer.id}`, `end ids ${show(endIds)}`, `one of the model's, ${show(ends)}`)
  }
}
