import { InputError } from '../base/errors.ts'
import { isThere } from '../base/files/files.ts'
import { downloadModel, type HubOptions } from './hub.ts'
import { checkTokenizer } from './tokenizers/check-tokenizer.ts'
import { loadTokenizer, type TokenizerOptions } from './tokenizers/load-tokenizer.ts'
import type { Tokenizer } from './tokenizers/tokenizer.ts'
import { openTransformer, type TransformerWeightsRead } from './transformer/folder.ts'
import type { TransformerModel } from './transformer/model.ts'

/** A language model of a folder before its weights are read. */
export interface LanguageModelFolder {
  /** Where it is read. */
  readonly folder: string
  readonly model: TransformerModel
  readonly tokenizer: Tokenizer
  /** Reads them; throws as `loadTransformer` does. */
  readWeights(): Promise<TransformerWeightsRead>
}

/** A language model as its folder has it. */
export interface LanguageModel extends Omit<LanguageModelFolder, 'readWeights'> {
  readonly weights: Float32Array
  /** What of the files was left out, a sentence each. */
  readonly notes: readonly string[]
}

/** Which language model of a folder, and where the hub is. */
type Options = HubOptions & TokenizerOptions & { readonly valueHead?: boolean }

/**
 * Opens a language model: reads its configuration and its tokenizer, but not its weights yet, as `loadLanguageModel` does.
 * @throws InputError as `downloadModel`, `openTransformer`, `loadTokenizer` and `checkTokenizer` do.
 */
export async function openLanguageModel(
  folderOrId: string,
  { valueHead = false, templateArguments = {}, ...options }: Options = {},
): Promise<LanguageModelFolder> {
  const folder = (await isThere(folderOrId)) ? folderOrId : await downloadById(folderOrId, options)
  const { model, readWeights } = await openTransformer(folder, { valueHead })
  const tokenizer = await loadTokenizer(folder, { templateArguments })
  checkTokenizer(tokenizer, model)
  return { folder, model, tokenizer, readWeights }
}

/**
 * Reads a language model: transformer, weights and tokenizer, from a folder, or from the Hugging Face hub by its id, where no
 * folder has that name; with a value head, if one is asked for.
 * @throws InputError as `downloadModel`, `loadTransformer`, `loadTokenizer` and `checkTokenizer` do.
 * @example const { model, weights, tokenizer } = await loadLanguageModel('HuggingFaceTB/SmolLM2-135M-Instruct')
 */
export async function loadLanguageModel(folderOrId: string, options: Options = {}): Promise<LanguageModel> {
  const { readWeights, ...opened } = await openLanguageModel(folderOrId, options)
  return { ...opened, ...(await readWeights()) }
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
