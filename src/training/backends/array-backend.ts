/** Backends whose weights are one array share reference, optimizer, norms and checkpoints (safetensors files). */
import { optimizerPlan } from '../../algorithms/optimizers/optimizer.ts'
import type { TokenBatch } from '../../algorithms/tokens/token-batch.ts'
import type { TokensSaid } from '../../algorithms/tokens/token-thread.ts'
import { TrainedArray } from '../../algorithms/trained-array.ts'
import { checkGiven, InputError } from '../../base/errors.ts'
import { readSafetensors, tensorOf, tensorValues, writeSafetensors } from '../../base/files/safetensors.ts'
import { takeArena } from '../../components/arena.ts'
import { column } from '../../components/column.ts'
import { createKernels } from '../../kernels/bind.ts'
import type { BackendContext, BackendDefinition, BackwardOptions, LossDerivatives } from './backend.ts'
import { type BackendWork, defineBackend } from './define-backend.ts'

/** A model of tokens whose weights are one array. */
export interface ArrayModel {
  /** The initial weights, which are copied. */
  readonly weights: Float32Array
  /** The forward pass under `weights` (the model's or the reference's), as in `TrainingBackend.forward`. */
  forward(weights: Float32Array, batch: TokenBatch, temperature: number, said: TokensSaid): void | Promise<void>
  /** Adds the gradient of these loss derivatives by each weight to `gradient`, which begins at 0. */
  backward(
    weights: Float32Array,
    batch: TokenBatch,
    derivatives: LossDerivatives,
    options: BackwardOptions,
    gradient: Float32Array,
  ): void | Promise<void>
}

/** A backend from such a model. `create` is called once per training cohort. Errors: InputError for a policy with frozen parameters. */
export function defineArrayBackend(id: string, create: (context: BackendContext) => ArrayModel): BackendDefinition {
  return defineBackend(id, (context) => {
    if (context.model.parameters.some(({ isFrozen }) => isFrozen === true)) {
      throw new InputError('languageModel.trainable', `names, with backend ${id}`, 'none: it trains all its weights')
    }
    const model = create(context)
    const { length } = model.weights
    const { arena, columns } = takeArena({
      weights: column('f32', length),
      gradient: column('f32', length),
      optimizer: optimizerPlan(context, length),
      reference: column('f32', length),
    })
    const { weights, gradient, reference } = columns
    weights.set(model.weights)
    return {
      ...arrayWork(id, new TrainedArray(weights, columns, createKernels(arena.memory, context.kernelBuild))),
      forward: (batch, whose, temperature, said) =>
        model.forward(whose === 'policy' ? weights : reference, batch, temperature, said),
      backward(batch, derivatives, options) {
        gradient.fill(0)
        return model.backward(weights, batch, derivatives, options, gradient)
      },
    }
  })
}

/** The shared part of array backends. A checkpoint's name is the path of a safetensors file. */
export function arrayWork(id: string, trained: TrainedArray): Omit<BackendWork, 'forward' | 'backward'> {
  const { weights } = trained
  return {
    refusesUnchanged: (call) => call !== 'optimStep', // Only a step writes to the weights.
    start: () => trained.start(),
    optimStep: (settings, learningRate, maxNorm) => trained.descend(settings, learningRate, maxNorm),
    async saveCheckpoint(name) {
      const tensors = Object.entries(trained.kept()).map(([key, column]) => tensorOf(key, column))
      await writeSafetensors(name, tensors)
      return name
    },
    async loadCheckpoint(name) {
      const { tensors } = await readSafetensors(name)
      const kept = Object.entries(trained.kept())
      const read = kept.map(([key, column]) => {
        const tensor = tensors.get(key)
        const values = tensor === undefined ? null : tensorValues(tensor)
        if (values?.length === column.length && values.constructor === column.constructor) return values
        const got = tensor === undefined ? `no tensor ${key}` : `${tensor.type} ${key} of ${values!.length} numbers`
        throw new InputError(`backend ${id}, ${name}`, got, `${column.length} numbers, as in this model and optimizer`)
      })
      for (const [i, [, column]] of kept.entries()) column.set(read[i] as Float64Array)
    },
    getWeights: (version) => ({ version, weights }),
    loadWeights(given) {
      if (given.length !== weights.length) {
        throw new InputError(`backend ${id}, weights`, `${given.length} numbers`, `${weights.length}, as the model has`)
      }
      weights.set(given)
    },
  }
}

/** Calls `visit` for each token of a batch, with its index. A sequence's first token has no outputs. */
export function visitTokens(given: TokenBatch, visit: (t: number, isFirst: boolean) => void): void {
  checkGiven('batch of visitTokens', given, ['parts', 'spans'])
  const { parts, spans } = given
  checkGiven('visit of visitTokens', visit, 'a function')
  for (let i = parts[0]!; i < parts.at(-1)!; i++) {
    for (let t = spans.begin[i]!; t < spans.end[i]!; t++) visit(t, t === spans.begin[i])
  }
}
