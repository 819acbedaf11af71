/** Verifiers give a pass or fail with a score in [0, 1] and a message, or `unknown` without a score after a failure. */
import { checkCount, checkGiven, InputError, show } from '../../base/errors.ts'
import { boolean, fraction, integer, type Settings, type SettingValues, strings } from '../../base/settings.ts'
import { checkWords } from './basic.ts'
import {
  batchSizeOf,
  type FailureKind,
  failed,
  isInTime,
  type Judgment,
  judge,
  judgeMany,
  judgesInTime,
  judgesTogether,
  maker,
  mapBounded,
  type Reward,
  type RewardInput,
  withTimeLimit,
} from './reward.ts'
import { containsPhrase, wordsOf } from './words.ts'

const verificationResults = ['pass', 'fail', 'unknown'] as const
/** The result of a verification; `unknown` if the verifier failed. */
export type VerificationResult = (typeof verificationResults)[number]

/** The finding of one verifier. */
export interface VerificationReport {
  readonly result: VerificationResult
  /** In [0, 1], 1 is best; null if the result is unknown. */
  readonly score: number | null
  readonly message: string
  readonly failure?: FailureKind
}

/** Verifies a completion. True is a pass with score 1, false a fail with score 0. */
export type Verifier = (
  ...input: Parameters<Reward>
) => VerificationReport | boolean | Promise<VerificationReport | boolean>

/** Makes the verifiers of an id from its settings. */
export interface VerifierFactory<S extends Settings = Settings> {
  (parameters?: Partial<SettingValues<S>>): Verifier
  readonly id: string
  readonly settings: S
}

/** Defines a verifier: id, settings, maker. `verifier()` also registers it. @throws InputError without an id. */
export function defineVerifier<S extends Settings>(options: {
  id: string
  settings: S
  make(parameters: SettingValues<S>): Verifier
}): VerifierFactory<S> {
  checkGiven('options of defineVerifier', options, ['id', 'settings', 'make'])
  return maker('verifier', options)
}

function report(isPassed: boolean, score: number, message: string): VerificationReport {
  return { result: isPassed ? 'pass' : 'fail', score, message }
}

/** Passes from `minLength` to `maxLength` words. The score falls with the relative distance to that range. */
export const lengthVerifier = defineVerifier({
  id: 'length',
  settings: {
    minLength: integer(10, 'least number of words', { min: 0 }),
    maxLength: integer(500, 'largest number of words', { min: 1 }),
  },
  make: ({ minLength, maxLength }) => {
    if (minLength > maxLength) {
      throw new InputError('length.minLength', show(minLength), `at most maxLength, ${maxLength}`)
    }
    return (_, completion) => {
      const count = wordsOf(completion).length
      const score = count < minLength ? count / minLength : count > maxLength ? maxLength / count : 1
      return report(score === 1, score, `${count} words, ${minLength} to ${maxLength} wanted`)
    }
  },
})

/** Fails if one of the caller's words occurs as a whole word. @throws InputError without words. */
export const toxicityVerifier = defineVerifier({
  id: 'toxicity',
  settings: { words: strings([], 'forbidden words or phrases') },
  make: ({ words: list }) => {
    checkWords('toxicity.words', list)
    return (_, completion) => {
      const found = list.filter((word) => containsPhrase(completion, word)).length
      return report(found === 0, found === 0 ? 1 : 0, `${found} of ${list.length} listed words occur`)
    }
  },
})

/** Passes without repetition: fraction of distinct word trigrams (distinct-3, arXiv:1510.03055), or under 3 words. */
export const coherenceVerifier = defineVerifier({
  id: 'coherence',
  settings: { minCoherenceScore: fraction(0.5, 'least fraction of distinct trigrams of words') },
  make:
    ({ minCoherenceScore }) =>
    (_, completion) => {
      const list = wordsOf(completion)
      const runs = list.slice(2).map((word, i) => `${list[i]} ${list[i + 1]} ${word}`)
      const score = runs.length === 0 ? 1 : new Set(runs).size / runs.length
      return report(score >= minCoherenceScore, score, `${(100 * score).toFixed(0)} % of its word triples are distinct`)
    },
})

/** Passes with enough of the example's `facts` as whole words and little hedging. Unknown without `facts`. */
export const factualVerifier = defineVerifier({
  id: 'factual',
  settings: {
    minFactualScore: fraction(0.6, 'least fraction of the facts'),
    maxUncertaintyCount: integer(2, 'largest number of different hedging phrases', { min: 0 }),
    uncertaintyWords: strings(
      ['maybe', 'perhaps', 'possibly', 'probably', 'might', 'i think', 'i guess', "i'm not sure", 'i am not sure'],
      'phrases that count as hedging',
    ),
  },
  make:
    ({ minFactualScore, maxUncertaintyCount, uncertaintyWords }) =>
    (_, completion, example) => {
      const { facts } = example
      if (!Array.isArray(facts) || facts.length === 0 || facts.some((fact) => typeof fact !== 'string')) {
        const message = `the example's facts are ${show(facts)}, not a list of texts`
        return { result: 'unknown', score: null, message, failure: 'noReference' }
      }
      const score = facts.filter((fact: string) => containsPhrase(completion, fact)).length / facts.length
      const hedges = uncertaintyWords.filter((phrase) => containsPhrase(completion, phrase)).length
      const isPassed = score >= minFactualScore && hedges <= maxUncertaintyCount
      return report(isPassed, score, `${(100 * score).toFixed(0)} % of the facts, ${hedges} hedging phrases`)
    },
})

/** Passes if the completion begins with one of the greetings. */
export const hasGreeting = defineVerifier({
  id: 'hasGreeting',
  settings: {
    greetings: strings(
      ['hello', 'hi', 'hey', 'dear', 'good morning', 'good afternoon', 'good evening'],
      'the greetings',
    ),
  },
  make: ({ greetings }) => {
    checkWords('hasGreeting.greetings', greetings)
    return (_, completion) => {
      const start = `${wordsOf(completion).join(' ')} `
      return greetings.some((greeting) => start.startsWith(`${wordsOf(greeting).join(' ')} `))
    }
  },
})

/** Passes if the completion is not only white space. */
export const noEmptyResponse = defineVerifier({
  id: 'noEmptyResponse',
  settings: {},
  make: () => (_, completion) => completion.trim() !== '',
})

/** Passes if all keywords (or one, without `all`) occur as whole words. @throws InputError without keywords. */
export const containsKeywords = defineVerifier({
  id: 'containsKeywords',
  settings: {
    keywords: strings([], 'words or phrases that should occur'),
    all: boolean(true, 'require all of them, not only one'),
  },
  make: ({ keywords, all }) => {
    checkWords('containsKeywords.keywords', keywords)
    return (_, completion) => {
      const found = keywords.filter((keyword) => containsPhrase(completion, keyword)).length
      const isPassed = all ? found === keywords.length : found > 0
      return report(isPassed, found / keywords.length, `${found} of ${keywords.length} keywords occur`)
    }
  },
})

export const builtInVerifiers = [
  lengthVerifier,
  toxicityVerifier,
  coherenceVerifier,
  factualVerifier,
  hasGreeting,
  noEmptyResponse,
  containsKeywords,
] as unknown as readonly VerifierFactory[]

/** Calls a verifier within the time limit. Failures become reports. */
export async function verifyWith(
  verify: Verifier,
  input: RewardInput,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<VerificationReport> {
  let found: VerificationReport | undefined
  const asReward: Reward = async (...args) => {
    const answer = await verify(...args)
    found = typeof answer === 'boolean' ? report(answer, answer ? 1 : 0, answer ? 'passed' : 'failed') : answer
    if (found === null || typeof found !== 'object' || !verificationResults.includes(found.result)) {
      return failed('malformed', `the verifier answered ${show(answer)}`)
    }
    if (found.result === 'unknown') return failed(found.failure ?? 'unknown', found.message)
    return { value: found.score }
  }
  const { value, failure, error } = await withTimeLimit((inner) => judge(asReward, input, inner), timeoutMs, signal)
  if (failure !== undefined) return { result: 'unknown', score: null, message: error!, failure }
  return { ...found!, score: value }
}

/** The result of a pipeline: `fail` if a verifier failed, otherwise `unknown` if one is unknown, otherwise `pass`. */
export interface Verification {
  readonly result: VerificationResult
  /** Mean of the scores; null if one is unknown. */
  readonly score: number | null
  readonly reports: Readonly<Record<string, VerificationReport>>
}

/** Runs several verifiers on the same completions. */
export class VerificationPipeline {
  readonly #verifiers: readonly (readonly [string, Verifier])[]
  readonly #timeoutMs: number
  readonly #maxWorkers: number

  /** @throws InputError without verifiers. */
  constructor(
    verifiers: Readonly<Record<string, Verifier>>,
    options: { timeoutMs?: number; maxWorkers?: number } = {},
  ) {
    checkGiven('verifiers of VerificationPipeline', verifiers, [])
    this.#verifiers = Object.entries(verifiers)
    this.#timeoutMs = options.timeoutMs ?? 30_000
    this.#maxWorkers = options.maxWorkers ?? 4
    checkCount('timeoutMs', this.#timeoutMs)
    checkCount('maxWorkers', this.#maxWorkers)
    if (this.#verifiers.length === 0) throw new InputError('VerificationPipeline', 'no verifier', 'at least one')
  }

  async verify(input: RewardInput, signal?: AbortSignal): Promise<Verification> {
    const reports = await Promise.all(
      this.#verifiers.map(([, verify]) => verifyWith(verify, input, this.#timeoutMs, signal)),
    )
    const results = reports.map(({ result }) => result)
    const scores = reports.map(({ score }) => score)
    return {
      result: results.includes('fail') ? 'fail' : results.includes('unknown') ? 'unknown' : 'pass',
      score: scores.includes(null) ? null : scores.reduce<number>((sum, score) => sum + score!, 0) / scores.length,
      reports: Object.fromEntries(this.#verifiers.map(([name], i) => [name, reports[i]!])),
    }
  }

  /** Runs every verifier on every completion, a few at a time. Results are in the completions' order. */
  verifyBatch(inputs: readonly RewardInput[], signal?: AbortSignal): Promise<Verification[]> {
    return mapBounded(inputs, this.#maxWorkers, (input) => this.verify(input, signal))
  }
}

/** The verifiers that need no settings: length, coherence and noEmptyResponse, with their defaults. */
export function createDefaultVerifierPipeline(): VerificationPipeline {
  return new VerificationPipeline({
    length: lengthVerifier(),
    coherence: coherenceVerifier(),
    noEmptyResponse: noEmptyResponse(),
  })
}

/** The reward if all verifiers pass, `penaltyOnFailure` if one fails, null if one is unknown. Scores are components. */
export function applyVerifiersToReward(
  reward: Reward,
  verifiers: Readonly<Record<string, Verifier>>,
  penaltyOnFailure = 0,
): Reward {
  checkGiven('reward of applyVerifiersToReward', reward, 'a function')
  checkGiven('verifiers of applyVerifiersToReward', verifiers, [])
  if (!Number.isFinite(penaltyOnFailure)) {
    throw new InputError('penaltyOnFailure', show(penaltyOnFailure), 'a finite number')
  }
  const pipeline = new VerificationPipeline(verifiers)
  const combined = (judged: Judgment, verification: Verification): Judgment => {
    const reports = Object.entries(verification.reports)
    const scores = reports.map(([name, { score }]) => [`verifier/${name}`, score] as const)
    const components = { ...judged.components, ...Object.fromEntries(scores) }
    if (verification.result === 'pass') return { ...judged, components }
    if (verification.result === 'fail') return { value: penaltyOnFailure, components }
    const [name, unknown] = reports.find(([, { result }]) => result === 'unknown')!
    return failed(unknown.failure!, `verifier ${name}: ${unknown.message}`, components)
  }
  const judgeAll = (inputs: readonly RewardInput[], signal?: AbortSignal): Promise<Judgment>[] =>
    judgeMany(reward, inputs, signal).map(async (judged, i) =>
      combined(...(await Promise.all([judged, pipeline.verify(inputs[i]!, signal)]))),
    )
  const size = batchSizeOf(reward)
  const verified: Reward =
    size !== null
      ? judgesTogether(judgeAll, size)
      : (prompt, completion, example, signal) => judgeAll([{ prompt, completion, example }], signal)[0]!
  return isInTime(reward) ? judgesInTime(verified) : verified // Verifiers have the pipeline's time limit.
}
