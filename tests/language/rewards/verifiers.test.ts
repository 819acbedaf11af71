import { describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import { integer } from '../../../src/base/settings.ts'
import { getVerifierFunction } from '../../../src/language/rewards/registry.ts'
import {
  applyVerifiersToReward,
  coherenceVerifier,
  containsKeywords,
  createDefaultVerifierPipeline,
  defineVerifier,
  factualVerifier,
  hasGreeting,
  lengthVerifier,
  noEmptyResponse,
  toxicityVerifier,
  VerificationPipeline,
  type Verifier,
  verifyWith,
} from '../../../src/language/rewards/verifiers.ts'

const inputOf = (completion: string, columns = {}) => ({ prompt: '', completion, example: { prompt: '', ...columns } })
const found = (verify: Verifier, completion: string, columns = {}) =>
  verifyWith(verify, inputOf(completion, columns), 1000)

describe('a verifier of one’s own', () => {
  const most = defineVerifier({
    id: 'most',
    settings: { characters: integer(3, 'characters at most', { min: 1 }) },
    make:
      ({ characters }) =>
      (_, completion) =>
        completion.length <= characters,
  })

  test('has its id and settings, and judges by them', async () => {
    expect([most.id, Object.keys(most.settings)]).toEqual(['most', ['characters']])
    expect(await found(most(), 'abcd')).toMatchObject({ result: 'fail', score: 0 })
    expect(await found(most({ characters: 4 }), 'abcd')).toMatchObject({ result: 'pass', score: 1 })
  })

  test('is not registered, and takes no setting that it has not declared, nor one out of its range', () => {
    expect(() => getVerifierFunction('most')).toThrow(/verifier: got "most"/)
    expect(() => most({ charcters: 4 } as never)).toThrow(/"charcters".*did you mean "characters"/)
    expect(() => most({ characters: 0 })).toThrow(/characters: got 0/)
    expect(() => defineVerifier({ id: '', settings: {}, make: () => () => true })).toThrow(InputError)
  })
})

describe('verifiers', () => {
  test('length says by how much it is missed', async () => {
    const verify = lengthVerifier({ minLength: 2, maxLength: 4 })
    expect(await found(verify, 'one')).toMatchObject({ result: 'fail', score: 0.5 })
    expect(await found(verify, 'one two')).toMatchObject({ result: 'pass', score: 1 })
    expect(await found(verify, 'a b c d e f g h')).toMatchObject({ result: 'fail', score: 0.5 })
    expect(() => lengthVerifier({ minLength: 5, maxLength: 4 })).toThrow(InputError)
  })

  test('toxicity looks for the words of the caller, whole, and brings none', async () => {
    const verify = toxicityVerifier({ words: ['ass', 'go away'] })
    expect(await found(verify, 'Pass the assessment')).toMatchObject({ result: 'pass', score: 1 })
    expect(await found(verify, 'GO AWAY!')).toMatchObject({ result: 'fail', score: 0 })
    expect(() => toxicityVerifier()).toThrow(InputError)
  })

  test('coherence fails a loop', async () => {
    expect(await found(coherenceVerifier(), 'so it goes '.repeat(20))).toMatchObject({ result: 'fail' })
    expect(await found(coherenceVerifier(), 'the quick brown fox jumps over the lazy dog')).toMatchObject({
      result: 'pass',
      score: 1,
    })
  })

  test('factual compares with the facts of the example, and without them knows nothing: not a score', async () => {
    const verify = factualVerifier({ maxUncertaintyCount: 0 })
    const facts = ['1969', 'Armstrong']
    expect(await found(verify, 'Armstrong, in 1969', { facts })).toMatchObject({ result: 'pass', score: 1 })
    expect(await found(verify, 'Perhaps Armstrong, in 1969', { facts })).toMatchObject({ result: 'fail', score: 1 })
    expect(await found(verify, 'Gagarin, in 1969', { facts })).toMatchObject({ result: 'fail', score: 0.5 })
    for (const none of [[], ['x', 3], 'x']) {
      expect(await found(verify, 'x', { facts: none })).toMatchObject({ result: 'unknown', failure: 'noReference' })
    }
    expect(await found(verify, 'All true')).toMatchObject({ result: 'unknown', score: null, failure: 'noReference' })
  })

  test('hasGreeting, noEmptyResponse and containsKeywords', async () => {
    const results = async (verify: Verifier, ...completions: string[]) =>
      Promise.all(completions.map(async (completion) => (await found(verify, completion)).result))
    expect(await results(hasGreeting(), 'Hi!', 'Good morning, all', 'History', 'Oh, hello')).toEqual([
      ...['pass', 'pass', 'fail', 'fail'],
    ])
    expect(await results(noEmptyResponse(), 'x', ' \n', '')).toEqual(['pass', 'fail', 'fail'])
    expect(await results(containsKeywords({ keywords: ['a', 'b'] }), 'a b', 'a')).toEqual(['pass', 'fail'])
    expect(await results(containsKeywords({ keywords: ['a', 'b'], all: false }), 'a', 'ab')).toEqual(['pass', 'fail'])
  })

  test.each([
    [() => Promise.reject(new Error('x')), 'threw'],
    [() => new Promise<boolean>(() => {}), 'hung'],
    [() => undefined as unknown as boolean, 'malformed'],
    [() => ({ result: 'great' }) as never, 'malformed'],
    [() => ({ result: 'pass' as const, score: Number.NaN, message: '' }), 'notANumber'],
  ])('one that breaks has an unknown result, never a pass, a fail or a score (%#)', async (verify, failure) => {
    const report = await verifyWith(verify, inputOf(''), 20)
    expect(report).toMatchObject({ result: 'unknown', score: null, failure })
  })
})

describe('a pipeline', () => {
  const pipeline = new VerificationPipeline({
    short: lengthVerifier({ minLength: 0, maxLength: 3 }),
    facts: factualVerifier(),
  })

  test('fails where one fails, is unknown where one is, and scores only what is known', async () => {
    const facts = ['a']
    const verified = await pipeline.verifyBatch([
      inputOf('a b', { facts }),
      inputOf('a b c d e f', { facts }),
      inputOf('a b'),
      inputOf('a b c d e f'),
    ])
    expect(verified.map(({ result }) => result)).toEqual(['pass', 'fail', 'unknown', 'fail'])
    expect(verified.map(({ score }) => score)).toEqual([1, 0.75, null, null])
    expect(Object.keys(verified[0]!.reports)).toEqual(['short', 'facts'])
  })

  test('by default asks for length, coherence and an answer at all', async () => {
    const verified = await createDefaultVerifierPipeline().verify(inputOf(''))
    expect(Object.entries(verified.reports).map(([name, { result }]) => `${name} ${result}`)).toEqual([
      'length fail',
      'coherence pass',
      'noEmptyResponse fail',
    ])
    expect(() => new VerificationPipeline({})).toThrow(InputError)
  })

  test('keeps the reward where it passes, and its scores as components', async () => {
    const made = applyVerifiersToReward(() => 0.3, { full: noEmptyResponse() }, -1)
    expect(await made('', 'x', { prompt: '' })).toEqual({ value: 0.3, components: { 'verifier/full': 1 } })
    expect(await made('', '', { prompt: '' })).toEqual({ value: -1, components: { 'verifier/full': 0 } })
    expect(() => applyVerifiersToReward(() => 1, { full: noEmptyResponse() }, Number.NaN)).toThrow(InputError)
  })
})
