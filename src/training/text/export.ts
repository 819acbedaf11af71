/** What a run of a language model comes to, for others: its model as a folder, and its conversations as a file. */
import { join } from 'node:path'
import { InputError, unknownWord } from '../../errors.ts'
import { listFolder } from '../../files.ts'
import { saveTransformer } from '../../policies/transformer/folder.ts'
import { mergeLora } from '../../policies/transformer/lora.ts'
import { writeArrow } from '../../tables/arrow.ts'
import { samplesOfFile } from '../../tables/sample.ts'
import { exportSamplesToJsonl } from '../../tables/sample-files.ts'
import { readTrajectories, type TrajectoriesRead, trajectoryTableOfFile } from '../../tables/trajectory-table.ts'
import { saveTokenizer } from '../../text/tokenizer.ts'
import type { ModuleTrust } from '../../trust.ts'
import { refuseOccupied } from '../run-folder.ts'
import { loadTrainedModel, type TrainedModel } from './trained-model.ts'

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

/** What conversations become: an Arrow IPC file or stream, or samples as JSON Lines, with their tokens. */
export const trajectoryFormats = ['file', 'stream', 'jsonl'] as const

/**
 * Writes the conversations that a run of a language model kept (`trajectories=last` or `all`), with prompts, answers and
 * completions as words beside the ids. Returns how many they are.
 * @throws InputError for a run that kept none, a format that is none, and a file that cannot be read or written.
 * @example await exportTrajectories('runs/words', 'words.jsonl', 'jsonl')
 */
export async function exportTrajectories(
  run: string,
  out: string,
  format: (typeof trajectoryFormats)[number] = 'file',
): Promise<number> {
  if (!trajectoryFormats.includes(format)) throw unknownWord('format', format, trajectoryFormats)
  const read = await readRunTrajectories(run)
  if (format === 'jsonl') await exportSamplesToJsonl(samplesOfFile(read), out, { includeTokens: true })
  else await writeArrow(out, await trajectoryTableOfFile(read), { format })
  return read.trajectories.count
}

/** All trajectories that a run has kept. @throws InputError where it has kept none. */
export async function readRunTrajectories(run: string): Promise<TrajectoriesRead> {
  const folder = join(run, 'trajectories')
  const names = (await listFolder(folder)).filter((name) => /^\d+\.arrow$/.test(name)).sort()
  if (names.length === 0) {
    throw new InputError(`trajectories of ${run}`, 'none', 'a run that kept some (trajectories=last or all)')
  }
  return readTrajectories(...names.map((name) => join(folder, name)))
}
