/** Transformers in Hugging Face's format: `config.json`, and `model.safetensors` or shards with an index. */
import { InputError, show } from '../../base/errors.ts'
import { isThere, readJsonObject, writeWhole } from '../../base/files/files.ts'
import {
  type OpenSafetensors,
  openSafetensors,
  type Tensor,
  type TensorPlace,
  tensorOf,
  writeSafetensors,
} from '../../base/files/safetensors.ts'
import type { Parameter } from '../../policies/policy.ts'
import { checkTensor, checkWeights, type weightTypes } from '../../policies/weights.ts'
import { isKnownFamily } from './config.ts'
import { type TransformerModel, transformer } from './model.ts'
import { EMBEDDING, HEAD, viewParameters } from './parameters.ts'
import { rowTaker, type TakeRows } from './quantized.ts'
import { findReads, type Read, readParameters, rowsOf, storedName, toStored } from './storage.ts'

const DTYPES = { F32: 'float32', F16: 'float16', BF16: 'bfloat16' } as const

/** An opened model folder whose weights are not read yet. */
export interface TransformerFolder {
  readonly model: TransformerModel
  /** Opens the files of the weights and checks them, except whether numbers are finite; see `loadTransformer`. */
  openWeights(): Promise<OpenWeights>
}

export interface OpenWeights {
  /** Reads the weights, shard by shard, and hands them over row by row. */
  fill(take: TakeRows): void
  /** Tensors that are left out, one sentence each. */
  readonly notes: readonly string[]
}

/** RoPE buffers that old versions of transformers stored; they follow from the configuration. */
const ROPE_BUFFER = /(^|\.)rotary_emb\.(inv_freq|cos_cached|sin_cached)$/

/** Reads a model's configuration. @throws InputError as `transformer` does, and for the folder of a run. */
export async function openTransformer(
  folder: string,
  { valueHead = false }: { readonly valueHead?: boolean } = {},
): Promise<TransformerFolder> {
  const configPath = `${folder}/config.json`
  const config = await readJsonObject(configPath)
  refuseRun(folder, config)
  const model = transformer(config, { subject: configPath, valueHead })
  return { model, openWeights: () => openWeights(folder, model) }
}

/**
 * Reads a model's folder. f16 and bf16 become f32 without loss. A requested value head that the folder lacks begins at
 * 0. RoPE buffers are left out, and so is an `lm_head.weight` that equals the embedding it is tied to; `notes` names
 * them.
 * @throws InputError for a configuration that `transformer` refuses, a missing or damaged file or shard, a tensor that
 * is missing, unknown, not finite, or of another shape or type, and an `lm_head.weight` that differs from the embedding
 * it is tied to.
 * @example const { model, weights } = await loadTransformer('models/SmolLM2-135M')
 */
export async function loadTransformer(
  folder: string,
  options: { readonly valueHead?: boolean } = {},
): Promise<Pick<OpenWeights, 'notes'> & { readonly model: TransformerModel; readonly weights: Float32Array }> {
  const { model, openWeights } = await openTransformer(folder, options)
  const { fill, notes } = await openWeights()
  const weights = new Float32Array(model.numParameters)
  fill(rowTaker(model, weights))
  return { model, weights, notes }
}

/** Refuses a run's folder: its `config.json` describes a training, not a model. */
function refuseRun(folder: string, config: Readonly<Record<string, unknown>>): void {
  const { colonnade, environment } = config
  if (typeof colonnade !== 'string') return
  const id = (environment as { readonly id?: unknown } | undefined)?.id
  const [kind, expected] = Object.hasOwn(config, 'sft')
    ? ['a run of a language model', `its model: ${folder}/model, or what colonnade export writes`]
    : ['a control run', 'a run of a language model, or the folder of one']
  throw new InputError('language model', `${folder}, ${kind} (of ${show(id)})`, expected)
}

interface Found {
  readonly path: string
  readonly place: TensorPlace
}

async function openWeights(folder: string, model: TransformerModel): Promise<OpenWeights> {
  const shards: { readonly path: string; readonly reads: readonly Read[] }[] = []
  const leftOut: string[] = []
  let head: Found | null = null
  for (const [path, parameters] of await findShards(folder, model)) {
    const places = withFile(path, ({ tensors }) => new Map(tensors), false)
    for (const [name, place] of places) {
      if (!isSpare(model, name)) continue
      places.delete(name)
      if (name === HEAD) head = { path, place }
      else leftOut.push(name)
    }
    shards.push({ path, reads: findReads(model, path, prefixed(model, places), parameters) })
  }
  if (head !== null) checkTied(head, findTied(shards), model)
  const valuePath = `${folder}/${VALUE_FILE}`
  if (model.hasValueHead && (await isThere(valuePath))) {
    const places = withFile(valuePath, ({ tensors }) => tensors, false)
    shards.push({ path: valuePath, reads: findReads(model, valuePath, places, model.parameters.filter(isOfCritic)) })
  }
  const notes = [
    ...(isKnownFamily(model.config)
      ? []
      : [`${folder}: read by its keys, since model_type ${show(model.config.model_type)} is not known`]),
    ...(head === null ? [] : [`${folder}: left out ${HEAD}, which equals the tied ${EMBEDDING}`]),
    ...(leftOut.length === 0 ? [] : [`${folder}: left out ${listed(leftOut)}, which follow from config.json`]),
  ]
  return {
    fill(take) {
      for (const { path, reads } of shards) withFile(path, (file) => readParameters(model, path, file, reads, take))
    },
    notes,
  }
}

function withFile<T>(path: string, action: (file: OpenSafetensors) => T, isVerified = true): T {
  const file = openSafetensors(path, isVerified)
  try {
    return action(file)
  } finally {
    file.close()
  }
}

function findTied(shards: readonly { readonly path: string; readonly reads: readonly Read[] }[]): Found {
  for (const { path, reads } of shards) {
    const read = reads.find(({ parts }) => parts[0]!.name === EMBEDDING)
    if (read !== undefined) return { path, place: read.place }
  }
  throw new Error('Colonnade has a bug: a model without an embedding')
}

/** Whether a tensor that is not a parameter may still be in the file. */
function isSpare({ shape }: TransformerModel, name: string): boolean {
  return ROPE_BUFFER.test(name) || shape.layout.spare?.test(name) || (shape.tiedEmbeddings && name === HEAD)
}

/** GPT-2's first files have the names of the model without its head. */
function prefixed(
  { shape }: TransformerModel,
  tensors: ReadonlyMap<string, TensorPlace>,
): ReadonlyMap<string, TensorPlace> {
  const name = storedName(shape.layout, EMBEDDING)
  const prefix = name.slice(0, name.indexOf('.') + 1)
  if (tensors.has(name) || !tensors.has(name.slice(prefix.length))) return tensors
  return new Map([...tensors].map(([each, tensor]) => [prefix + each, tensor]))
}

/** Refuses a head that differs from the embedding that the configuration ties it to. */
function checkTied(head: Found, embedding: Found, model: TransformerModel): void {
  const { shape } = model.parameters.find(({ name }) => name === EMBEDDING)!
  const [, width] = shape as [number, number]
  checkTensor(head.path, HEAD, head.place, shape)
  withFile(embedding.path, (file) => {
    const tied = rowsOf(file, embedding.place)
    withFile(head.path, (other) => {
      for (const [values, row] of rowsOf(other, head.place)) {
        const [expected] = tied.next().value as [Float32Array]
        const at = values.findIndex((value, i) => value !== expected[i])
        if (at < 0) continue
        const place = `row ${row + Math.floor(at / width)}, column ${at % width}`
        throw new InputError(
          `${head.path}, ${HEAD}`,
          `${values[at]} at ${place}, where ${EMBEDDING} has ${expected[at]}`,
          'the numbers of the tied embedding, or "tie_word_embeddings": false in config.json',
        )
      }
    })
  })
}

/** The first name, and the number of the others. */
function listed(names: readonly string[]): string {
  return names.length === 1 ? names[0]! : `${names[0]} and ${names.length - 1} more`
}

/** The critic's weights have a file of their own, so that other software loads the model without them. */
export const VALUE_FILE = 'value_head.safetensors'

/** Whether a parameter belongs to the value head. */
export function isOfCritic({ name }: Pick<Parameter, 'name'>): boolean {
  return name.startsWith('v_head.')
}

/** The tensors of a model without its critic, as views of `weights`. */
export function transformerTensors(model: TransformerModel, weights: Float32Array): Tensor[] {
  return toStored(
    model,
    tensorsOf(model, weights, 'F32').filter((tensor) => !isOfCritic(tensor)),
  )
}

/** Keys of `config.json` that transformers takes only with a decimal point, where their number is whole. */
const WHOLE_FLOATS =
  /"(?:initializer_range|(?:attn|final)_logit_softcapping|router_jitter_noise|router_aux_loss_coef)": -?\d+(?=,?\n)/g

/**
 * Writes a model's folder, in f32 or rounded to f16 or bf16: `config.json` with the type, and one `model.safetensors`.
 * @throws InputError for weights that are of another length, not finite or too large for the type, and for a folder
 * that cannot be written.
 */
export async function saveTransformer(
  folder: string,
  model: TransformerModel,
  weights: Float32Array,
  type: (typeof weightTypes)[number] = 'F32',
): Promise<void> {
  checkWeights(model, weights)
  const tensors = tensorsOf(model, weights, type)
  const numOfModel = model.parameters.filter((parameter) => !isOfCritic(parameter)).length
  const { torch_dtype: _, ...config } = model.config
  const stored = toStored(model, tensors.slice(0, numOfModel))
  await writeSafetensors(`${folder}/model.safetensors`, stored, { format: 'pt' })
  if (model.hasValueHead) await writeSafetensors(`${folder}/${VALUE_FILE}`, tensors.slice(numOfModel), { format: 'pt' })
  const json = JSON.stringify({ ...config, dtype: DTYPES[type] }, null, 2)
  const text = `${json.replace(WHOLE_FLOATS, '$&.0')}\n`
  await writeWhole(`${folder}/config.json`, [new TextEncoder().encode(text)])
}

/** The files of a folder's weights, and the parameters in each. */
async function findShards(folder: string, model: TransformerModel): Promise<Map<string, Parameter[]>> {
  const whole = `${folder}/model.safetensors`
  const wanted = model.parameters.filter((parameter) => !isOfCritic(parameter))
  if (await isThere(whole)) return new Map([[whole, wanted]])
  const indexPath = `${folder}/model.safetensors.index.json`
  const { weight_map: places } = await readJsonObject(indexPath, `it, or ${whole}`)
  if (typeof places !== 'object' || places === null) {
    throw new InputError(`${indexPath}, weight_map`, show(places), 'a file for each tensor')
  }
  const files = new Map<string, unknown>(Object.entries(places))
  const shards = new Map<string, Parameter[]>()
  const shardOf = (name: string): Parameter[] => {
    const file = files.get(name)
    files.delete(name)
    if (typeof file !== 'string' || /[/\\]/.test(file)) {
      throw new InputError(`${indexPath}, ${name}`, show(file), 'the name of a file beside it')
    }
    const path = `${folder}/${file}`
    if (!shards.has(path)) shards.set(path, [])
    return shards.get(path)!
  }
  const shardByName = new Map<string, Parameter[]>()
  for (const parameter of wanted) {
    const name = storedName(model.shape.layout, parameter.name)
    if (!shardByName.has(name)) shardByName.set(name, shardOf(name))
    shardByName.get(name)!.push(parameter)
  }
  for (const name of [...files.keys()]) if (isSpare(model, name)) shardOf(name)
  const [extra] = files.keys()
  if (extra !== undefined) throw new InputError(indexPath, `tensor ${extra}`, 'only those of the model')
  return shards
}

function tensorsOf(model: TransformerModel, weights: Float32Array, type: (typeof weightTypes)[number]): Tensor[] {
  const views = viewParameters(model.parameters, weights)
  return model.parameters.map(({ name, shape }, index) => tensorOf(name, views[index]!, shape, type))
}
