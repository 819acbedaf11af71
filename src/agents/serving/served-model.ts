/** A served language model: its weights in memory, its engine, and its names. */
import { checkCount, InputError, show } from '../../base/errors.ts'
import { Random } from '../../base/random.ts'
import { column, type Plan } from '../../components/column.ts'
import type { EngineContext, EngineDefinition } from '../../engines/engine.ts'
import { LocalEngine } from '../../engines/local/local.ts'
import { localEnginePlan } from '../../engines/local/local-columns.ts'
import { defineTextEnvironment, type TextEnvironmentDefinition } from '../../environments/text.ts'
import type { LanguageModelDefinition } from '../../language/language-model.ts'
import type { Tokenizer } from '../../language/tokenizers/tokenizer.ts'
import { startAdapter } from '../../language/transformer/dora.ts'
import { takeColumns } from '../../language/transformer/memory.ts'
import {
  type BaseWeights,
  quantizedPlan,
  rowTaker,
  setWeights,
  startWeights,
} from '../../language/transformer/quantized.ts'
import { Batcher } from './batcher.ts'
import { ServedWeights } from './served-weights.ts'
import { writesCalls } from './tools.ts'

/** The served model, and its number of concurrent turns. */
export interface ServedModelOptions {
  readonly policy: LanguageModelDefinition
  /** Replaces the policy's own weights, of the model and its adapter. */
  readonly weights?: Float32Array
  readonly adapter?: Float32Array | null
  /** The task of a new model, whose characters its tokenizer knows. */
  readonly environment?: TextEnvironmentDefinition
  readonly seed?: number
  /** Concurrent turns; default 8. Further ones wait. */
  readonly slots?: number
  /** Waiting turns; default 256. Further ones are refused. */
  readonly queue?: number
  /** Maximum tokens of a prompt and its answer; default and maximum: the policy's. */
  readonly context?: number
}

/** A generator of answers: an engine with a queue, and the model's tokenizer. */
export interface ServedModel {
  readonly name: string
  readonly tokenizer: Tokenizer
  readonly writesCalls: boolean
  /** Maximum tokens of a prompt and its answer. */
  readonly context: number
  readonly vocabularySize: number
  readonly batcher: Batcher
}

export interface OpenedModel extends ServedModel {
  /** Tensors that were left out, one sentence each. */
  readonly notes: readonly string[]
}

/** A model whose engine runs in this process. */
export interface OpenedLocalModel extends OpenedModel {
  readonly weights: ServedWeights
}

/** Replaces a task: the tokenizer has all bytes, or is the model folder's. */
const noTask = defineTextEnvironment({
  id: 'served',
  settings: {},
  make: () => ({ numExamples: 1, example: () => ({ prompt: 'x' }), respond: () => ({ reward: null }) }),
})

/** Opens a model with an engine in this process. @throws InputError if model, weights and numbers do not fit. */
export async function openServedModel(name: string, options: ServedModelOptions): Promise<OpenedLocalModel> {
  const { context, takes, weights, ...model } = await openModel(options, localEnginePlan)
  const engine = new LocalEngine(context)
  const batcher = new Batcher(engine, context.numSlots, takes.queue)
  return {
    ...{ name, ...model, batcher },
    context: context.context,
    weights: new ServedWeights(name, engine, { model: context.model, weights, adapter: context.adapter }),
  }
}

/** Opens a model that another engine runs, like a server. @throws InputError if the options do not fit the model. */
export async function openModelOf(
  name: string,
  definition: EngineDefinition,
  options: ServedModelOptions,
): Promise<OpenedModel> {
  const { context, takes, weights: _, ...model } = await openModel(options, (shape) => definition.plan?.(shape) ?? {})
  const batcher = new Batcher(definition.create(context), context.numSlots, takes.queue)
  return { ...{ name, ...model, batcher }, context: context.context }
}

/** Reads a model and prepares what its engine needs. */
export async function openModel(options: ServedModelOptions, plan: NonNullable<EngineDefinition['plan']>) {
  const { policy, environment = noTask(), seed = 0, slots = 8, queue = 256 } = options
  checkCount('slots', slots)
  checkCount('queue', queue, 0)
  const { model, tokenizer, adapter: lora, weightBits, context: most, openWeights } = await policy.open(environment)
  const { context = most } = options
  if (!(Number.isSafeInteger(context) && context >= 2 && context <= most)) {
    throw new InputError('context', show(context), `a whole number from 2 to ${most}, as the policy has`)
  }
  const begins = await openWeights()
  const shape = { model, adapter: lora, weightBits, numSlots: slots, context, threads: 1 }
  const { columns, kernels } = takeColumns({
    weights: column('f32', weightBits === 32 ? model.numParameters : 0),
    quantized: (weightBits === 32 ? {} : quantizedPlan(model, weightBits)) as Plan,
    adapter: column('f32', lora?.numParameters ?? 0),
    ids: column('i32', slots * context),
    engine: plan(shape),
  })
  const random = new Random(seed)
  const weights = (weightBits < 32 ? columns.quantized : columns.weights) as BaseWeights
  if (begins.fill === null) startWeights(weights, model, random, 0)
  else begins.fill(rowTaker(model, weights))
  if (options.weights !== undefined) setWeights(weights, model, options.weights)
  if (lora !== null)
    takeAdapter(columns.adapter, options.adapter ?? begins.adapter, () =>
      startAdapter(lora, columns.adapter, random, 0, weights),
    )
  else if ((options.adapter ?? null) !== null) throw new InputError('adapter', 'one', 'none, as the policy has')
  const adapter = lora === null ? null : { lora, weights: columns.adapter, random }
  const engineContext: EngineContext = {
    ...{ model, tokenizer, numSlots: slots, context },
    ...{ sampling: { temperature: 1, topK: 0, topP: 1, minP: 0 }, explore: true, stopStrings: [] },
    ...{ columns: columns.engine, ids: columns.ids, weights },
    ...{ adapter, kernels, random },
    tell: (message) => console.error(message),
  }
  return {
    ...{ tokenizer, notes: begins.notes, weights, context: engineContext, takes: { queue } },
    writesCalls: writesCalls(tokenizer),
    vocabularySize: model.shape.vocabularySize,
  }
}

function takeAdapter(own: Float32Array, given: Float32Array | null, initialize: () => void): void {
  if (given === null) {
    initialize()
    return
  }
  if (given.length !== own.length) {
    throw new InputError('adapter', `${given.length} numbers`, `${own.length}, as the policy has`)
  }
  own.set(given)
}
