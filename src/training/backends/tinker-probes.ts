/** Finds out undocumented properties of a Tinker service, with temporary models. */
import type { TokenBatch } from '../../algorithms/tokens/token-batch.ts'
import { InputError } from '../../base/errors.ts'
import type { TinkerClient } from '../../engines/tinker/tinker-client.ts'
import { TinkerSession } from '../../engines/tinker/tinker-session.ts'
import { datumsOf, type TinkerReduction } from './tinker-loss.ts'
import { normOf, type TinkerModel } from './tinker-model.ts'

/** Ids that every tokenizer has. */
const PROMPT = [0, 1]
/** A change of log-probability, in nats, that a step must exceed; services may compute in half precision. */
const MOVED = 0.05

/**
 * How the service combines the losses of tokens: compares the gradients of one token with weight 1 and 2. With a mean
 * they are equal. A service without gradient norms is assumed to sum.
 * @throws InputError for a gradient that is neither.
 */
export async function findReduction(subject: string, model: TinkerModel): Promise<TinkerReduction> {
  const norms: (number | null)[] = []
  for (const weight of [1, 2]) norms.push(await learn(model, [...PROMPT, 2], weight, 0))
  const [first, second] = norms
  if (first == null || second == null) return 'sum'
  const ratio = second / first
  if (Math.abs(ratio - 2) < 0.01) return 'sum'
  if (Math.abs(ratio - 1) < 0.01) return 'mean'
  const got = `a gradient ${ratio} times as long for twice the weight`
  throw new InputError(`${subject}, reduction`, got, 'twice (sum) or once (mean)')
}

/** Whether sampling from saved weights uses later ones: samples again after a step that favors another token. */
export async function samplesByLearner(
  client: TinkerClient,
  model: TinkerModel,
  vocabularySize: number,
): Promise<boolean> {
  const session = await TinkerSession.open(client, await model.saveForSampler('shared'))
  const drawing = { max_tokens: 1, temperature: 0, top_k: -1, top_p: 1, seed: 0, stop: [] }
  const choose = async () => {
    const { tokens } = await session.sample(PROMPT, drawing, vocabularySize)
    return tokens[0] ?? { token: -1, logprob: Number.NaN }
  }
  const before = await choose()
  await learn(model, [...PROMPT, before.token === 2 ? 3 : 2], 1, 0.1)
  const after = await choose()
  return !(after.token === before.token && Math.abs(after.logprob - before.logprob) < MOVED)
}

/** A step of Adam towards the tokens. Returns the gradient's norm; null if the service reports none. */
async function learn(
  model: TinkerModel,
  token: readonly number[],
  weight: number,
  learningRate: number,
): Promise<number | null> {
  const spans = { begin: Int32Array.of(0), end: Int32Array.of(token.length) }
  const data = datumsOf({ parts: [0, 1], spans, token } as unknown as TokenBatch, () => ({ weights: () => weight }))
  await model.run('forward_backward', { forward_backward_input: { data, loss_fn: 'cross_entropy' } })
  const adam = { learning_rate: learningRate, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0, grad_clip_norm: 0 }
  return normOf((await model.run('optim_step', { adam_params: adam, type: 'optim_step' })).metrics)
}
