/** Reads and checks the model inputs and datums of Tinker's protocol. */
import { show } from '../../base/errors.ts'
import type { PassInput, Tensor } from '../../engines/tinker/tinker-codec.ts'
import { badField, idsField } from '../serving/fields.ts'
import type { LossInputs, TinkerLoss } from './tinker-losses.ts'

/** Maximum datums per request. */
export const MAX_DATUMS = 1024

/** The tokens of a model input. @throws RequestError 400 for anything but text. */
export function tokensOf(subject: string, input: unknown, vocabularySize = Number.MAX_SAFE_INTEGER): number[] {
  const chunks = (input as { chunks?: unknown } | null | undefined)?.chunks
  if (!Array.isArray(chunks)) throw badField(`${subject}.chunks`, chunks, 'a list of chunks of text')
  const tokens = chunks.flatMap((chunk: { type?: unknown; tokens?: unknown }) => {
    if ((chunk?.type ?? 'encoded_text') === 'encoded_text' && Array.isArray(chunk?.tokens)) return chunk.tokens
    throw badField(`${subject}.chunks`, chunk?.type ?? chunk, 'encoded_text: this model reads no images or sound')
  })
  return Array.from(idsField(subject, tokens, vocabularySize))
}

/** Tokens, their targets, and further inputs of the loss. */
export interface Datum {
  readonly input: readonly number[]
  readonly targets: ArrayLike<number>
  /** [tokens], or [tokens, targets per token]. */
  readonly shape: readonly number[]
  /** Targets per token. */
  readonly each: number
  readonly inputs: LossInputs
}

/** @throws RequestError 400 for invalid datums, and unless each token has a target, or the same number of them. */
export function readDatums(input: PassInput | undefined, context: number): Datum[] {
  const data = input?.data
  if (!Array.isArray(data) || data.length === 0 || data.length > MAX_DATUMS) {
    throw badField('data', Array.isArray(data) ? `${data.length} datums` : data, `1 to ${MAX_DATUMS} datums`)
  }
  let left = MAX_NUMBERS
  return (data as (PassInput['data'][number] | null)[]).map((datum, index) => {
    const tokens = tokensOf(`data[${index}].model_input`, datum?.model_input)
    if (tokens.length === 0 || tokens.length > context) {
      throw badField(`data[${index}].model_input`, `${tokens.length} tokens`, `1 to ${context}`)
    }
    const tensors = Object.entries(datum!.loss_fn_inputs ?? {}).map(([name, tensor]) => {
      const dense = denseOf(`data[${index}].${name}`, tensor, left)
      left -= dense.data.length
      return [name, dense] as const
    })
    const { target_tokens: targets, ...others } = Object.fromEntries(tensors)
    const [rows, each = 1, ...more] = targets?.shape ?? []
    if (rows !== tokens.length || each < 1 || more.length > 0) {
      const got = targets === undefined ? 'none' : `shape ${show(targets.shape)}`
      const expected = `shape [${tokens.length}] or [${tokens.length}, K], targets for each token`
      throw badField(`data[${index}].target_tokens`, got, expected)
    }
    for (const [name, { shape }] of Object.entries(others)) {
      if (shape.length < 2 || show(shape) === show(targets!.shape)) continue
      throw badField(`data[${index}].${name}`, `shape ${show(shape)}`, `shape ${show(targets!.shape)}`)
    }
    const inputs = Object.fromEntries(Object.entries(others).map(([name, { data }]) => [name, data]))
    return { input: tokens, targets: targets!.data, shape: targets!.shape, each, inputs }
  })
}

/** Maximum numbers of a request's inputs, the zeros of sparse ones included. */
const MAX_NUMBERS = 2 ** 24

/** The numbers of an input, the zeros of a sparse one included. @throws RequestError 400 */
function denseOf(subject: string, tensor: Partial<Tensor> | null, most: number): Pick<Tensor, 'data' | 'shape'> {
  const { data, shape, sparse_crow_indices: crow, sparse_col_indices: columns } = tensor ?? {}
  if (!Array.isArray(data)) throw badField(subject, tensor, 'a tensor')
  const isSparse = (crow ?? columns ?? null) !== null
  const sizes = isSparse || (shape ?? []).length > 0 ? (shape ?? []) : [data.length]
  const size =
    Array.isArray(sizes) && sizes.every((each) => Number.isSafeInteger(each) && each >= 0) ? product(sizes) : -1
  if (size < 0 || (!isSparse && size !== data.length)) {
    throw badField(subject, `${data.length} numbers of shape ${show(shape)}`, 'as many as the shape says')
  }
  if (size > most) throw badField(subject, `shape ${show(shape)}`, `at most ${MAX_NUMBERS} numbers in a request`)
  if (!isSparse) return { data, shape: sizes }
  const [numRows, numColumns] = sizes as [number, number]
  const isIndex = (list: unknown, length: number, most: number): list is number[] =>
    Array.isArray(list) &&
    list.length === length &&
    list.every((each) => Number.isSafeInteger(each) && each >= 0 && each <= most)
  const isRight =
    sizes.length === 2 &&
    isIndex(crow, numRows + 1, data.length) &&
    isIndex(columns, data.length, numColumns - 1) &&
    crow[0] === 0 &&
    crow.at(-1) === data.length &&
    crow.every((each, row) => row === 0 || each >= crow[row - 1]!)
  if (!isRight) throw badField(subject, 'indices that do not fit its shape and values', 'rows in compressed form (CSR)')
  const dense = new Array<number>(size).fill(0)
  for (let row = 0; row < numRows; row++) {
    for (let at = crow[row]!; at < crow[row + 1]!; at++) dense[row * numColumns + columns[at]!] = data[at] as number
  }
  return { data: dense, shape: sizes }
}

const product = (sizes: readonly number[]) => sizes.reduce((a, b) => a * b, 1)

/**
 * @throws RequestError 400 for inputs that are unknown to the loss, missing, of another length or not finite, and for several
 * targets per token unless the loss takes them.
 */
export function checkInputs(index: number, name: string, loss: TinkerLoss, datum: Datum): void {
  const { needs, takes } = loss
  const { inputs, targets, shape, each } = datum
  if (each > 1 && loss.takesSeveralTargets !== true) {
    throw badField(`data[${index}].target_tokens`, `shape ${show(shape)}`, `a target per token for ${name}`)
  }
  for (const need of needs) {
    if (inputs[need] === undefined) throw badField(`data[${index}].loss_fn_inputs`, Object.keys(inputs), need)
  }
  for (const [key, values] of Object.entries(inputs)) {
    const subject = `data[${index}].${key}`
    if (!needs.includes(key) && !takes.includes(key)) {
      throw badField(subject, 'an input that the loss does not take', [...needs, ...takes].join(', '))
    }
    const isOne = key.startsWith('clip_') && values.length === 1
    if (values.length !== targets.length && !isOne) {
      throw badField(subject, `${values.length} numbers`, String(targets.length))
    }
    for (let t = 0; t < values.length; t++) {
      if (!Number.isFinite(values[t])) throw badField(`${subject}[${t}]`, values[t], 'a finite number')
    }
  }
}
