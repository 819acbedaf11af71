/** Task suites with criteria: evaluates text generators on them, and compares two evaluations by a statistical test. */
import { checkCount, checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import { keywordReward } from './basic.ts'
import { composeRewards, type RewardPart } from './compose.ts'
import { mathAccuracyReward } from './maths/maths.ts'
import { type Judgment, judge, mapBounded, type Reward, withTimeLimit } from './reward.ts'
import { pairedTTest, type TTest, welchTTest } from './statistics.ts'
import { coherenceVerifier, lengthVerifier, type Verifier, verifyWith } from './verifiers.ts'

/** How hard a task is. */
export type Difficulty = 'easy' | 'medium' | 'hard'

/** The criteria of completions. Each gives a score from 0 to 1. */
export type Criterion = 'keywords' | 'length' | 'coherence' | 'answer'

const criteria: readonly Criterion[] = ['keywords', 'length', 'coherence', 'answer']

/** A prompt, and the criteria of its completions. */
export interface TextGenerationTask {
  readonly prompt: string
  /** Words or phrases; the criterion `keywords` is the fraction that occurs. */
  readonly targetKeywords?: readonly string[]
  /** Minimum and maximum words, for the criterion `length`. */
  readonly targetLengthRange?: readonly [number, number]
  /** The right answer, for the criterion `answer`: 1 if mathematically equal, otherwise 0. */
  readonly answer?: string
  readonly difficulty: Difficulty
  readonly category: string
  /** The weights of the criteria. A score is their weighted mean. */
  readonly evaluationCriteria: Readonly<Partial<Record<Criterion, number>>>
}

const basic: readonly TextGenerationTask[] = [
  {
    prompt: 'What is 17 + 25? Give the number.',
    answer: '42',
    difficulty: 'easy',
    category: 'arithmetic',
    evaluationCriteria: { answer: 1 },
  },
  {
    prompt: 'A box holds 6 eggs. How many eggs do 7 boxes hold? Give the number.',
    answer: '42',
    difficulty: 'easy',
    category: 'arithmetic',
    evaluationCriteria: { answer: 1 },
  },
  {
    prompt: 'Name the three states of water.',
    targetKeywords: ['ice', 'water', 'steam'],
    targetLengthRange: [3, 40],
    difficulty: 'easy',
    category: 'knowledge',
    evaluationCriteria: { keywords: 0.8, length: 0.2 },
  },
  {
    prompt: 'Describe a rainy day in one or two sentences.',
    targetKeywords: ['rain'],
    targetLengthRange: [8, 50],
    difficulty: 'easy',
    category: 'description',
    evaluationCriteria: { keywords: 0.4, length: 0.4, coherence: 0.2 },
  },
  {
    prompt: 'Write a short thank-you note to a neighbor who watered your plants.',
    targetKeywords: ['thank', 'plants'],
    targetLengthRange: [15, 80],
    difficulty: 'easy',
    category: 'letter',
    evaluationCriteria: { keywords: 0.4, length: 0.3, coherence: 0.3 },
  },
  {
    prompt: 'Explain in a few sentences why we sleep.',
    targetKeywords: ['body', 'brain', 'rest'],
    targetLengthRange: [20, 100],
    difficulty: 'medium',
    category: 'explanation',
    evaluationCriteria: { keywords: 0.4, length: 0.3, coherence: 0.3 },
  },
]

const challenging: readonly TextGenerationTask[] = [
  {
    prompt: 'A train covers 150 km in 1 hour and 40 minutes. What is its mean speed in km/h? Give the number.',
    answer: '90',
    difficulty: 'medium',
    category: 'arithmetic',
    evaluationCriteria: { answer: 1 },
  },
  {
    prompt: 'Factor x^2 - 5x + 6. Put the result in \\boxed{}.',
    answer: '(x-2)(x-3)',
    difficulty: 'medium',
    category: 'algebra',
    evaluationCriteria: { answer: 1 },
  },
  {
    prompt:
      'Two fair dice are thrown. What is the probability that they show 7 together? Put the fraction in \\boxed{}.',
    answer: '\\frac{1}{6}',
    difficulty: 'hard',
    category: 'probability',
    evaluationCriteria: { answer: 1 },
  },
  {
    prompt: 'Explain how a refrigerator moves heat, for a reader without physics.',
    targetKeywords: ['compressor', 'refrigerant', 'evaporates', 'condenses', 'heat'],
    targetLengthRange: [60, 200],
    difficulty: 'hard',
    category: 'explanation',
    evaluationCriteria: { keywords: 0.5, length: 0.25, coherence: 0.25 },
  },
  {
    prompt: 'Give two arguments for and two against a four-day working week.',
    targetKeywords: ['for', 'against', 'productivity', 'costs'],
    targetLengthRange: [60, 220],
    difficulty: 'hard',
    category: 'argument',
    evaluationCriteria: { keywords: 0.4, length: 0.3, coherence: 0.3 },
  },
  {
    prompt: 'Write a story of about a hundred words about a lighthouse keeper, a storm and a letter.',
    targetKeywords: ['lighthouse', 'storm', 'letter'],
    targetLengthRange: [80, 130],
    difficulty: 'hard',
    category: 'story',
    evaluationCriteria: { keywords: 0.3, length: 0.4, coherence: 0.3 },
  },
]

const suites = new Map<string, () => readonly TextGenerationTask[]>([
  ['basic', () => basic],
  ['challenging', () => challenging],
])

/** Registers a suite of tasks, loaded when requested. @throws InputError for a name that is taken. */
export function registerTaskSuite(name: string, loader: () => readonly TextGenerationTask[]): void {
  if (name === '' || suites.has(name)) throw new InputError('task suite', show(name), 'a name that is not taken')
  suites.set(name, loader)
}

/** The tasks of a suite. @throws InputError for an unknown name, or a task that lacks what its criteria need. */
export function getTaskSuite(name: string): readonly TextGenerationTask[] {
  const loader = suites.get(name)
  if (loader === undefined) throw unknownWord('task suite', name, listTaskSuites())
  const tasks = loader()
  if (tasks.length === 0) throw new InputError(`task suite ${name}`, 'no task', 'at least one')
  for (const task of tasks) rewardOf(task)
  return tasks
}

/** The names of all task suites. */
export function listTaskSuites(): string[] {
  return [...suites.keys()]
}

function scoreOf(verify: Verifier): Reward {
  return async (prompt, completion, example, signal) => {
    const { score, failure, message } = await verifyWith(verify, { prompt, completion, example }, 30_000, signal)
    return { value: score, ...(failure !== undefined && { failure, error: message }) }
  }
}

/** The weighted mean of a task's criteria; each is a component. */
function rewardOf(task: TextGenerationTask): Reward {
  const subject = `task ${show(task.prompt)}`
  const weights = Object.entries(task.evaluationCriteria) as [Criterion, number][]
  const total = weights.reduce((sum, [, weight]) => sum + weight, 0)
  if (!(total > 0) || weights.some(([, weight]) => !(weight >= 0 && weight < Number.POSITIVE_INFINITY))) {
    const expected = 'weights ≥ 0, at least one above 0'
    throw new InputError(`${subject} evaluationCriteria`, show(task.evaluationCriteria), expected)
  }
  const parts: Record<string, RewardPart> = {}
  for (const [criterion, weight] of weights) {
    if (!criteria.includes(criterion)) throw unknownWord(`${subject} criterion`, criterion, criteria)
    parts[criterion] = { reward: criterionOf(subject, criterion, task), weight: weight / total }
  }
  return composeRewards(parts)
}

function criterionOf(subject: string, criterion: Criterion, task: TextGenerationTask): Reward {
  const { targetKeywords, targetLengthRange, answer } = task
  const lacks = (column: string): InputError =>
    new InputError(`${subject} ${column}`, 'none', `one, for the criterion ${criterion}`)
  switch (criterion) {
    case 'keywords':
      if (targetKeywords === undefined) throw lacks('targetKeywords')
      return keywordReward({ keywords: targetKeywords })
    case 'length': {
      if (targetLengthRange === undefined) throw lacks('targetLengthRange')
      const [minLength, maxLength] = targetLengthRange
      return scoreOf(lengthVerifier({ minLength, maxLength }))
    }
    case 'coherence':
      return scoreOf(coherenceVerifier())
    case 'answer':
      if (answer === undefined) throw lacks('answer')
      return mathAccuracyReward()
  }
}

/** Writes a completion of a prompt. */
export type Generate = (prompt: string, signal: AbortSignal) => Promise<string>

/** The completions of one task, and their score. */
export interface TaskEvaluation {
  readonly task: TextGenerationTask
  /** Mean over the samples with a score; null without any. */
  readonly score: number | null
  readonly completions: readonly (string | null)[]
  readonly judgments: readonly Judgment[]
}

/** A mean score, and the number of scores. */
export interface ScoreSummary {
  /** Null without scores. */
  readonly mean: number | null
  readonly n: number
}

/** Scores of a model on a task suite. */
export interface ModelEvaluation extends ScoreSummary {
  readonly suite: string
  /** Tasks without a score. */
  readonly unknown: number
  readonly tasks: readonly TaskEvaluation[]
  readonly byCategory: Readonly<Record<string, ScoreSummary>>
  readonly byDifficulty: Readonly<Record<string, ScoreSummary>>
}

/** Options of `evaluateModel`. */
export interface EvaluateModelOptions {
  /** Completions per prompt; default 1. */
  readonly samplesPerTask?: number
  /** Concurrent completions; default 4. */
  readonly maxWorkers?: number
  /** Milliseconds for generating and scoring one completion; default 60,000. */
  readonly timeoutMs?: number
  readonly signal?: AbortSignal
}

function summarize(scores: readonly (number | null)[]): ScoreSummary {
  const known = scores.filter((score) => score !== null)
  return {
    mean: known.length === 0 ? null : known.reduce((sum, score) => sum + score, 0) / known.length,
    n: known.length,
  }
}

/**
 * Generates completions for every task of a suite and scores them. A completion that fails has no score and is left out
 * of means.
 * @throws InputError for an unknown suite or options out of range.
 * @example
 * const before = await evaluateModel(async (prompt) => '42', 'basic')
 */
export async function evaluateModel(
  generate: Generate,
  suite: string,
  { samplesPerTask = 1, maxWorkers = 4, timeoutMs = 60_000, signal }: EvaluateModelOptions = {},
): Promise<ModelEvaluation> {
  checkCount('samplesPerTask', samplesPerTask)
  checkCount('maxWorkers', maxWorkers)
  checkCount('timeoutMs', timeoutMs)
  const tasks = getTaskSuite(suite)
  const rewards = tasks.map(rewardOf)
  const jobs = tasks.flatMap((_, task) => Array.from({ length: samplesPerTask }, () => task))
  const written = await mapBounded(jobs, maxWorkers, async (index) => {
    const { prompt, answer } = tasks[index]!
    const example = { prompt, ...(answer !== undefined && { answer }) }
    let completion: string | null = null
    const writeAndScore: Reward = async (_prompt, _completion, _example, inner) => {
      completion = await generate(prompt, inner!)
      if (typeof completion !== 'string') throw new Error(`the completion is ${show(completion)}, not a text`)
      return rewards[index]!(prompt, completion, example, inner)
    }
    const judgment = await withTimeLimit(
      (inner) => judge(writeAndScore, { prompt, completion: '', example }, inner),
      timeoutMs,
      signal,
    )
    return { completion, judgment }
  })
  const evaluated = tasks.map((task, i): TaskEvaluation => {
    const own = written.slice(i * samplesPerTask, (i + 1) * samplesPerTask)
    const judgments = own.map(({ judgment }) => judgment)
    const { mean } = summarize(judgments.map(({ value }) => value))
    return { task, score: mean, completions: own.map(({ completion }) => completion), judgments }
  })
  const by = (name: 'category' | 'difficulty'): Record<string, ScoreSummary> =>
    Object.fromEntries(
      [...new Set(tasks.map((task) => task[name]))].map((value) => [
        value,
        summarize(evaluated.filter(({ task }) => task[name] === value).map(({ score }) => score)),
      ]),
    )
  const summary = summarize(evaluated.map(({ score }) => score))
  return {
    suite,
    ...summary,
    unknown: tasks.length - summary.n,
    tasks: evaluated,
    byCategory: by('category'),
    byDifficulty: by('difficulty'),
  }
}

/** Scores of tasks: an evaluation, or the scores themselves. */
export type Scores = ModelEvaluation | readonly (number | null)[]

/** The test of two evaluations. */
export interface LearningProgress extends TTest {
  /** `paired`: both have scores of the same tasks. */
  readonly test: 'paired' | 'welch'
  readonly before: ScoreSummary
  readonly after: ScoreSummary
  /** Scores left out because they or their counterparts are unknown. */
  readonly leftOut: number
  readonly isSignificant: boolean
  /** Whether the difference is significant and positive. */
  readonly isImproved: boolean
}

/**
 * Tests whether scores changed in training by more than chance: Student's paired t-test over the same tasks in the same
 * order, or Welch's test (`paired: false`). Unknown scores are left out and counted.
 * @throws InputError if fewer than two scores (or pairs) are known, if paired scores differ in number or tasks, or if
 * alpha is not between 0 and 1.
 */
export function validateLearningProgress(
  before: Scores,
  after: Scores,
  { paired = true, alpha = 0.05 }: { paired?: boolean; alpha?: number } = {},
): LearningProgress {
  checkGiven('before of validateLearningProgress', before, [])
  checkGiven('after of validateLearningProgress', after, [])
  if (!(alpha > 0 && alpha < 1)) throw new InputError('alpha', show(alpha), 'a number between 0 and 1')
  const [first, second] = [scoresOf(before), scoresOf(after)]
  let [known, later] = [first, second]
  if (paired) {
    checkPaired(before, after, first, second)
    const isKnown = first.map((score, i) => score !== null && second[i] !== null)
    known = first.filter((_, i) => isKnown[i])
    later = second.filter((_, i) => isKnown[i])
  }
  const [a, b] = [known, later].map((scores) => scores.filter((score) => score !== null)) as [number[], number[]]
  const test = (paired ? pairedTTest : welchTTest)(a, b, 1 - alpha)
  const isSignificant = test.pValue < alpha
  return {
    test: paired ? 'paired' : 'welch',
    ...test,
    before: summarize(a),
    after: summarize(b),
    leftOut: first.length - a.length + second.length - b.length,
    isSignificant,
    isImproved: isSignificant && test.difference > 0,
  }
}

function scoresOf(scores: Scores): readonly (number | null)[] {
  const list = 'tasks' in scores ? scores.tasks.map(({ score }) => score) : scores
  const odd = list.find((score) => score !== null && !Number.isFinite(score))
  if (odd !== undefined) throw new InputError('a score', show(odd), 'a finite number, or null if unknown')
  return list
}

function checkPaired(before: Scores, after: Scores, first: readonly unknown[], second: readonly unknown[]): void {
  if (first.length !== second.length) {
    const expected = 'as many of each, or paired: false'
    throw new InputError('scores to be paired', `${first.length} and ${second.length}`, expected)
  }
  if (!('tasks' in before && 'tasks' in after)) return
  const other = before.tasks.findIndex(({ task }, i) => task.prompt !== after.tasks[i]!.task.prompt)
  if (other >= 0)
    throw new InputError('evaluations to be paired', `another task ${other}`, 'the same tasks, or paired: false')
}
