/**
 * A transformer in a folder, as Hugging Face's libraries read and write it: `config.json`, and `model.safetensors` or
 * several shards with `model.safetensors.index.json`.
 */
import { InputError, show } from '../../errors.ts'
import { isThere, readJsonObject, writeWhole } from '../../files.ts'
import { readSafetensors, tensorOf, writeSafetensors } from '../../safetensors.ts'
import type { Parameter } from '../policy.ts'
import { checkWeights, fillWeights, type weightTypes } from '../weights.ts'
import { type TransformerModel, transformer } from './model.ts'
import { viewParameters } from './parameters.ts'

/** The names that `config.json` has for the types of weights. */
const DTYPES = { F32: 'float32', F16: 'float16', BF16: 'bfloat16' } as const

/**
 * Reads a model's folder: f16 and bf16 become f32, which holds them exactly. A value head that is asked for and not there
 * begins at 0.
 * @throws InputError for a configuration that `transformer` refuses, a file or shard that is missing or damaged, a tensor
 * that is missing, too many, of another shape or type, or not finite.
 * @example const { model, weights } = await loadTransformer('models/SmolLM2-135M')
 */
export async function loadTransformer(
  folder: string,
  { valueHead = false }: { readonly valueHead?: boolean } = {},
): Promise<{ model: TransformerModel; weights: Float32Array }> {
  const configPath = `${folder}/config.json`
  const model = transformer(await readJsonObject(configPath), { subject: configPath, valueHead })
  const weights = new Float32Array(model.numParameters)
  for (const [path, parameters] of await findShards(folder, model)) {
    fillWeights(weights, path, (await readSafetensors(path)).tensors, parameters, '')
  }
  const valuePath = `${folder}/${VALUE_FILE}`
  if (valueHead && (await isThere(valuePath))) {
    fillWeights(weights, valuePath, (await readSafetensors(valuePath)).tensors, model.parameters.filter(isOfCritic), '')
  }
  return { model, weights }
}

/** The critic's weights, in a file of their own: others load the model without it. */
export const VALUE_FILE = 'value_head.safetensors'

/** Whether a parameter is of the value head. */
export function isOfCritic({ name }: Parameter): boolean {
  return name.startsWith('v_head.')
}

/**
 * Writes a model's folder, in f32 or rounded to f16 or bf16: `config.json` with the type, and one `model.safetensors`.
 * @throws InputError for weights of another length, that are not finite or too large for the type, or a place that cannot
 * be written.
 */
export async function saveTransformer(
  folder: string,
  model: TransformerModel,
  weights: Float32Array,
  type: (typeof weightTypes)[number] = 'F32',
): Promise<void> {
  checkWeights(model, weights)
  const views = viewParameters(model.parameters, weights)
  const tensors = model.parameters.map(({ name, shape }, index) => tensorOf(name, views[index]!, shape, type))
  const numOfModel = model.parameters.filter((parameter) => !isOfCritic(parameter)).length
  const { torch_dtype: _, ...config } = model.config
  await writeSafetensors(`${folder}/model.safetensors`, tensors.slice(0, numOfModel), { format: 'pt' })
  if (model.hasValueHead) await writeSafetensors(`${folder}/${VALUE_FILE}`, tensors.slice(numOfModel), { format: 'pt' })
  const text = `${JSON.stringify({ ...config, dtype: DTYPES[type] }, null, 2)}\n`
  await writeWhole(`${folder}/config.json`, [new TextEncoder().encode(text)])
}

/** The files of a folder's weights, and the parameters that are in each. */
async function findShards(folder: string, model: TransformerModel): Promise<Map<string, Parameter[]>> {
  const whole = `${folder}/model.safetensors`
  const wanted = model.parameters.filter((parameter) => !isOfCritic(parameter))
  if (await isThere(whole)) return new Map([[whole, wanted]])
  const indexPath = `${folder}/model.safetensors.index.json`
  const { weight_map: places } = await readJsonObject(indexPath, `it, or ${whole}`)
  if (typeof places !== 'object' || places === null) {
    throw new InputError(`${indexPath}, weight_map`, show(places), 'a file for each tensor')
  }
  const files = new Map(Object.entries(places))
  const shards = new Map<string, Parameter[]>()
  for (const parameter of wanted) {
    const file: unknown = files.get(parameter.name)
    files.delete(parameter.name)
    if (typeof file !== 'string' || /[/\\]/.test(file)) {
      throw new InputError(`${indexPath}, ${parameter.name}`, show(file), 'the name of a file beside it')
    }
    const path = `${folder}/${file}`
    const shard = shards.get(path)
    if (shard) shard.push(parameter)
    else shards.set(path, [parameter])
  }
  const [extra] = files.keys()
  if (extra !== undefined) throw new InputError(indexPath, `tensor ${extra}`, 'only those of the model')
  return shards
}
