import { expect, test } from 'vitest'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
import { checkTokenizer } from '../../src/language/tokenizers/check-tokenizer.ts'
import { transformer } from '../../src/language/transformer/model.ts'

const model = (entries: object) =>
  transformer({
    model_type: 'llama',
    vocab_size: 263,
    hidden_size: 8,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    intermediate_size: 8,
    max_position_embeddings: 16,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    ...entries,
  })

test('a model with the tokens of its tokenizer, or more, fits', () => {
  checkTokenizer(byteTokenizer(), model({}))
  checkTokenizer(byteTokenizer(), model({ vocab_size: 320, eos_token_id: 257 }))
  checkTokenizer(byteTokenizer(), model({ eos_token_id: [2, 257] }))
})

test('ids that the model has no embedding for are refused', () => {
  expect(() => checkTokenizer(byteTokenizer(), model({ vocab_size: 262 }))).toThrow(
    /tokenizer bytes: got ids up to 262, expected ids below the 262 tokens of the model/,
  )
})

test('a model that ends with other ids than the tokenizer knows is refused', () => {
  expect(() => checkTokenizer(byteTokenizer(), model({ eos_token_id: 2 }))).toThrow(/end ids \[257\].*\[2\]/)
  expect(() => checkTokenizer({ ...byteTokenizer(), endIds: [] }, model({ eos_token_id: [2] }))).toThrow(/end ids \[\]/)
})
