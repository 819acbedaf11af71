import { cp } from 'node:fs/promises'
import { Random } from '../../src/base/random.ts'
import { saveTransformer } from '../../src/language/transformer/folder.ts'
import { transformer } from '../../src/language/transformer/model.ts'

/** Writes a new small Qwen2 model into a folder, with the recorded tokenizer of that family (2,048 ids). */
export async function writeQwen2(folder: string, { vocabularySize = 2048, context = 128 } = {}): Promise<void> {
  await cp(new URL('../golden/tokenizers/qwen2', import.meta.url).pathname, folder, { recursive: true })
  const model = transformer({
    model_type: 'qwen2',
    vocab_size: vocabularySize,
    hidden_size: 16,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    intermediate_size: 32,
    max_position_embeddings: context,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
  })
  const weights = new Float32Array(model.numParameters)
  model.initialize(weights, new Random(1), 0)
  await saveTransformer(folder, model, weights)
}
