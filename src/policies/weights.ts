/**
 * A policy's weights as a safetensors file with a named tensor per parameter. Weights that are not finite are an error before training
 * starts. A run that begins with `weights=FILE` writes them as its checkpoint 0, so that resuming does not need the file.
 */
import { checkGiven, InputError, show } from '../base/errors.ts'
import { readSafetensors, type Tensor, tensorOf, tensorValues, writeSafetensors } from '../base/files/safetensors.ts'
import type { Parameter, PolicyModel } from './policy.ts'

/** The types that weights may have in a file. */
export const weightTypes = ['F32', 'F16', 'BF16'] as const

/**
 * Writes weights, in f32 or rounded to f16 or bf16. `model` is `policy.build(observationSpace, actionSpace)`.
 * @throws InputError for weights of another length, that are not finite or too large for the type, and a path that cannot be written.
 * @example await saveWeights('weights.safetensors', model, world.cohorts[0].weights)
 */
export async function saveWeights(
  path: string,
  model: PolicyModel,
  weights: Float32Array,
  type: (typeof weightTypes)[number] = 'F32',
  metadata: Readonly<Record<string, string>> = {},
): Promise<void> {
  checkWeights(model, weights)
  if (!weightTypes.includes(type)) throw new InputError('type', show(type), `one of ${weightTypes.join(', ')}`)
  const tensors = model.parameters.map(({ name, offset, shape }) =>
    tensorOf(name, weights.subarray(offset, offset + sizeOf(shape)), shape, type),
  )
  await writeSafetensors(path, tensors, metadata)
}

/** Checks that weights fit the model. @throws InputError for another length, and for a number that is not finite, with its parameter. */
export function checkWeights(model: Pick<PolicyModel, 'numParameters' | 'parameters'>, weights: Float32Array): void {
  checkGiven('model', model, ['parameters'])
  checkGiven('weights', weights, 'a list')
  if (weights.length !== model.numParameters) {
    throw new InputError('weights', `${weights.length} numbers`, `${model.numParameters}, the parameters of the model`)
  }
  for (const { name, offset, shape } of model.parameters) {
    refuseNonFinite('weights', name, weights.subarray(offset, offset + sizeOf(shape)))
  }
}

/**
 * Reads weights for a model; f16 and bf16 become f32 exactly.
 * @throws InputError for a file that is not a safetensors file, for missing or additional tensors, tensors of another shape or type, and
 * numbers that are not finite.
 * @example world.cohorts[0].weights.set(await loadWeights('weights.safetensors', model))
 */
export async function loadWeights(path: string, model: PolicyModel): Promise<Float32Array> {
  return weightsOf(path, (await readSafetensors(path)).tensors, model, '')
}

/** The weights of a model from tensors named by `prefix` and a parameter's name; `subject` is their file in errors. */
export function weightsOf(
  subject: string,
  tensors: ReadonlyMap<string, Tensor>,
  model: Pick<PolicyModel, 'numParameters' | 'parameters'>,
  prefix: string,
): Float32Array {
  const weights = new Float32Array(model.numParameters)
  fillWeights(weights, subject, tensors, model.parameters, prefix)
  return weights
}

/** Fills these parameters from tensors, which must be exactly theirs. */
export function fillWeights(
  weights: Float32Array,
  subject: string,
  tensors: ReadonlyMap<string, Tensor>,
  parameters: readonly Parameter[],
  prefix: string,
): void {
  for (const { name, offset, shape } of parameters) {
    const tensor = tensors.get(prefix + name)
    checkTensor(subject, name, tensor, shape)
    const values = tensorValues(tensor) as Float32Array
    refuseNonFinite(subject, name, values)
    weights.set(values, offset)
  }
  const known = new Set(parameters.map(({ name }) => prefix + name))
  refuseOthers(
    subject,
    [...tensors.keys()].filter((name) => name.startsWith(prefix)),
    known,
  )
}

/** Refuses a tensor that is missing, or whose type or shape is not that of weights. */
export function checkTensor<T extends Pick<Tensor, 'type' | 'shape'>>(
  subject: string,
  name: string,
  tensor: T | undefined,
  shape: readonly number[],
): asserts tensor is T {
  if (weightTypes.some((type) => type === tensor?.type) && show(tensor!.shape) === show(shape)) return
  const got = tensor ? `${name}: ${tensor.type} of shape ${show(tensor.shape)}` : `no ${name}`
  throw new InputError(subject, got, `${name}: ${weightTypes.join(', ')} of shape ${show(shape)}`)
}

/** Refuses names of tensors that are not known. */
export function refuseOthers(subject: string, names: Iterable<string>, known: ReadonlySet<string>): void {
  for (const name of names) {
    if (known.has(name)) continue
    throw new InputError(subject, `tensor ${name}`, `only those of the model: ${[...known].join(', ')}`)
  }
}

/** Refuses elements of a parameter, of which the first is number `from`, that are not finite. */
export function refuseNonFinite(subject: string, name: string, values: Float32Array, from = 0): void {
  const place = values.findIndex((value) => !Number.isFinite(value))
  if (place < 0) return
  throw new InputError(`${subject}, ${name}`, `${values[place]} in element ${from + place}`, 'finite weights')
}

function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, side) => product * side, 1)
}
