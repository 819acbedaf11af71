/** The models recorded in tests/golden/transformer, and transformers at work over columns of their own. */
import { readSafetensors, tensorValues } from '../../../src/base/files/safetensors.ts'
import { Random } from '../../../src/base/random.ts'
import { takeArena, type WasmMemory } from '../../../src/components/arena.ts'
import { column } from '../../../src/components/column.ts'
import { bestKernelBuild, createKernels } from '../../../src/kernels/bind.ts'
import type { KernelBuild, Kernels } from '../../../src/kernels/kernels.ts'
import { decoderPlan, TransformerDecoder } from '../../../src/language/transformer/decoder.ts'
import { loadTransformer } from '../../../src/language/transformer/folder.ts'
import type { LoraAdapter, LoraModel } from '../../../src/language/transformer/lora.ts'
import type { TransformerModel, WeightBits } from '../../../src/language/transformer/model.ts'
import { PackedTransformer, packedPlan } from '../../../src/language/transformer/packed.ts'
import { type BaseWeights, quantizedPlan, setWeights } from '../../../src/language/transformer/quantized.ts'
import { fromStored } from '../../../src/language/transformer/storage.ts'
import { isThorough } from '../../support/tiers.ts'

export const families = [
  ...[
    'llama',
    'smollm',
    'qwen2',
    'qwen3',
    'llama3',
    'smollm3',
    'mistral',
    'phi3',
    'gemma',
    'gemma2',
    'gemma3',
    'olmo2',
  ],
  ...['granite', 'glm4', 'stablelm', 'stablelm-parallel', 'phi', 'gpt2', 'mixtral', 'qwen2-moe', 'qwen3-moe', 'olmoe'],
] as const
/** Those whose logits have no jumps: where a row begins to choose another expert, finite differences tell no gradient. */
export const smoothFamilies = families.filter((family) => !/mixtral|moe/.test(family))
/** `native` takes the place of `relaxed`, whose bits it leaves. */
export const builds: readonly KernelBuild[] = [...new Set(['plain', 'simd', bestKernelBuild()] as const)]

/** Of each kind of block one: what costs most has only these in the fast tier. */
const KINDS = ['llama', 'qwen2', 'gemma3', 'glm4', 'gpt2', 'qwen3-moe']
export const isChosen = (family: string) => isThorough || KINDS.includes(family)
export const kinds = families.filter(isChosen)
/** In the fast tier every family by the best build, and two by the others, whose kernels tests/kernels compares. */
export const cases = families.flatMap((family) => buildsOf(family).map((build) => [family, build] as const))

/** The builds by which a family is tried. */
export function buildsOf(family: string): readonly KernelBuild[] {
  return isThorough || family === 'llama' || family === 'qwen3-moe' ? builds : builds.slice(-1)
}

/** Where a family's recorded model lies. */
export function goldenFolder(family: string): string {
  return new URL(`../../golden/transformer/${family}`, import.meta.url).pathname
}

/** A recorded model, and what `transformers` made of it. */
export async function golden(family: string) {
  const folder = goldenFolder(family)
  const { model, weights } = await loadTransformer(folder)
  const { tensors } = await readSafetensors(`${folder}/expected.safetensors`)
  const take = (name: string) => tensorValues(tensors.get(name)!)
  const named = [...tensors].flatMap(([name, tensor]) =>
    name.startsWith('gradient.') ? [[name.slice('gradient.'.length), tensor] as const] : [],
  )
  const gradients = fromStored(model, folder, new Map(named), model.parameters)
  const lengths = take('lengths') as Int32Array
  const offsets = [0]
  for (const length of lengths) offsets.push(offsets.at(-1)! + length)
  return {
    model,
    weights,
    offsets,
    tokens: take('tokens') as Int32Array,
    logits: take('logits') as Float32Array,
    dLogprob: take('dLogprob') as Float32Array,
    dEntropy: take('dEntropy') as Float32Array,
    /** Not there for GPT-2 and Gemma 3. */
    positions: tensors.has('positions') ? (take('positions') as Int32Array) : null,
    cosine: tensors.has('cosine') ? (take('cosine') as Float32Array) : null,
    sine: tensors.has('sine') ? (take('sine') as Float32Array) : null,
    gradient: (name: string) => tensorValues(gradients.get(name)!) as Float32Array,
  }
}

/** An adapter and its weights. */
interface Adapted {
  readonly model: LoraModel
  readonly weights: Float32Array
}

function place(column: Float32Array, adapted: Adapted | undefined): LoraAdapter | null {
  if (adapted === undefined) return null
  column.set(adapted.weights)
  return { lora: adapted.model, weights: column, random: new Random(6) }
}

/** A packed transformer, its weights and a gradient in one arena. */
export function packed(
  model: TransformerModel,
  given: Float32Array,
  build: KernelBuild,
  rows = 64,
  context = 40,
  adapted?: Adapted,
  weightBits: WeightBits = 32,
) {
  const lora = adapted?.model ?? null
  const plan = {
    weights: weightBits === 32 ? column('f32', model.numParameters) : quantizedPlan(model, weightBits),
    gradient: column('f32', (lora ?? model).numParameters),
    adapter: column('f32', lora?.numParameters ?? 0),
    packed: packedPlan(model, rows, context, lora, weightBits),
  }
  const { arena, columns } = takeArena(plan)
  setWeights(columns.weights as BaseWeights, model, given)
  const kernels = createKernels(arena.memory, build)
  const { gradient } = columns
  const weights = columns.weights as BaseWeights
  const adapter = place(columns.adapter, adapted)
  const network = new PackedTransformer(model, weights, columns.packed, kernels, adapter)
  // One column, but for weights in 8 bits, which no test writes into.
  return { network, weights: weights as Float32Array, gradient, adapter: columns.adapter }
}

/** A decoder and its weights in one arena, with kernels of a build, or those that a function gives. */
export function decoder(
  model: TransformerModel,
  given: Float32Array,
  build: KernelBuild | ((memory: WasmMemory) => Kernels),
  slots = 4,
  context = 40,
  adapted?: Adapted,
  weightBits: WeightBits = 32,
) {
  const lora = adapted?.model ?? null
  const plan = {
    weights: weightBits === 32 ? column('f32', model.numParameters) : quantizedPlan(model, weightBits),
    adapter: column('f32', lora?.numParameters ?? 0),
    decoder: decoderPlan(model, slots, context, lora, weightBits),
  }
  const { arena, columns } = takeArena(plan)
  setWeights(columns.weights as BaseWeights, model, given)
  const kernels = typeof build === 'string' ? createKernels(arena.memory, build) : build(arena.memory)
  const adapter = place(columns.adapter, adapted)
  return new TransformerDecoder(model, columns.weights as BaseWeights, columns.decoder, kernels, new Random(5), adapter)
}
