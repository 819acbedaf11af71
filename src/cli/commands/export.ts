import { extname } from 'node:path'
import { InputError } from '../../base/errors.ts'
import { type Command, readKeys, refuseKeys, splitWords } from '../../base/invocation.ts'
import { group } from '../../base/metrics.ts'
import {
  exportFormats,
  exportPolicy,
  exportTrajectories,
  listRollouts,
  sampleForms,
  trajectoryFormats,
  writeDatasetCard,
  writeLeRobot,
  writeMinari,
  writeParquet,
} from '../../entries/data.ts'
import { boolean, choice, integer, type ModuleTrust } from '../../entries/settings.ts'
import { exportTrainedModel } from '../../entries/text.ts'
import { kindOfRun, loadPolicy, openRun, readArrow, recordEpisodes, saveWeights, writeArrow } from '../../index.ts'
import { askForModule, trustKeys } from '../words/trust.ts'

const EPISODE_FORMATS = ['file', 'stream', 'parquet', 'minari', 'lerobot', ...exportFormats, 'safetensors'] as const
const TEXT_FORMATS = ['model', ...trajectoryFormats] as const

export const exportKeys = {
  episodes: integer(0, 'number of fresh episodes to play; 0: export the rollouts that the run kept', { min: 0 }),
  seed: integer(20_000, 'seed of the fresh episodes', { min: 0 }),
  explore: boolean(true, 'sample actions in fresh episodes'),
  format: choice(
    'file',
    EPISODE_FORMATS,
    'rows as an Arrow IPC file or stream, Parquet, or a Minari or LeRobot dataset (of fresh episodes); or the policy as an ONNX model, a LayersModel of tfjs, an ES module, or weights. ' +
      'By default the extension of the file decides',
  ),
  fps: integer(30, 'with format=lerobot: steps per second, for the timestamps', { min: 1 }),
  ...trustKeys,
}

export const textExportKeys = {
  format: choice(
    'model',
    TEXT_FORMATS,
    'the model as a folder or a GGUF file; or the conversations that the run kept, as an Arrow IPC file or stream, as Parquet, or as samples in JSON Lines; ' +
      "or as text only, as JSON Lines or Parquet: prompt, answer, completion and reward, or TRL's forms. " +
      'By default the extension of the file decides',
  ),
  type: choice('F32', ['F32', 'F16', 'Q8_0'], 'for a GGUF file: type of the matrices'),
  ...trustKeys,
}

/** File endings of each format, the usual one first. Formats that are folders have none. */
const ENDINGS: Readonly<Record<string, readonly string[]>> = {
  file: ['.arrow', '.feather', '.ipc'],
  stream: ['.arrows', '.arrow', '.ipc'],
  parquet: ['.parquet'],
  jsonl: ['.jsonl', '.ndjson'],
  ...Object.fromEntries(sampleForms.map((form) => [form, ['.jsonl', '.ndjson', '.parquet']])),
  onnx: ['.onnx'],
  module: ['.mjs', '.js'],
  safetensors: ['.safetensors'],
  model: ['.gguf'],
}

/** Adds a format by `out`'s ending, if none is given. @throws InputError for an unknown ending. */
function withFormat(out: string, texts: Readonly<Record<string, string>>, formats: readonly string[]) {
  const ending = extname(out)
  if (texts.format !== undefined || ending === '') return texts
  const format = formats.find((each) => ENDINGS[each]?.includes(ending))
  if (format !== undefined) return { ...texts, format }
  const endings = new Set(formats.flatMap((each) => ENDINGS[each] ?? []))
  throw new InputError('out', out, `a name that ends in ${[...endings].join(', ')}, or format=…`)
}

function checkEnding(out: string, format: string): void {
  const ending = extname(out)
  const endings = ENDINGS[format]
  if (ending === '' || endings === undefined || endings.includes(ending)) return
  const others = Object.entries(ENDINGS).filter(([, each]) => each.includes(ending))
  const remedy = others.length === 0 ? '' : `, or format=${others.map(([name]) => name).join(' or ')}`
  const fit =
    endings.length === 0 ? 'a name of a folder, without an ending' : `a name that ends in ${endings.join(' or ')}`
  throw new InputError('out', `${out} with format=${format}`, `${fit}${remedy}`)
}

/** colonnade export <run> out=FILE [episodes=N] [format=…] */
export const exportCommand: Command = async ({ words, json }) => {
  const { subject, texts } = splitWords(words, 'a run folder')
  const { out, ...rest } = texts
  if (!out) throw new InputError('out', 'nothing', 'the file to write, like out=episodes.arrow')
  if ((await kindOfRun(subject)) === 'conversations') return exportText(subject, out, rest, json)
  const { episodes, seed, explore, format, fps, trust } = readKeys(exportKeys, withFormat(out, rest, EPISODE_FORMATS))
  if (rest.format === undefined && extname(out) === '') {
    throw new InputError('out', out, 'a name whose extension sets the format, like episodes.arrow, or format=…')
  }
  const isDataset = format === 'minari' || format === 'lerobot'
  if (isDataset && episodes === 0)
    throw new InputError('episodes', '0', `a number above 0 with format=${format}: rollouts have parts of episodes`)
  if (format !== 'lerobot')
    refuseKeys(rest, ['fps'], `no such key with format=${format}: only LeRobot's frames have times`)
  checkEnding(out, format)
  const modules = { allowModule: askForModule(trust) }
  if (!isDataset && format !== 'file' && format !== 'stream' && format !== 'parquet') {
    refuseKeys(rest, ['episodes', 'seed', 'explore'], `no such key with format=${format}`)
    const { files, update } = await exportTrained(subject, format, out, modules)
    if (!json) console.log(`policy of update ${update} → ${files.join(', ')}`)
    return { run: subject, out, format, update, files }
  }
  if (episodes === 0) refuseKeys(rest, ['seed', 'explore'], 'episodes=N: recorded rollouts cannot change')
  if (isDataset) {
    const { table, environment } = await fresh(subject, { episodes, seed, explore }, modules)
    const written =
      format === 'minari'
        ? await writeMinari(out, table, environment)
        : await writeLeRobot(out, table, environment, { fps })
    if (!json) console.log(`${group(written.episodes)} episodes, ${group(written.steps)} steps → ${out}`)
    return { run: subject, out, format, ...written }
  }
  const table =
    episodes > 0 ? (await fresh(subject, { episodes, seed, explore }, modules)).table : await kept(subject, modules)
  if (format === 'parquet') {
    await writeParquet(out, table)
    const metadata = 'schema' in table ? Object.fromEntries(table.schema.metadata) : table.metadata
    const { environment, seed, policy, checkpoint, update } = metadata
    await writeDatasetCard(out, { facts: { environment, rows: table.numRows, seed, policy, checkpoint, update } })
  } else await writeArrow(out, table, { format })
  if (!json) console.log(`${group(table.numRows)} rows → ${out}`)
  return { run: subject, out, format, rows: table.numRows, episodes: episodes > 0 ? episodes : null }
}

async function exportTrained(
  run: string,
  format: (typeof exportFormats)[number] | 'safetensors',
  out: string,
  modules: ModuleTrust,
) {
  const trained = await loadPolicy(run, modules)
  const { environment, policy, weights, update } = trained
  if (format !== 'safetensors') return { update, files: await exportPolicy({ ...trained, format, out }) }
  await saveWeights(out, policy.build(environment.observationSpace, environment.actionSpace), weights)
  return { update, files: [out] }
}

/** Writes the language model of the run's newest checkpoint, or the conversations that the run kept. */
async function exportText(run: string, out: string, texts: Readonly<Record<string, string>>, json: boolean) {
  const { format, type, trust } = readKeys(textExportKeys, withFormat(out, texts, TEXT_FORMATS))
  if (!out.endsWith('.gguf')) refuseKeys(texts, ['type'], 'no such key without a name that ends in .gguf')
  if (format !== 'model') {
    checkEnding(out, format)
    const trajectories = await exportTrajectories(run, out, format, { allowModule: askForModule(trust) })
    if (!json) console.log(`${group(trajectories)} ${format === 'preference' ? 'pairs' : 'trajectories'} → ${out}`)
    return { run, out, format, trajectories }
  }
  const { sftSteps, updates } = await exportTrainedModel(run, out, { allowModule: askForModule(trust) }, type)
  if (!json) console.log(`model after ${group(sftSteps)} supervised steps and ${group(updates)} updates → ${out}`)
  return { run, out, format, sftSteps, updates }
}

async function fresh(run: string, options: { episodes: number; seed: number; explore: boolean }, modules: ModuleTrust) {
  const { environment, policy, systems, weights, shared, update, checkpoint } = await loadPolicy(run, modules)
  return {
    environment,
    table: await recordEpisodes({
      environment,
      policy,
      systems,
      weights,
      shared,
      version: update,
      checkpoint,
      ...options,
    }),
  }
}

async function kept(run: string, modules: ModuleTrust) {
  await openRun(run, modules)
  const rollouts = await listRollouts(run)
  if (rollouts.length === 0) {
    const expected = 'a run that kept some (rollouts=last or all), or episodes=N for fresh ones'
    throw new InputError(`rollouts of ${run}`, 'none', expected)
  }
  return readArrow(...rollouts)
}
