/** Reads and checks the model inputs and datums of Tinker's protocol. */
import { show } from '../../base/errors.ts'
import type { PassInput } from '../../engines/tinker/tinker-codec.ts'
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
  readonly inputs: LossInputs
}

/** @throws RequestError 400 for invalid datums, and unless there is one target per token. */
export function readDatums(input: PassInput | undefined, context: number): Datum[] {
  const data = input?.data
  if (!Array.isArray(data) || data.length === 0 || data.length > MAX_DATUMS) {
    throw badField('data', Array.isArray(data) ? `${data.length} datums` : data, `1 to ${MAX_DATUMS} datums`)
  }
  return (data as (PassInput['data'][number] | null)[]).map((datum, index) => {
    const tokens = tokensOf(`data[${index}].model_input`, datum?.model_input)
    const { target_tokens: targets, ...others } = datum!.loss_fn_inputs ?? {}
    for (const [name, tensor] of Object.entries(datum!.loss_fn_inputs ?? {})) {
      const isDense = Array.isArray(tensor?.data) && tensor.dtype !== 'sparse'
      if (!isDense) throw badField(`data[${index}].${name}`, tensor?.dtype ?? tensor, 'a dense tensor')
    }
    if (tokens.length === 0 || tokens.length > context) {
      throw badField(`data[${index}].model_input`, `${tokens.length} tokens`, `1 to ${context}`)
    }
    const got = targets === undefined ? 'none' : `shape ${show(targets.shape ?? [targets.data.length])}`
    if (targets?.data.length !== tokens.length) {
      throw badField(`data[${index}].target_tokens`, got, `shape [${tokens.length}], a target per token`)
    }
    const inputs = Object.fromEntries(Object.entries(others).map(([name, { data }]) => [name, data]))
    return { input: tokens, targets: targets.data, inputs }
  })
}

/** @throws RequestError 400 for inputs that are unknown to the loss, missing, of another length or not finite. */
export function checkInputs(index: number, { needs, takes }: TinkerLoss, inputs: LossInputs, length: number): void {
  for (const name of needs) {
    if (inputs[name] === undefined) throw badField(`data[${index}].loss_fn_inputs`, Object.keys(inputs), name)
  }
  for (const [name, values] of Object.entries(inputs)) {
    const subject = `data[${index}].${name}`
    if (!needs.includes(name) && !takes.includes(name)) {
      throw badField(subject, 'an input that the loss does not take', [...needs, ...takes].join(', '))
    }
    const isOne = name.startsWith('clip_') && values.length === 1
    if (values.length !== length && !isOne) throw badField(subject, `${values.length} numbers`, String(length))
    for (let t = 0; t < values.length; t++) {
      if (!Number.isFinite(values[t])) throw badField(`${subject}[${t}]`, values[t], 'a finite number')
    }
  }
}
