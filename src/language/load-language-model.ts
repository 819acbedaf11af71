import { checkGiven, InputError } from '../base/errors.ts'
import { isThere } from '../base/files/files.ts'
import { downloadModel, type HubOptions } from './hub.ts'
import { checkTokenizer } from './tokenizers/check-tokenizer.ts'
import { loadTokenizer, type TokenizerOptions } from './tokenizers/load-tokenizer.ts'
import type { Tokenizer } from './tokenizers/tokenizer.ts'
import { type OpenWeights, openTransformer } from './transformer/folder.ts'
import type { TransformerModel } from './transformer/model.ts'
import { rowTaker } from './transformer/quantized.ts'

/** A language model's folder, or GGUF file, whose weights are not read yet. */
export interface LanguageModelFolder {
  readonly folder: string
  readonly model: TransformerModel
  readonly tokenizer: Tokenizer
  /** Opens the weights; throws as `loadTransformer` does. */
  openWeights(): Promise<OpenWeights>
}

/** A transformer with weights and tokenizer, from a folder. */
export interface LanguageModel extends Omit<LanguageModelFolder, 'openWeights'> {
  readonly weights: Float32Array
  /** Tensors that are left out, one sentence each. */
  readonly notes: readonly string[]
}

type Options = HubOptions & TokenizerOptions & { readonly valueHead?: boolean }

/** Reads a language model's configuration and tokenizer only. @throws InputError as `loadLanguageModel` does. */
export async function openLanguageModel(
  folderOrId: string,
  { valueHead = false, templateArguments = {}, ...options }: Options = {},
): Promise<LanguageModelFolder> {
  checkGiven('folderOrId of loadLanguageModel', folderOrId, 'a text')
  if (folderOrId.endsWith('.gguf')) {
    const { openGguf } = await import('./gguf/model.ts')
    const opened = await openGguf(folderOrId, { valueHead, templateArguments })
    checkTokenizer(opened.tokenizer, opened.model)
    return { folder: folderOrId, ...opened }
  }
  const folder = (await isThere(folderOrId)) ? folderOrId : await downloadById(folderOrId, options)
  const { model, openWeights } = await openTransformer(folder, { valueHead })
  const tokenizer = await loadTokenizer(folder, { templateArguments })
  checkTokenizer(tokenizer, model)
  return { folder, model, tokenizer, openWeights }
}

/**
 * Loads a language model: transformer, weights and tokenizer, from a folder, from a file that ends in `.gguf`, or by id from the Hugging Face hub if no
 * folder has that name. `valueHead` adds a value head.
 * @throws InputError as `downloadModel`, `openGguf`, `loadTransformer`, `loadTokenizer` and `checkTokenizer` do.
 * @example const { model, weights, tokenizer } = await loadLanguageModel('HuggingFaceTB/SmolLM2-135M-Instruct')
 */
export async function loadLanguageModel(folderOrId: string, options: Options = {}): Promise<LanguageModel> {
  const { openWeights, ...opened } = await openLanguageModel(folderOrId, options)
  const { fill, notes } = await openWeights()
  const weights = new Float32Array(opened.model.numParameters)
  fill(rowTaker(opened.model, weights))
  return { ...opened, weights, notes }
}

async function downloadById(id: string, options: HubOptions): Promise<string> {
  if (/^[./~]|\/.*\//.test(id)) throw new InputError('language model', `no folder ${id}`, 'an existing folder')
  try {
    return await downloadModel(id, options)
  } catch (cause) {
    if (!(cause instanceof InputError)) throw cause
    const { subject, got, expected } = cause // The user may have meant a folder, so the error also says that it does not exist.
    throw new InputError(subject, `${got}; and there is no folder ${id}`, expected, { cause })
  }
}
