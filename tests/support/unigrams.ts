/** A training backend of a few lines, which takes losses by their derivatives alone. */
import type { TokenBatch } from '../../src/algorithms/token-batch.ts'
import { InputError } from '../../src/errors.ts'
import type { TrainingBackend } from '../../src/training/backend.ts'

/** Calls `visit` for each token of the batch's micro-batches. */
function each({ parts, spans }: TokenBatch, visit: (t: number, isFirst: boolean) => void): void {
  for (let i = parts[0]!; i < parts.at(-1)!; i++) {
    for (let t = spans.begin[i]!; t < spans.end[i]!; t++) visit(t, t === spans.begin[i])
  }
}

/** A distribution over tokens that forgets what came before, from these logits on, by gradient descent with momentum. */
export function unigrams(logits: readonly number[]): TrainingBackend {
  let [own, reference, moment] = [[...logits], [...logits], logits.map(() => 0)]
  let gradient: number[] | null = null
  const kept = new Map<string, [typeof own, typeof reference, typeof moment]>()
  const probabilities = (logits: readonly number[], temperature: number) => {
    const weights = logits.map((logit) => Math.exp(logit / temperature))
    return weights.map((weight) => weight / weights.reduce((a, b) => a + b))
  }
  return {
    id: 'unigrams',
    async start() {
      ;[reference, moment, gradient] = [[...own], moment.map(() => 0), null]
    },
    async forward(batch, whose, temperature, { logprob, entropy }) {
      const p = probabilities(whose === 'policy' ? own : reference, temperature)
      const whole = -p.reduce((sum, each) => sum + each * Math.log(each), 0)
      each(batch, (t, isFirst) => {
        logprob[t] = isFirst ? 0 : Math.log(p[batch.token[t]!]!)
        entropy[t] = isFirst ? 0 : whole
      })
    },
    async backward(batch, { dLogprob }, { temperature }) {
      if (gradient !== null) throw new InputError('unigrams', 'a second gradient', 'optimStep()')
      const p = probabilities(own, temperature)
      const sums = own.map(() => 0)
      each(batch, (t, isFirst) => {
        if (isFirst) return
        for (let v = 0; v < sums.length; v++) sums[v]! += dLogprob[t]! * (+(batch.token[t] === v) - p[v]!)
      })
      gradient = sums
    },
    async optimStep({ momentum }, rate, maxNorm) {
      if (gradient === null) throw new InputError('unigrams', 'no gradient', 'backward()')
      const [by, norm] = [gradient, Math.hypot(...gradient)]
      gradient = null
      if (!Number.isFinite(norm)) throw new InputError('gradient', `a norm of ${norm}`, 'a finite one')
      moment = moment.map((m, v) => momentum * m + by[v]! * Math.min(1, maxNorm / (norm + 1e-6)))
      own = own.map((logit, v) => logit - rate * moment[v]!)
      return norm
    },
    async save(name) {
      kept.set(name, [own, reference, moment])
      return name
    },
    async load(name) {
      if (!kept.has(name)) throw new InputError('unigrams', name, 'a name that was saved')
      ;[own, reference, moment, gradient] = [...kept.get(name)!, null]
    },
    weights: async (version) => ({ version, weights: Float32Array.from(own) }),
  }
}
