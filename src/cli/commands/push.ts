import { copyFile, readdir, writeFile } from 'node:fs/promises'
import { basename, isAbsolute, join } from 'node:path'
import { InputError } from '../../base/errors.ts'
import { isThere, makeFolder, readJsonObject, within } from '../../base/files/files.ts'
import { type Command, readKeys, refuseKeys, splitWords } from '../../base/invocation.ts'
import { group } from '../../base/metrics.ts'
import { isPair } from '../../base/pair.ts'
import { VERSION } from '../../base/version.ts'
import { exportPolicy, type ModelCardContent, modelCard } from '../../entries/data.ts'
import { encodeGif, isGrid } from '../../entries/environments.ts'
import { boolean, integer, type ModuleTrust, text } from '../../entries/settings.ts'
import { checkUpload, exportTrainedModel, uploadModel } from '../../entries/text.ts'
import { evaluate, kindOfRun, loadPolicy, openRun, saveWeights } from '../../index.ts'
import { inTemporaryFolder } from '../show/signals.ts'
import { askForModule, trustKeys } from '../words/trust.ts'
import { pictureEpisode } from './replay.ts'

export const pushKeys = {
  private: boolean(false, 'whether a newly created repository is private'),
  revision: text('main', 'the branch'),
  message: text('', 'commit message; empty: the update and the environment'),
  episodes: integer(20, 'fresh episodes to evaluate a policy for the model card; 0: none', { min: 0 }),
  seed: integer(10_000, 'seed of these episodes and of the recorded one', { min: 0 }),
  out: text('', 'write the files into this folder instead of pushing them'),
  ...trustKeys,
}

interface Run {
  readonly folder: string
  readonly config: Readonly<Record<string, unknown>>
  readonly summary: Readonly<Record<string, unknown>>
}

/** colonnade push <run> <owner/name> [key=value …]: pushes the policy or model, with a card, to the hub. */
export const pushCommand: Command = async ({ words, json, quiet }) => {
  const [run, second, ...rest] = words
  const isNamed = second !== undefined && !isPair(second)
  const { subject, texts } = splitWords([run, ...(isNamed ? rest : words.slice(1))].filter(isText), 'a run folder')
  const keys = readKeys(pushKeys, texts)
  const kind = await kindOfRun(subject)
  if (kind === null) await openRun(subject) // Reports why it is not a run.
  const isOfText = kind === 'conversations'
  if (isOfText) refuseKeys(texts, ['episodes', 'seed'], 'no such key for a language model: no episodes are played')
  const isDry = keys.out !== ''
  if (!isNamed && !isDry)
    throw new InputError('second word', second ?? 'nothing', 'a repository of the hub, owner/name')
  if (!isDry) checkUpload(second!, keys.revision)
  if (isDry) await takeEmpty(keys.out)
  const pushFrom = async (folder: string) => {
    const name = isNamed ? second : basename(subject)
    const write = isOfText ? writeLanguageModel : writePolicy
    const update = await writeFiles(subject, folder, name, keys, write, { allowModule: askForModule(keys.trust) })
    const paths = (await readdir(folder)).sort()
    if (isDry) {
      if (!json) console.log(`${paths.join(', ')} → ${folder}`)
      return { run: subject, out: folder, files: paths }
    }
    const files = Object.fromEntries(paths.map((path) => [path, join(folder, path)]))
    const message = keys.message || `Update ${update} of ${basename(subject)}`
    const { revision, private: isPrivate } = keys
    const said = await uploadModel(second!, files, {
      ...{ revision, private: isPrivate, message },
      onProgress: ({ file, bytes }) => {
        if (!quiet) console.error(`${file ?? 'the commit'}: ${group(bytes)} bytes`)
      },
    })
    if (!json) console.log(`${paths.join(', ')} → ${said.url}`)
    return { run: subject, repository: second, ...said, files: paths }
  }
  return isDry ? pushFrom(keys.out) : inTemporaryFolder('push', pushFrom)
}

async function takeEmpty(folder: string): Promise<void> {
  await makeFolder(folder)
  if ((await readdir(folder)).length > 0)
    throw new InputError('out', `${folder}, which is not empty`, 'a new or empty folder')
}

function isText(word: string | undefined): word is string {
  return word !== undefined
}

/** Writes all files of the repository into a new or empty folder. Returns the update. */
async function writeFiles(
  run: string,
  out: string,
  title: string,
  keys: { readonly episodes: number; readonly seed: number },
  write: typeof writePolicy | typeof writeLanguageModel,
  modules: ModuleTrust,
): Promise<number> {
  const about: Run = {
    folder: run,
    config: await readJsonObject(await within(run, 'config.json')),
    summary: await readJsonObject(await within(run, 'summary.json')),
  }
  const { update, card } = await write(about, out, title, keys, modules)
  const curve = await within(run, 'learning-curve.svg')
  const hasCurve = await isThere(curve)
  if (hasCurve) await copyFile(curve, join(out, 'learning-curve.svg'))
  const pictures = { ...(hasCurve ? { 'learning curve': 'learning-curve.svg' } : {}), ...card.pictures }
  const told = withoutPlaces({ colonnade: VERSION, config: about.config, summary: about.summary })
  await writeFile(join(out, 'run.json'), `${JSON.stringify(told, null, 2)}\n`)
  await writeFile(join(out, 'README.md'), modelCard({ ...card, pictures }))
  return update
}

/** Writes a policy's weights, an ONNX model and an animated episode if possible, and its returns. */
async function writePolicy(
  { folder, summary }: Run,
  out: string,
  title: string,
  { episodes, seed }: { readonly episodes: number; readonly seed: number },
  modules: ModuleTrust,
) {
  const trained = await loadPolicy(folder, modules)
  const { environment, policy, weights, update } = trained
  const { observationSpace, actionSpace } = environment
  const left = await exportPolicy({ ...trained, format: 'onnx', out: join(out, 'policy.onnx') }).then(
    () => null,
    (cause: Error) => {
      if (cause instanceof InputError) return cause.message
      throw cause
    },
  )
  if (left !== null) console.error(`policy.onnx is left out: ${left}`)
  const metadata = { environment: environment.id, policy: policy.id, update: String(update), colonnade: VERSION }
  const model = policy.build(observationSpace, actionSpace)
  await saveWeights(join(out, 'model.safetensors'), model, weights, 'F32', metadata)
  const pictures: Record<string, string> = {}
  if (environment.draw !== undefined || isGrid(observationSpace)) {
    const { pictures: drawn } = await pictureEpisode(folder, { seed, explore: false }, modules)
    await writeFile(join(out, 'replay.gif'), encodeGif(drawn, { delayMs: 100 }))
    pictures['an episode'] = 'replay.gif'
  }
  const judged = episodes > 0 ? await evaluate({ ...trained, episodes, seed }) : undefined
  const card: ModelCardContent = {
    ...{ title, library: 'colonnade', task: 'reinforcement-learning', tags: [environment.id], pictures },
    ...(judged && { result: { environment: environment.id, episodes, ...judged.episodeReturn } }),
    facts: {
      environment: environment.id,
      algorithm: textOf(summary.algorithm),
      policy: policy.id,
      parameters: group(weights.length),
      steps: countOf(summary.totalSteps),
      update,
      seed: textOf(summary.seed),
    },
    use: [
      `\`model.safetensors\` has the weights of policy \`${policy.id}\`; \`run.json\` has all settings of its training. To continue from them:`,
      '',
      '```sh',
      `npx colonnade train ${environment.id} weights=model.safetensors`,
      '```',
      ...(left === null ? ['', '`policy.onnx` is the same policy for ONNX Runtime.'] : []),
    ].join('\n'),
  }
  return { update, card }
}

async function writeLanguageModel(
  { folder, summary }: Run,
  out: string,
  title: string,
  _: object,
  modules: ModuleTrust,
) {
  const { updates, sftSteps } = await exportTrainedModel(folder, out, modules)
  const reward = summary.reward as { readonly last?: number } | undefined
  const card: ModelCardContent = {
    ...{ title, library: 'transformers', task: 'text-generation' },
    facts: {
      environment: textOf(summary.environment),
      algorithm: textOf(summary.algorithm),
      parameters: countOf(summary.numParameters),
      'supervised steps': group(sftSteps),
      updates: group(updates),
      'mean reward of the last updates': reward?.last?.toFixed(3),
      seed: textOf(summary.seed),
    },
    use: [
      '```python',
      'from transformers import AutoModelForCausalLM, AutoTokenizer',
      `model = AutoModelForCausalLM.from_pretrained(${JSON.stringify(title)})`,
      `tokenizer = AutoTokenizer.from_pretrained(${JSON.stringify(title)})`,
      '```',
      '',
      'Or with Colonnade:',
      '',
      '```sh',
      `npx colonnade generate ${title} prompt=…`,
      '```',
    ].join('\n'),
  }
  return { update: updates, card }
}

function textOf(value: unknown): string | undefined {
  return value === undefined || value === null ? undefined : String(value)
}

function countOf(value: unknown): string | undefined {
  return typeof value === 'number' ? group(value) : undefined
}

/** The value without local paths: an absolute path keeps its last name, and a run's files are dropped. */
function withoutPlaces(value: unknown): unknown {
  if (typeof value === 'string') return isAbsolute(value) ? basename(value) : value
  if (Array.isArray(value)) return value.map(withoutPlaces)
  if (typeof value !== 'object' || value === null) return value
  const kept = Object.entries(value).filter(([key]) => key !== 'files' && key !== 'folder')
  return Object.fromEntries(kept.map(([key, each]) => [key, withoutPlaces(each)]))
}
