/** Backends by the contract: the one of this process, alone and in a team, and one of a few lines. */
import { TokenLearner, tokenLearnerPlan } from '../../src/algorithms/token-learner.ts'
import { takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import { transformer } from '../../src/policies/transformer/model.ts'
import { Random } from '../../src/random.ts'
import { LocalBackend } from '../../src/training/text/local-backend.ts'
import { backendSuite } from '../support/backend-suite.ts'
import { unigrams } from '../support/unigrams.ts'

const model = transformer({
  ...{ model_type: 'llama', vocab_size: 8, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2 },
  ...{ intermediate_size: 16, max_position_embeddings: 32, rms_norm_eps: 1e-5, rope_theta: 10_000 },
  initializer_range: 0.8,
})

backendSuite('local', async () => {
  const { arena, columns } = takeArena({
    weights: column('f32', model.numParameters),
    learner: tokenLearnerPlan(model, 8, 32, { optimizer: 'sgd' }, true),
  })
  model.initialize(columns.weights, new Random(7), 0)
  const kernels = createKernels(arena.memory, 'plain')
  const learner = new TokenLearner(model, columns.weights, columns.learner, kernels)
  learner.start()
  return { kernels, backend: new LocalBackend({ learner, trained: columns.weights }) }
})

backendSuite('of unigrams, which knows no descriptors', async () => {
  const backend = unigrams([3, 1, 4, 1, 5, 9, 2, 6].map((x) => x / 5))
  await backend.start()
  return { backend, kernels: createKernels(takeArena({ none: column('f32', 1) }).arena.memory, 'plain') }
})
