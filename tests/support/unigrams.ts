/** A training backend of a few lines, which takes losses only as derivatives. */
import { type ArrayModel, defineArrayBackend, visitTokens } from '../../src/training/backends/array-backend.ts'

function probabilities(logits: Float32Array, temperature: number): number[] {
  const weights = Array.from(logits, (logit) => Math.exp(logit / temperature))
  const sum = weights.reduce((a, b) => a + b)
  return weights.map((weight) => weight / sum)
}

/** A distribution over tokens without context, with these initial logits. */
export function unigramModel(logits: readonly number[]): ArrayModel {
  return {
    weights: Float32Array.from(logits),
    forward(logits, batch, temperature, { logprob, entropy }) {
      const p = probabilities(logits, temperature)
      const whole = -p.reduce((sum, each) => sum + each * Math.log(each), 0)
      visitTokens(batch, (t, isFirst) => {
        logprob[t] = isFirst ? 0 : Math.log(p[batch.token[t]!]!)
        entropy[t] = isFirst ? 0 : whole
      })
    },
    backward(logits, batch, { dLogprob }, { temperature }, gradient) {
      const p = probabilities(logits, temperature)
      visitTokens(batch, (t, isFirst) => {
        if (isFirst) return
        for (const [v, share] of p.entries()) {
          gradient[v]! += (dLogprob[t]! * (+(batch.token[t] === v) - share)) / temperature
        }
      })
    },
  }
}

export const unigrams = (logits: readonly number[]) => defineArrayBackend('unigrams', () => unigramModel(logits))
