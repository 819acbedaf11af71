/** A language model in one GGUF file: network, tokenizer, and weights, which become f32. */
import { InputError, show } from '../../base/errors.ts'
import type { Pieces } from '../../base/files/disk.ts'
import type { Parameter } from '../../policies/policy.ts'
import { refuseNonFinite, refuseOthers } from '../../policies/weights.ts'
import { type TokenizerOptions, tokenizerOf } from '../tokenizers/load-tokenizer.ts'
import type { Tokenizer } from '../tokenizers/tokenizer.ts'
import { isOfCritic, type OpenWeights } from '../transformer/folder.ts'
import { type TransformerModel, transformer } from '../transformer/model.ts'
import { sizeOf } from '../transformer/parameters.ts'
import { partsOfRows } from '../transformer/storage.ts'
import { type Gguf, type GgufTensor, readGguf, readRows, withFile } from './file.ts'
import { configOf, ggufName, headsOf, inHalves, turned } from './names.ts'
import { tokenizerFiles } from './tokenizer.ts'

/** The tensor of the factors by which RoPE's frequencies are divided. */
const ROPE_FACTORS = 'rope_freqs.weight'

export interface OpenGguf {
  readonly model: TransformerModel
  readonly tokenizer: Tokenizer
  openWeights(): Promise<OpenWeights>
}

/**
 * Opens a file of the types F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K. Weights of fewer bits become f32, with the numbers that llama.cpp
 * computes with, or what `quantize` says.
 * @throws InputError for a file that is missing or damaged, of a family, type or tokenizer that is not known, and for tensors that are
 * missing, unknown or of another shape.
 */
export async function openGguf(
  path: string,
  { valueHead = false, ...options }: TokenizerOptions & { readonly valueHead?: boolean } = {},
): Promise<OpenGguf> {
  const gguf = readGguf(path)
  const factors = gguf.tensors.get(ROPE_FACTORS)
  const rope = factors ? [...withFile(path, (file) => readRows(file, factors, 0, 1))] : null
  const { family, config } = configOf(gguf, rope)
  const model = transformer(config, { subject: path, valueHead })
  const tokenizer = await tokenizerOf(path, tokenizerFiles(gguf), options)
  const places = findPlaces(gguf, model)
  return {
    model,
    tokenizer,
    async openWeights() {
      return {
        notes: [],
        fill(take) {
          withFile(path, (file) => {
            for (const place of places) {
              const { parameter } = place
              for (const [values, row] of partsOf(file, place, family.paired === true, model)) {
                if (family.normOffset !== undefined && parameter.shape.length === 1) {
                  for (let i = 0; i < values.length; i++) values[i] = values[i]! - family.normOffset
                }
                refuseNonFinite(path, parameter.name, values, (row * sizeOf(parameter)) / parameter.shape[0]!)
                take(parameter, values, row)
              }
            }
          })
        },
      }
    },
  }
}

/** Where a parameter lies: rows of a tensor, from `firstRow` on. */
interface Place {
  readonly parameter: Parameter
  readonly tensor: GgufTensor
  readonly firstRow: number
}

function findPlaces({ path, tensors }: Gguf, model: TransformerModel): Place[] {
  const known = new Set([ROPE_FACTORS])
  const places = model.parameters
    .filter((parameter) => !isOfCritic(parameter))
    .map((parameter): Place => {
      const { stored, expert } = ggufName(parameter.name)
      const tensor = tensors.get(stored)
      const { shape } = parameter
      const { experts } = model.shape
      const expected = expert === null ? shape : [experts!.count, ...shape]
      // A row alone may be a matrix or a vector.
      const sides = (all: readonly number[]) => show(all.slice(all.findIndex((side) => side !== 1)))
      if (tensor === undefined || sides(tensor.shape) !== sides(expected)) {
        const got = tensor ? `${stored} of shape ${show(tensor.shape)}` : `no ${stored}`
        throw new InputError(path, got, `${stored} of shape ${show(expected)}`)
      }
      known.add(stored)
      return { parameter, tensor, firstRow: (expert ?? 0) * shape[0]! }
    })
  refuseOthers(path, tensors.keys(), known)
  return places
}

/** A parameter's values in f32, a few rows at a time, with the number of the first. */
function* partsOf(
  file: Pieces,
  { parameter, tensor, firstRow }: Place,
  isPaired: boolean,
  { shape }: TransformerModel,
): Generator<[values: Float32Array, firstRow: number]> {
  const isVector = parameter.shape.length === 1
  const numRows = isVector ? 1 : parameter.shape[0]!
  const numHeads = isPaired ? headsOf(parameter, shape) : null
  if (isVector || numHeads !== null) {
    const values = readRows(file, tensor, firstRow, firstRow + numRows)
    yield [numHeads === null ? values : turned(values, numHeads, shape.headWidth, inHalves), 0]
    return
  }
  for (const [from, to] of partsOfRows(numRows, sizeOf(parameter) / numRows)) {
    yield [readRows(file, tensor, firstRow + from, firstRow + to), from]
  }
}
