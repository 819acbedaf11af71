import { InputError } from '../errors.ts'
import { isThere } from '../files.ts'
import { loadTransformer } from '../policies/transformer/folder.ts'
import type { TransformerModel } from '../policies/transformer/model.ts'
import { checkTokenizer } from './check-tokenizer.ts'
import { downloadModel, type HubOptions } from './hub.ts'
import { loadTokenizer, type TokenizerOptions } from './load-tokenizer.ts'
import type { Tokenizer } from './tokenizer.ts'

/** A language model as its folder has it. */
export interface LanguageModel {
  /** Where it was read. */
  readonly folder: string
  readonly model: TransformerModel
  readonly weights: Float32Array
  readonly tokenizer: Tokenizer
}

/**
 * Reads a language model: transformer, weights and tokenizer, from a folder, or from the Hugging Face hub by its id, where no
 * folder has that name; with a value head, if one is asked for.
 * @throws InputError as `downloadModel`, `loadTransformer`, `loadTokenizer` and `checkTokenizer` do.
 * @example const { model, weights, tokenizer } = await loadLanguageModel('HuggingFaceTB/SmolLM2-135M-Instruct')
 */
export async function loadLanguageModel(
  folderOrId: string,
  {
    valueHead = false,
    templateArguments = {},
    ...options
  }: HubOptions & TokenizerOptions & { readonly valueHead?: boolean } = {},
): Promise<LanguageModel> {
  const folder = (await isThere(folderOrId)) ? folderOrId : await downloadById(folderOrId, options)
  const { model, weights } = await loadTransformer(folder, { valueHead })
  const tokenizer = await loadTokenizer(folder, { templateArguments })
  checkTokenizer(tokenizer, model)
  return { folder, model, weights, tokenizer }
}

async function downloadById(id: string, options: HubOptions): Promise<string> {
  if (/^[./~]|\/.*\//.test(id)) throw new InputError('language model', `no folder ${id}`, 'a folder that is there')
  try {
    return await downloadModel(id, options)
  } catch (cause) {
    if (!(cause instanceof InputError)) throw cause
    const { subject, got, expected } = cause // Whoever meant a folder has to be told that it is not there.
    throw new InputError(subject, `${got}; and there is no folder ${id}`, expected, { cause })
  }
}
