/** Exports a language model's run: its model as a folder, and its conversations as a file. */
import { checkGiven, InputError, unknownWord } from '../../../base/errors.ts'
import { listFolder, within } from '../../../base/files/files.ts'
import type { ModuleTrust } from '../../../base/trust.ts'
import { type GgufType, saveGguf } from '../../../language/gguf/write.ts'
import { saveTokenizer } from '../../../language/tokenizers/tokenizer.ts'
import { saveTransformer } from '../../../language/transformer/folder.ts'
import { mergeLora } from '../../../language/transformer/lora.ts'
import { writeArrow } from '../../../tables/arrow.ts'
import { writeDatasetCard } from '../../../tables/dataset-card.ts'
import { writeParquet } from '../../../tables/parquet.ts'
import { type Sample, samplesOfFile } from '../../../tables/trajectories/sample.ts'
import { exportSamplesToJsonl } from '../../../tables/trajectories/sample-files.ts'
import { sampleForms, writeSamplesAs } from '../../../tables/trajectories/sample-forms.ts'
import { completionOf } from '../../../tables/trajectories/trajectory.ts'
import {
  readTrajectories,
  type TrajectoriesRead,
  trajectoryTableOfFile,
} from '../../../tables/trajectories/trajectory-table.ts'
import { loadTrainedModel, type TrainedModel } from '../../backends/trained-model.ts'
import { refuseOccupied } from '../../folder/run-folder.ts'
import { openConversationRun } from '../../run/conversation-run.ts'

/**
 * Writes the model of a run's newest checkpoint into a new or empty folder: `config.json`, weights, and tokenizer
 * files; or into a file that ends in `.gguf`, with matrices of `type`. Returns the loaded model.
 * @throws InputError for a folder that is not empty or cannot be written, and as `saveGguf` and `loadTrainedModel` do.
 * @example await exportTrainedModel('runs/words', 'model')
 */
export async function exportTrainedModel(
  run: string,
  out: string,
  trust: ModuleTrust = {},
  type: GgufType = 'F32',
): Promise<TrainedModel> {
  checkGiven('out of exportTrainedModel', out, 'a text')
  const isGguf = out.endsWith('.gguf')
  if (!isGguf) await refuseOccupied(out)
  const trained = await loadTrainedModel(run, trust)
  const { environment, policy, weights, adapter } = trained
  const { model, adapter: adapted, tokenizer } = await policy.open(environment)
  if (adapted !== null) mergeLora(weights, adapted, adapter!)
  if (isGguf) await saveGguf(out, model, weights, tokenizer, type)
  else {
    await saveTransformer(out, model, weights)
    await saveTokenizer(out, tokenizer)
  }
  return trained
}

/** Formats: Arrow IPC file or stream, Parquet, samples as JSON Lines, or a text format of `writeSamplesAs`. */
export const trajectoryFormats = ['file', 'stream', 'parquet', 'jsonl', ...sampleForms] as const
/** One of `trajectoryFormats`. */
export type TrajectoryFormat = (typeof trajectoryFormats)[number]

/**
 * Writes the conversations that a run kept (`trajectories=last` or `all`), with prompts, answers and completions as
 * text beside the ids, or as text only. Returns the number of rows.
 * @throws InputError for a run that kept none, an unknown format, and a file that cannot be read or written; and as
 * `writeSamplesAs` does.
 * @example await exportTrajectories('runs/words', 'words.jsonl', 'jsonl')
 */
export async function exportTrajectories(
  run: string,
  out: string,
  format: TrajectoryFormat = 'file',
  trust: ModuleTrust = {},
): Promise<number> {
  if (!trajectoryFormats.includes(format)) throw unknownWord('format', format, trajectoryFormats)
  const read = await readRunTrajectories(run)
  const form = sampleForms.find((each) => each === format)
  if (form !== undefined) return writeSamplesAs(out, await spokenSamples(run, read, trust), form)
  if (format === 'jsonl') await exportSamplesToJsonl(samplesOfFile(read), out, { includeTokens: true })
  else {
    const table = await trajectoryTableOfFile(read)
    if (format === 'parquet') {
      await writeParquet(out, table)
      const { environment, model, algorithm, seed } = read.metadata
      await writeDatasetCard(out, { facts: { environment, rows: table.numRows, model, algorithm, seed } })
    } else await writeArrow(out, table, { format: format as 'file' | 'stream' })
  }
  return read.trajectories.count
}

/** A run's samples without special tokens at their end, since a chat template adds those itself. */
async function spokenSamples(run: string, read: TrajectoriesRead, trust: ModuleTrust): Promise<Sample[]> {
  const { policy, environment } = await openConversationRun(run, trust)
  const { tokenizer } = await policy.open(environment)
  return samplesOfFile(read).map((sample) => {
    const ids = completionOf({ ...sample, token: sample.tokens, version: sample.weightVersions })
    while (ids.length > 0 && tokenizer.decode([ids.at(-1)!], { skipSpecial: true }) === '') ids.pop()
    return { ...sample, response: tokenizer.decode(ids) }
  })
}

/** All trajectories that a run kept. @throws InputError if it kept none. */
export async function readRunTrajectories(run: string): Promise<TrajectoriesRead> {
  const names = (await listFolder(await within(run, 'trajectories'))).filter((name) => /^\d+\.arrow$/.test(name)).sort()
  if (names.length === 0) {
    throw new InputError(`trajectories of ${run}`, 'none', 'a run that kept some (trajectories=last or all)')
  }
  return readTrajectories(...(await Promise.all(names.map((name) => within(run, 'trajectories', name)))))
}
