import { checkGiven, InputError, show } from '../../base/errors.ts'
import type { TransformerModel } from '../transformer/model.ts'
import type { Tokenizer } from './tokenizer.ts'

/**
 * Checks that a tokenizer fits a model. A model may have more tokens than its tokenizer, since vocabularies are padded
 * to round sizes, but not fewer.
 * @throws InputError if the model has no embedding for some of the tokenizer's ids, or if the tokenizer knows none of
 * the end ids in the model's configuration: its turns would never end.
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
