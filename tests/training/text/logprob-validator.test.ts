import { describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import { Random } from '../../../src/base/random.ts'
import { lora } from '../../../src/language/transformer/lora.ts'
import { transformerLogprobs } from '../../../src/training/backends/transformer-logprobs.ts'
import {
  type LogprobModel,
  LogprobValidator,
  logprobChecks,
  validateLogprobImplementation,
} from '../../../src/training/text/evaluate/logprob-validator.ts'
import { buildsOf, families, golden, smoothFamilies } from '../../language/transformer/golden.ts'

const BITS = { tolerances: { logprob: 0 } }

describe('our transformers', () => {
  test.each(families)('%s holds every check, decoded and packed to the same bits', async (family) => {
    for (const build of buildsOf(family)) {
      const report = await validateLogprobImplementation(transformerLogprobs(await golden(family), build), BITS)
      // A small step of a weight can change which experts a token gets: then finite differences measure no derivative.
      const isSmooth = smoothFamilies.includes(family)
      const checks = report.checks.filter(({ name }) => isSmooth || name !== 'gradientComputation')
      expect(checks.map(({ name, status, why }) => ({ name, status, why }))).toEqual(
        checks.map(({ name }) => ({ name, status: 'held', why: null })),
      )
      expect(report.checks.map(({ name }) => name)).toEqual(logprobChecks)
      if (isSmooth) expect(report.status).toBe('held')
    }
  })

  test('evaluate any number of sequences, as many at a time as have room, to the bits of each alone', async () => {
    const evaluated = transformerLogprobs(await golden('llama'))
    const { vocabularySize, context } = evaluated
    const sequences = Array.from({ length: 300 }, (_, i) =>
      Array.from({ length: 2 + (i % (context - 1)) }, (_, t) => (7 * i + 3 * t) % vocabularySize),
    )
    const together = await evaluated.logprobs(sequences)
    expect(together.map(({ length }) => length)).toEqual(sequences.map(({ length }) => length - 1))
    for (const i of [0, 99, 299]) expect(together[i]).toEqual((await evaluated.logprobs([sequences[i]!]))[0])
    const long = Array.from({ length: context + 1 }, () => 1)
    expect(() => evaluated.logprobs([sequences[0]!, long])).toThrow(
      `sequence 1 of transformerLogprobs: got ${context + 1} tokens, expected 1 to ${context}`,
    )
  })

  test('an adapter is validated with its model, and its gradient is its own', async () => {
    const { model, weights } = await golden('llama')
    const adapter = { lora: lora(model, { rank: 2, dropout: 0.5 }), weights: new Float32Array(0) }
    adapter.weights = new Float32Array(adapter.lora.numParameters)
    const random = new Random(3)
    adapter.weights.forEach((_, i) => {
      random.draw(0, 0, 0, i)
      adapter.weights[i] = random.uniform(0, -0.3, 0.3)
    })
    const validated = transformerLogprobs({ model, weights, adapter })
    expect(validated.gradient!.weights.length).toBe(adapter.lora.numParameters)
    expect((await validateLogprobImplementation(validated, BITS)).checks.filter(({ why }) => why !== null)).toEqual([])
    const [own, bare] = await Promise.all(
      [validated, transformerLogprobs({ model, weights })].map((each) => each.logprobs([[1, 2, 3]])),
    )
    expect(own).not.toEqual(bare)
  })
})

/**
 * A model of one's own in a few lines: the logits after a prefix are the sums of rows of `weights` that stand for its last two
 * tokens, so everything can be told exactly. vocabulary × 2 rows of vocabulary numbers.
 */
function bigram(vocabularySize = 7, context = 20): Required<LogprobModel> {
  const weights = new Float64Array(2 * vocabularySize * vocabularySize)
  const random = new Random(9)
  weights.forEach((_, i) => {
    random.draw(0, 0, 0, i)
    weights[i] = random.uniform(0, -2, 2)
  })
  const row = (kind: number, token: number) => (kind * vocabularySize + token) * vocabularySize
  const make = (factor: number): Required<LogprobModel> => {
    const nextLogprobs = (prefix: readonly number[]): number[] => {
      const logits = Array.from({ length: vocabularySize }, (_, v) => {
        const before = prefix.length > 1 ? weights[row(1, prefix.at(-2)!) + v]! : 0
        return factor * (weights[row(0, prefix.at(-1)!) + v]! + before)
      })
      const max = Math.max(...logits)
      const logSum = Math.log(logits.reduce((sum, value) => sum + Math.exp(value - max), 0))
      return logits.map((value) => value - max - logSum)
    }
    const ofSequence = (tokens: readonly number[]) =>
      tokens.slice(1).map((token, i) => nextLogprobs(tokens.slice(0, i + 1))[token]!)
    return {
      vocabularySize,
      context,
      logprobs: (sequences) => sequences.map(ofSequence),
      nextLogprobs,
      gradient: {
        weights,
        of: (sequences) => {
          const gradient = new Float64Array(weights.length)
          for (const tokens of sequences) {
            for (let t = 1; t < tokens.length; t++) {
              nextLogprobs(tokens.slice(0, t)).forEach((logprob, v) => {
                const slope = (v === tokens[t] ? 1 : 0) - Math.exp(logprob)
                gradient[row(0, tokens[t - 1]!) + v]! += slope
                if (t > 1) gradient[row(1, tokens[t - 2]!) + v]! += slope
              })
            }
          }
          return gradient
        },
      },
      scaled: make,
    }
  }
  return make(1)
}

/** The names of the checks that a model does not hold. */
async function failing(model: LogprobModel): Promise<string[]> {
  const { checks } = await validateLogprobImplementation(model)
  return checks.flatMap(({ name, status, why }) => {
    if (status === 'failed') expect(why).not.toBe(null)
    return status === 'failed' ? [name] : []
  })
}

describe("a model of one's own", () => {
  const right = bigram()
  const { gradient, scaled, ...two } = right
  const { nextLogprobs: _, ...one } = two

  test('that is right holds every check', async () => {
    expect((await validateLogprobImplementation(right)).status).toBe('held')
  })

  test('is checked as far as its functions go, and what was not checked is said', async () => {
    const { status, checks } = await validateLogprobImplementation(one)
    expect(status).toBe('unchecked')
    expect(checks.filter((check) => check.status === 'unchecked').map(({ name, why }) => [name, why])).toEqual([
      ['numericalStability', expect.stringMatching(/no scaled/)],
      ['gradientComputation', expect.stringMatching(/no gradient/)],
    ])
    expect(await failing(two)).toEqual([])
  })

  /** Of the token that was just read, as logits that nobody shifted give it. */
  const unshifted = (sequences: readonly (readonly number[])[]) =>
    sequences.map((tokens) =>
      tokens.slice(1).map((token, i) => (right.nextLogprobs(tokens.slice(0, i + 2)) as ArrayLike<number>)[token]!),
    )
  /** Of the token after the next, as logits that were shifted twice give it. */
  const shiftedTwice = (sequences: readonly (readonly number[])[]) =>
    sequences.map((tokens) =>
      tokens
        .slice(1)
        .map((token, i) => (right.nextLogprobs(tokens.slice(0, Math.max(i, 1))) as ArrayLike<number>)[token]!),
    )

  test.each([
    ['unshifted', unshifted],
    ['shifted twice', shiftedTwice],
  ])('whose numbers are %s does not pass as autoregressive', async (_, logprobs) => {
    expect(await failing({ ...one, logprobs })).toContain('autoregressiveIndexing')
    expect(await failing({ ...two, logprobs })).toContain('autoregressiveIndexing')
  })

  test('that looks at later tokens does not pass as autoregressive', async () => {
    const logprobs: LogprobModel['logprobs'] = (sequences) =>
      sequences.map((tokens) => tokens.slice(1).map((token, i) => -1 - token / 10 - (tokens[i + 2] ?? 0) / 10))
    expect(await failing({ ...one, logprobs })).toContain('autoregressiveIndexing')
  })

  test('that looks at the next token but keeps a distribution does not pass as autoregressive', async () => {
    // The last number of a sequence, and decoding, are right.
    const logprobs: LogprobModel['logprobs'] = async (sequences) =>
      (await right.logprobs(sequences)).map((values, i) =>
        Array.from(values, (value, t) => value - (sequences[i]![t + 2] ?? 0) / 100),
      )
    const check = await new LogprobValidator({ ...one, logprobs }).testAutoregressiveIndexing()
    expect(check).toMatchObject({
      status: 'failed',
      why: expect.stringMatching(/^log p of token 1 with another token 2 after it/),
    })
  })

  test('that answers with too few lists or numbers, or with numbers that are none, fails with what it gave', async () => {
    const whyOf = async (logprobs: LogprobModel['logprobs']) =>
      (await new LogprobValidator({ ...right, logprobs }).testBatchProcessing()).why
    expect(await whyOf(() => [])).toBe('logprobs of 1 sequences gave 0 lists')
    expect(await whyOf(async (all) => (await right.logprobs(all)).map((values) => Array.from(values).slice(1)))).toBe(
      'logprobs of 2 tokens gave 0 numbers, not 1',
    )
    expect(await whyOf(async (all) => (await right.logprobs(all)).map((values) => Array.from(values, () => 0.5)))).toBe(
      'log p of token 1 of 2 is 0.5',
    )
  })

  test("whose decoding goes wrong at the context's end fails that check alone", async () => {
    const nextLogprobs = (prefix: readonly number[]) =>
      right.nextLogprobs(prefix.length < right.context - 1 ? prefix : prefix.slice(0, -1))
    expect(await failing({ ...right, nextLogprobs })).toEqual(['edgeCases'])
  })

  test('whose derivative by one of its eight largest weights is wrong fails the check of its gradient', async () => {
    for (let rank = 0; rank < 8; rank++) {
      const of = async (sequences: readonly (readonly number[])[]) => {
        const derivatives = Array.from(await gradient.of(sequences))
        const largest = [...derivatives.keys()].toSorted(
          (a, b) => Math.abs(derivatives[b]!) - Math.abs(derivatives[a]!),
        )
        derivatives[largest[rank]!]! *= 1.5
        return derivatives
      }
      const check = await new LogprobValidator({ ...right, gradient: { ...gradient, of } }).testGradientComputation()
      expect(check.status, `${rank} are larger`).toBe('failed')
    }
  })

  test('that decodes something else than it evaluates fails teacher forcing', async () => {
    // A cache that forgets the token before the last.
    const nextLogprobs = (prefix: readonly number[]) => right.nextLogprobs(prefix.slice(-1))
    expect(await failing({ ...two, nextLogprobs })).toContain('teacherForcingConsistency')
  })

  test('whose sequences depend on their length fails teacher forcing, without any decoding', async () => {
    const logprobs: LogprobModel['logprobs'] = async (sequences) =>
      (await right.logprobs(sequences)).map((values, i) =>
        Array.from(values, (v) => v * (1 + sequences[i]!.length / 50)),
      )
    expect(await failing({ ...one, logprobs })).toContain('teacherForcingConsistency')
  })

  test('that depends on the batch, and on nothing else, fails that check alone', async () => {
    // Padded to the longest, and the padding takes part.
    const logprobs: LogprobModel['logprobs'] = async (sequences) => {
      const longest = Math.max(...sequences.map(({ length }) => length))
      const all = await right.logprobs(sequences)
      return all.map((values, i) => Array.from(values, (value) => value - (longest - sequences[i]!.length) / 100))
    }
    expect(await failing({ ...one, logprobs, gradient, scaled })).toEqual(['batchProcessing'])
  })

  test("that loses the token at the context's end fails that check alone", async () => {
    const logprobs: LogprobModel['logprobs'] = async (sequences) =>
      (await right.logprobs(sequences)).map((values, i) =>
        sequences[i]!.length < right.context ? values : [...Array.from(values).slice(0, -1), 0],
      )
    expect(await failing({ ...right, logprobs })).toEqual(['edgeCases'])
    const shorter: LogprobModel['logprobs'] = async (sequences) =>
      (await right.logprobs(sequences)).map((values) => Array.from(values).slice(0, 18))
    expect(await failing({ ...right, logprobs: shorter })).toEqual(['edgeCases'])
  })

  test('that refuses a single token, or throws at the context’s end, fails with its own words', async () => {
    const logprobs: LogprobModel['logprobs'] = (sequences) => {
      if (sequences.some(({ length }) => length === right.context)) throw new RangeError('too long')
      return right.logprobs(sequences)
    }
    const check = await new LogprobValidator({ ...right, logprobs }).testEdgeCases()
    expect(check).toMatchObject({ status: 'failed', why: 'logprobs threw: too long' })
  })

  test('whose logarithm is taken of a softmax fails with extreme logits, and with those alone', async () => {
    const naive = (model: Required<LogprobModel>): LogprobModel => ({
      ...model,
      logprobs: async (sequences) =>
        (await model.logprobs(sequences)).map((values) => Array.from(values, (value) => Math.log(Math.exp(value)))),
    })
    const broken = { ...right, scaled: () => naive(bigram().scaled(1e4) as Required<LogprobModel>) }
    expect(await failing(broken)).toEqual(['numericalStability'])
  })

  test.each([
    ['of the wrong sign', (value: number) => -value],
    ['twice too large', (value: number) => 2 * value],
    ['with elements left out', (value: number, i: number) => (i % 3 === 0 ? 0 : value)],
    ['that is 0', () => 0],
  ])('with a gradient %s fails that check alone', async (_, wrong) => {
    const of = async (sequences: readonly (readonly number[])[]) => Array.from(await gradient.of(sequences)).map(wrong)
    expect(await failing({ ...right, gradient: { ...gradient, of } })).toEqual(['gradientComputation'])
  })

  test('has its weights back after the check of its gradient', async () => {
    const before = gradient.weights.slice()
    await new LogprobValidator(right).testGradientComputation()
    expect(gradient.weights).toEqual(before)
  })

  test('without logprobs, or with a context of three tokens, is an error', () => {
    expect(() => new LogprobValidator({ ...one, logprobs: 3 as never })).toThrow(InputError)
    expect(() => new LogprobValidator({ ...one, context: 3 })).toThrow(/context.*≥ 4/)
  })
})
