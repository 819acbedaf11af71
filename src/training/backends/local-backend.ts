/** The backend that trains in the world's memory, with a team's threads, or on the model's device. World checkpoints contain its state. */

import { tensorsPlan } from '../../algorithms/optimizers/tensors.ts'
import type { DeviceLearner } from '../../algorithms/tokens/device-learner.ts'
import {
  alone,
  TokenLearner,
  type TokenLearnerColumns,
  tokenLearnerPlan,
  trainedOf,
} from '../../algorithms/tokens/token-learner.ts'
import { TrainedArray } from '../../algorithms/trained-array.ts'
import { sharedBytes } from '../../base/shared.ts'
import { column, type Plan, saved } from '../../components/column.ts'
import { arrayWork } from './array-backend.ts'
import type { BackendContext, BackendDefinition, BackendShape } from './backend.ts'
import { type BackendWork, defineBackend } from './define-backend.ts'

/** The default backend. */
export const localBackend: BackendDefinition = {
  ...defineBackend('local', (context) => (context.model.device === 'webgpu' ? onDevice(context) : onThreads(context))),
  plan: ({ model, rows, context, optimizer, hasReference, adapter, weightBits, threads }, sequences) =>
    model.device === 'webgpu'
      ? devicePlan({ model, optimizer, hasReference, adapter })
      : tokenLearnerPlan(model, rows, context, { optimizer }, hasReference, adapter, weightBits, threads, sequences),
}

function onThreads({ model, weights, columns, kernels, adapter, team, clock, pool }: BackendContext): BackendWork {
  const learner = new TokenLearner(model, weights, columns as TokenLearnerColumns, kernels, adapter, team, clock)
  const run: NonNullable<typeof team>['run'] = async (steps) => (team === null ? alone(steps) : team.run(steps))
  /** The number of micro-batches that threads have taken. */
  const counts = { taken: new Int32Array(sharedBytes(4)) }
  return {
    ...arrayWork('local', learner.trained),
    forward: (batch, whose, temperature, said) => run(learner.evaluate(batch, temperature, whose, said, counts)),
    forwardBackward: (batch, { loss, totals, given, update }, { temperature, step }) => {
      const work = [batch, loss, totals, given, update, temperature, step] as const
      return pool === undefined ? run(learner.differentiate(...work)) : learner.differentiateWith(pool, run, ...work)
    },
    backward: (batch, derivatives, { temperature, step }) =>
      learner.backward(batch, derivatives, counts, temperature, step),
    takeUpColumns() {},
  }
}

/** The saved columns of `tokenLearnerPlan`: activations and gradient lie on the device. */
function devicePlan({
  model,
  optimizer,
  hasReference,
  adapter,
}: Pick<BackendShape, 'model' | 'optimizer' | 'hasReference' | 'adapter'>) {
  const { numParameters, parameters } = adapter ?? model
  return {
    gradient: column('f32', 0),
    optimizer: tensorsPlan({ optimizer }, parameters),
    reference: saved(column('f32', hasReference ? numParameters : 0)),
  } satisfies Plan
}

/** The device starts with the first call. */
function onDevice({ model, weights, columns, kernels, adapter, context, optimizer }: BackendContext): BackendWork {
  const own = columns as unknown as Omit<TokenLearnerColumns, 'packed'>
  const parameters = (adapter?.lora ?? model).parameters
  const work = arrayWork('local', new TrainedArray(trainedOf(weights, adapter), own, kernels, parameters))
  const options = {
    model,
    weights,
    adapter,
    context,
    kernels,
    optimizer: own.optimizer,
    reference: own.reference,
  }
  let made: Promise<DeviceLearner> | undefined
  const learner = () => {
    made ??= import('../../algorithms/tokens/device-learner.ts').then(({ startDeviceLearner }) =>
      startDeviceLearner(options, optimizer),
    )
    return made
  }
  /** Calls on the columns in this memory: the device's numbers come home before, or are replaced after. */
  const atHome = async () => (await learner()).home()
  const replaced = async () => (await learner()).moved()
  return {
    ...work,
    async start() {
      await atHome()
      await work.start()
      await replaced()
    },
    forward: async (batch, whose, temperature, said) => (await learner()).evaluate(batch, temperature, whose, said),
    forwardBackward: async (batch, { loss, totals, given, update }, { temperature }) =>
      (await learner()).differentiate(batch, loss, totals, given, update, temperature),
    backward: async (batch, derivatives, { temperature }) =>
      (await learner()).backward(batch, derivatives, temperature),
    optimStep: async (settings, rate, maxNorm) => (await learner()).descend(settings, rate, maxNorm),
    async saveCheckpoint(name) {
      await atHome()
      return work.saveCheckpoint(name)
    },
    async loadCheckpoint(name) {
      await work.loadCheckpoint(name)
      await replaced()
    },
    async getWeights(version) {
      await atHome()
      return work.getWeights(version)
    },
    async loadWeights(given) {
      await atHome() // Moments stay.
      await work.loadWeights(given)
      await replaced()
    },
    takeUpColumns: replaced,
    close() {
      void made?.then(
        (each) => each.release(),
        () => {},
      )
    },
  }
}
