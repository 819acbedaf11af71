/** How a language model does: whole conversations under fixed weights, and nothing is learned. */
import type { TextEnvironmentDefinition } from '../environments/text.ts'
import { InputError } from '../errors.ts'
import { quantizedWeightsOf, setWeights } from '../policies/transformer/quantized.ts'
import type { Sampling } from '../policies/transformer/sampling.ts'
import { weightsOf } from '../policies/weights.ts'
import { tensorValues } from '../safetensors.ts'
import type { LanguageModelDefinition } from '../text/language-model.ts'
import { loadAdapter } from '../text-cohort.ts'
import { tick } from '../tick.ts'
import { createWorld } from '../world.ts'
import { readCheckpoint } from './checkpoint.ts'
import { openTextRun, type TextRunDefinition } from './text-run.ts'

/** What `evaluateText` is told. */
export interface TextEvaluateOptions {
  readonly environment: TextEnvironmentDefinition
  readonly policy: LanguageModelDefinition
  /** In place of the policy's own: those of the model, and of its adapter, which may be the folder of a saved one. */
  readonly weights?: Float32Array
  readonly adapter?: Float32Array | string | null
  /** How many conversations: the first of the order that the seed gives to the examples. */
  readonly episodes: number
  readonly seed?: number
  /** Draw tokens instead of taking the most probable. */
  readonly explore?: boolean
  /** The distribution that they are drawn from; default the model's own. */
  readonly sampling?: Partial<Sampling>
}

/** What came of it. */
export interface TextEvaluation {
  readonly episodes: number
  /** Of the rewards that are known; null where none is. */
  readonly reward: { readonly mean: number; readonly std: number; readonly min: number; readonly max: number } | null
  readonly numUnknown: number
  /** Tokens that the model said, on average. */
  readonly completionLength: number
  readonly stopReasons: Readonly<Record<string, number>>
  /** The first few conversations in words: the prompt, and what followed. */
  readonly samples: readonly { readonly prompt: string; readonly completion: string; readonly reward: number | null }[]
}

const NUM_SAMPLES = 5
const LANES_MAX = 64

/**
 * Lets a language model have whole conversations.
 * @throws InputError where options, model and environment do not fit, as `createWorld` does.
 */
export async function evaluateText(options: TextEvaluateOptions): Promise<TextEvaluation> {
  const {
    environment,
    policy,
    weights,
    adapter = null,
    episodes,
    seed = 10_000,
    explore = false,
    sampling = {},
  } = options
  if (!(Number.isSafeInteger(episodes) && episodes >= 1)) {
    throw new InputError('episodes', String(episodes), 'a whole number ≥ 1')
  }
  const numLanes = Math.min(LANES_MAX, episodes)
  const world = await createWorld({ environment, policy, numLanes, seed, explore, sampling })
  const cohort = world.talk()
  if (weights !== undefined) setWeights(cohort.quantized ?? cohort.weights, cohort.model, weights)
  if (typeof adapter === 'string') await loadAdapter(cohort, adapter)
  else if (adapter !== null) setAdapter(cohort.adapter?.weights ?? new Float32Array(0), adapter)
  cohort.released = episodes
  while (cohort.trajectories.count < episodes) {
    const waiting = tick(world)
    if (waiting !== undefined) await waiting
  }
  const { tokenizer, trajectories } = cohort
  const rows = trajectories.order().map((i) => trajectories.row(i))
  const rewards = rows.flatMap(({ reward }) => (reward === null ? [] : [reward]))
  const mean = rewards.reduce((sum, value) => sum + value, 0) / rewards.length
  const said = rows.map(({ token, lossMask }) => Array.from(token).filter((_, t) => lossMask[t] === 1))
  const reasons: Record<string, number> = {}
  for (const { stopReason } of rows) reasons[stopReason] = (reasons[stopReason] ?? 0) + 1
  return {
    episodes,
    reward:
      rewards.length === 0
        ? null
        : {
            mean,
            std: Math.sqrt(rewards.reduce((sum, value) => sum + (value - mean) ** 2, 0) / rewards.length),
            min: rewards.reduce((least, value) => Math.min(least, value)),
            max: rewards.reduce((most, value) => Math.max(most, value)),
          },
    numUnknown: rows.length - rewards.length,
    completionLength: said.reduce((sum, { length }) => sum + length, 0) / rows.length,
    stopReasons: reasons,
    samples: rows.slice(0, NUM_SAMPLES).map(({ token, lossMask, reward, stopReason }) => {
      const begin = Array.from(lossMask).indexOf(1)
      const words = Array.from(token).slice(begin, stopReason === 'stop' ? -1 : undefined)
      return {
        prompt: tokenizer.decode(Array.from(token).slice(0, begin)),
        completion: tokenizer.decode(words),
        reward,
      }
    }),
  }
}

function setAdapter(own: Float32Array, given: Float32Array): void {
  if (own.length !== given.length) {
    throw new InputError('adapter', `${given.length} numbers`, `${own.length}, as the policy has`)
  }
  own.set(given)
}

/** What a run of a language model has come to. */
export interface TrainedModel extends TextRunDefinition {
  readonly weights: Float32Array
  /** The adapter's, where there is one. */
  readonly adapter: Float32Array | null
  readonly sftSteps: number
  readonly updates: number
}

/** The weights of a run's newest checkpoint, and the model and environment that they belong to. */
export async function loadTrainedModel(folder: string): Promise<TrainedModel> {
  const definition = await openTextRun(folder)
  const { tensors, manifest, path } = await readCheckpoint(folder)
  const { policy, environment } = definition
  const { model, adapter: adapted, isQuantized } = await policy.open(environment)
  const subject = `checkpoint ${path}`
  const prefix = `${policy.id}.${isQuantized ? 'quantized' : 'weights'}.`
  const weights = isQuantized
    ? quantizedWeightsOf(subject, tensors, model, prefix)
    : weightsOf(subject, tensors, model, prefix)
  const tensor = tensors.get(`${policy.id}.adapter`)
  const adapter = adapted === null ? null : (tensorValues(tensor!) as Float32Array)
  return { ...definition, weights, adapter, sftSteps: manifest.text!.sftSteps, updates: manifest.text!.rlUpdates }
}
