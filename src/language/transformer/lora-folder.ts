/** Adapters in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`; a value head is separate. */
import { InputError, show } from '../../base/errors.ts'
import { isThere, readJsonObject, writeWhole } from '../../base/files/files.ts'
import { readSafetensors, tensorOf, writeSafetensors } from '../../base/files/safetensors.ts'
import { checkWeights, fillWeights } from '../../policies/weights.ts'
import { isOfCritic, VALUE_FILE } from './folder.ts'
import { type LoraModel, lora } from './lora.ts'
import type { TransformerModel } from './model.ts'
import { type ProjectionName, viewParameters } from './parameters.ts'

/** The file with an adapter's settings. `saveLora` writes it last, so a folder that has it is complete. */
export const LORA_CONFIG = 'adapter_config.json'
const PREFIX = 'base_model.model.'

/** Configuration keys of other kinds of adapter, with the values that ours have. */
const PLAIN = {
  bias: 'none',
  fan_in_fan_out: false,
  use_qalora: false,
  lora_bias: false,
  modules_to_save: null,
  layer_replication: null,
  exclude_modules: null,
  target_parameters: null,
  trainable_token_indices: null,
} as const

/**
 * Writes an adapter's folder, in f32. `baseModel` is the name or folder of the adapter's model; PEFT looks it up.
 * @throws InputError for weights that are of another length or not finite, or a folder that cannot be written.
 * @example
 * const { lora, weights } = world.cohort().adapter
 * await saveLora('adapters/sums', lora, weights)
 */
export async function saveLora(
  folder: string,
  model: LoraModel,
  weights: Float32Array,
  baseModel: string | null = null,
): Promise<void> {
  checkWeights(model, weights)
  const { rank, alpha, dropout, targets, layers = null, rankStabilized = false, magnitude = false } = model.settings
  const views = viewParameters(model.parameters, weights)
  const tensorsOf = (ofCritic: boolean, prefix: string) =>
    model.parameters.flatMap((parameter, index) =>
      isOfCritic(parameter) === ofCritic ? [tensorOf(prefix + parameter.name, views[index]!, parameter.shape)] : [],
    )
  await writeSafetensors(`${folder}/adapter_model.safetensors`, tensorsOf(false, PREFIX), { format: 'pt' })
  if (model.base.hasValueHead) {
    await writeSafetensors(`${folder}/${VALUE_FILE}`, tensorsOf(true, ''), { format: 'pt' })
  }
  const config = {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: baseModel,
    r: rank,
    lora_alpha: alpha,
    lora_dropout: dropout,
    target_modules: targets,
    ...{ bias: 'none', fan_in_fan_out: false, use_rslora: rankStabilized, use_dora: magnitude, modules_to_save: null },
    layers_to_transform: layers,
    ...{ init_lora_weights: true, inference_mode: true, rank_pattern: {}, alpha_pattern: {} },
  }
  await writeWhole(`${folder}/${LORA_CONFIG}`, [new TextEncoder().encode(`${JSON.stringify(config, null, 2)}\n`)])
}

/**
 * Opens an adapter's folder for a model and reads its configuration only.
 * @throws InputError for an adapter of another kind (with patterns, trained modules or biases), or with
 * settings that `lora` refuses.
 */
export async function openLora(
  folder: string,
  base: TransformerModel,
): Promise<{ readonly model: LoraModel; readWeights(): Promise<Float32Array> }> {
  const configPath = `${folder}/${LORA_CONFIG}`
  const config = await readJsonObject(configPath)
  const refuse = (name: string, expected: string) =>
    new InputError(`${configPath}, ${name}`, show(config[name]), expected)
  if (config.peft_type !== 'LORA') throw refuse('peft_type', '"LORA"')
  for (const [name, value] of Object.entries(PLAIN)) {
    const given = config[name] ?? value
    if (given !== value && !(Array.isArray(given) && given.length === 0)) throw refuse(name, show(value))
  }
  for (const name of ['rank_pattern', 'alpha_pattern']) {
    if (Object.keys(config[name] ?? {}).length > 0) throw refuse(name, 'one rank and one alpha')
  }
  const { target_modules: targets, r, lora_alpha: alpha, lora_dropout: dropout = 0 } = config
  const { use_rslora: rankStabilized, layers_to_transform: some } = config
  const layers = typeof some === 'number' ? [some] : Array.isArray(some) ? some.toSorted((a, b) => a - b) : undefined
  if (layers === undefined && some !== undefined && some !== null)
    throw refuse('layers_to_transform', 'a list of layers')
  if (!Array.isArray(targets)) throw refuse('target_modules', 'a list of projections')
  const settings = {
    ...{ rank: r as number, alpha: alpha as number, dropout: dropout as number, targets: targets as ProjectionName[] },
    ...(layers !== undefined && layers.length > 0 && { layers: layers as number[] }),
    rankStabilized: rankStabilized === true,
    magnitude: config.use_dora === true,
  }
  const model = lora(base, settings)
  return { model, readWeights: () => readLoraWeights(folder, model) }
}

/** Reads a model's adapter. @throws InputError as `openLora` does, and for a missing, damaged or incomplete file. */
export async function loadLora(
  folder: string,
  base: TransformerModel,
): Promise<{ model: LoraModel; weights: Float32Array }> {
  const { model, readWeights } = await openLora(folder, base)
  return { model, weights: await readWeights() }
}

async function readLoraWeights(folder: string, model: LoraModel): Promise<Float32Array> {
  const weights = new Float32Array(model.numParameters)
  const path = `${folder}/adapter_model.safetensors`
  const { tensors } = await readSafetensors(path)
  for (const name of tensors.keys()) {
    if (!name.startsWith(PREFIX)) throw new InputError(path, `tensor ${name}`, `only names that begin with ${PREFIX}`)
  }
  const ofAdapter = model.parameters.filter((parameter) => !isOfCritic(parameter))
  fillWeights(weights, path, tensors, ofAdapter, PREFIX)
  const valuePath = `${folder}/${VALUE_FILE}`
  if (model.base.hasValueHead && (await isThere(valuePath))) {
    const { tensors: ofCritic } = await readSafetensors(valuePath)
    fillWeights(weights, valuePath, ofCritic, model.parameters.filter(isOfCritic), '')
  }
  return weights
}

/**
 * Reads an adapter's folder into an existing adapter of the same model, rank, alpha and targets. Its dropout does not
 * matter. A value head that the folder lacks begins at 0, as with `loadLora`.
 * @throws InputError as `loadLora` does, and for another rank, alpha or targets.
 */
export async function loadLoraWeights(folder: string, own: LoraModel): Promise<Float32Array> {
  const { model, weights } = await loadLora(folder, own.base)
  const [came, expected] = [describe(model), describe(own)]
  if (came !== expected) throw new InputError(`adapter ${folder}`, came, `${expected}, as the policy has`)
  return weights
}

/** The settings that two adapters must share for one to take the other's weights. */
function describe({ settings: { rank, alpha, targets, layers, rankStabilized, magnitude } }: LoraModel): string {
  const some = layers === undefined ? '' : `, layers ${layers.join(', ')}`
  return `rank ${rank}, alpha ${alpha}, targets ${targets.join(', ')}${some}${rankStabilized ? ', rank-stabilized' : ''}${magnitude ? ', with magnitudes' : ''}`
}
