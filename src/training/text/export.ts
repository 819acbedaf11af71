/** The language model of a run as a folder that other libraries read, with an adapter merged into it. */

import { saveTransformer } from '../../policies/transformer/folder.ts'
import { mergeLora } from '../../policies/transformer/lora.ts'
import { saveTokenizer } from '../../text/tokenizer.ts'
import type { ModuleTrust } from '../../trust.ts'
import { refuseOccupied } from '../run-folder.ts'
import { loadTrainedModel, type TrainedModel } from './evaluate.ts'

/**
 * Writes the model of a run's newest checkpoint into a new or empty folder: `config.json`, weights, and the tokenizer's files.
 * Returns what was loaded.
 * @throws InputError for a folder that holds anything or cannot be written, and as `loadTrainedModel` does.
 * @example await exportTrainedModel('runs/words', 'model')
 */
export async function exportTrainedModel(run: string, out: string, trust: ModuleTrust = {}): Promise<TrainedModel> {
  await refuseOccupied(out)
  const trained = await loadTrainedModel(run, trust)
  const { environment, policy, weights, adapter } = trained
  const { model, adapter: adapted, tokenizer } = await policy.open(environment)
  if (adapted !== null) mergeLora(weights, adapted, adapter!)
  await saveTransformer(out, model, weights)
  await saveTokenizer(out, tokenizer)
  return trained
}
