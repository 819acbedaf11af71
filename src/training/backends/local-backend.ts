/** The backend that trains in the world's memory, with a team's threads. World checkpoints contain its state. */

import {
  alone,
  TokenLearner,
  type TokenLearnerColumns,
  tokenLearnerPlan,
} from '../../algorithms/tokens/token-learner.ts'
import { sharedBytes } from '../../base/shared.ts'
import { arrayWork } from './array-backend.ts'
import type { BackendDefinition } from './backend.ts'
import { defineBackend } from './define-backend.ts'

/** The default backend. */
export const localBackend: BackendDefinition = {
  ...defineBackend('local', ({ model, weights, columns, kernels, adapter, team, clock }) => {
    const post = team && ((work: Parameters<typeof team.post>[0]) => team.post(work))
    const learner = new TokenLearner(model, weights, columns as TokenLearnerColumns, kernels, adapter, post, clock)
    const run: NonNullable<typeof team>['run'] = async (steps) => (team === null ? alone(steps) : team.run(steps))
    /** The number of micro-batches that threads have taken. */
    const counts = { taken: new Int32Array(sharedBytes(4)) }
    return {
      ...arrayWork('local', learner.trained),
      forward: (batch, whose, temperature, said) => run(learner.evaluate(batch, temperature, whose, said, counts)),
      forwardBackward: (batch, { loss, totals, given, update }, { temperature, step }) =>
        run(learner.differentiate(batch, loss, totals, given, update, temperature, step)),
      backward: (batch, derivatives, { temperature, step }) =>
        learner.backward(batch, derivatives, counts, temperature, step),
      takeUpColumns() {},
    }
  }),
  plan: ({ model, rows, context, optimizer, hasReference, adapter, weightBits, threads }, sequences) =>
    tokenLearnerPlan(model, rows, context, { optimizer }, hasReference, adapter, weightBits, threads, sequences),
}
