/** Loads the language model of a run's folder. */
import { checkGiven, InputError } from '../../base/errors.ts'
import { tensorValues } from '../../base/files/safetensors.ts'
import { quantizedWeightsOf } from '../../language/transformer/quantized.ts'
import { weightsOf } from '../../policies/weights.ts'
import { type LoadOptions, readCheckpoint } from '../folder/checkpoint.ts'
import { openConversationRun } from '../run/conversation-run.ts'
import type { ConversationRunDefinition } from '../run/definition.ts'

export interface TrainedModel extends ConversationRunDefinition {
  readonly weights: Float32Array
  /** The adapter's weights, if there is one. */
  readonly adapter: Float32Array | null
  readonly sftSteps: number
  readonly updates: number
}

/** The language model of a run's checkpoint (default: the newest). @throws InputError if it is corrupt. */
export async function loadTrainedModel(folder: string, { from, ...trust }: LoadOptions = {}): Promise<TrainedModel> {
  checkGiven('folder of loadTrainedModel', folder, 'a text')
  const definition = await openConversationRun(folder, trust)
  const { tensors, manifest, path } = await readCheckpoint(folder, from)
  const { policy, environment } = definition
  const { model, adapter: adapted, weightBits } = await policy.open(environment)
  const subject = `checkpoint ${path}`
  const record = manifest.cohorts[policy.id]
  if (record?.kind !== 'conversations')
    throw new InputError(subject, 'a run without a language model', `one of ${policy.id}`)
  const prefix = `${policy.id}.${weightBits === 32 ? 'weights' : 'quantized'}.`
  const weights =
    weightBits === 32
      ? weightsOf(subject, tensors, model, prefix)
      : quantizedWeightsOf(subject, tensors, model, prefix, weightBits)
  const tensor = tensors.get(`${policy.id}.adapter`)
  const adapter = tensor === undefined ? new Float32Array(0) : (tensorValues(tensor) as Float32Array)
  const numExpected = adapted?.numParameters ?? 0
  if (adapter.length !== numExpected) {
    throw new InputError(subject, `an adapter of ${adapter.length} numbers`, `${numExpected}, as its config.json says`)
  }
  return {
    ...definition,
    weights,
    adapter: adapted === null ? null : adapter,
    sftSteps: record.sftSteps,
    updates: record.rlUpdates,
  }
}
