/**
 * `npm run bench -- natural`: a model of 10.4M parameters is pretrained on Python's documentation and fine-tuned by supervised
 * steps, DPO, a reward model with PPO, GRPO and distillation, by the commands and default rates that a user has. Held-out measures
 * before and after each. Takes about two hours of a core; a run that ended is not repeated, and one that was cut off goes on.
 * Needs Python 3.11 with the peers, and Debian's `apt-get download`, for the text. `NATURAL` names another folder for the runs,
 * `UPDATES` multiplies all numbers of updates.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { judge, lengthReward, modelReward, type Reward } from '../../src/entries/rewards.ts'
import {
  type Example,
  generateTokens,
  loadLanguageModel,
  type Message,
  type Tokenizer,
  type TrainingExample,
  trainingRows,
  transformerLogprobs,
} from '../../src/entries/text.ts'
import { createWorld, dataset, languageModel } from '../../src/index.ts'
import { bestKernelBuild } from '../../src/kernels/bind.ts'
import { type Figure, figure } from '../measure.ts'
import { peerPython, peerSource } from '../peers/python.ts'
import { reportRoom } from '../report.ts'

const root = fileURLToPath(new URL('../../../', import.meta.url))
const folder = process.env.NATURAL ?? join(root, 'node_modules', '.cache', 'colonnade-natural')
const share = Number(process.env.UPDATES ?? 1)
const PACKAGE = 'python3.11-doc'
const CONTEXT = 256
/** Held-out rows of each measure: standard errors of a few percent. */
const MEASURED = 200
const ANSWER_TOKENS = 32

interface Entry {
  readonly kind: string
  readonly name: string
  readonly sentence: string
  readonly held: boolean
}

const place = (name: string) => join(folder, name)

/** Fetches the text, trains the tokenizer, and writes the rows. */
function prepare(): void {
  mkdirSync(folder, { recursive: true })
  if (!existsSync(place('entries.jsonl'))) {
    execFileSync('apt-get', ['download', PACKAGE], { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] })
    execFileSync('sh', ['-c', `dpkg -x ${PACKAGE}_*.deb ${PACKAGE}`], { cwd: folder })
    const sources = place(`${PACKAGE}/usr/share/doc/python3.11/html/_sources`)
    execFileSync(peerPython(), [peerSource('natural_text.py'), sources, folder], { stdio: 'inherit' })
  }
  const entries = linesOf<Entry>('entries.jsonl')
  for (const [name, held] of [
    ['learned', false],
    ['asked', true],
  ] as const) {
    const some = entries.filter((entry) => entry.held === held)
    const rows = some.map((entry, i) => ({
      prompt: [{ role: 'user', content: `${entry.kind} ${entry.name}` }],
      answer: entry.sentence,
      chosen: entry.sentence,
      rejected: some[(i * 7919 + 13) % some.length]!.sentence,
    }))
    const answers = rows.map(({ prompt, answer }) => ({ prompt, answer }))
    const pairs = rows.flatMap(({ prompt, chosen, rejected }) =>
      chosen === rejected ? [] : { prompt, chosen, rejected },
    )
    write(`${name}.jsonl`, answers)
    write(`${name}-pairs.jsonl`, pairs)
  }
}

function linesOf<Row>(name: string): Row[] {
  const lines = readFileSync(place(name), 'utf8').split('\n')
  return lines.filter(Boolean).map((line) => JSON.parse(line) as Row)
}

function write(name: string, rows: readonly object[]): void {
  writeFileSync(place(name), rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
}

/** Trains by the command line, unless it was done, and returns the model's folder. */
function train(name: string, updates: { readonly [key: string]: number }, ...words: readonly string[]): string {
  const model = place(`${name}/model`)
  if (existsSync(model) || existsSync(place(`${name}/adapter`))) return model
  const numbers = Object.entries(updates).map(([key, number]) => `${key}=${Math.ceil(share * number)}`)
  const given = [
    'train',
    'text/dataset',
    `out=${place(name)}`,
    'ifExists=resume',
    'checkpointEvery=20',
    ...numbers,
    ...words,
  ]
  console.log(`colonnade ${given.join(' ').replaceAll(folder, '.')}`)
  execFileSync(process.execPath, [join(root, 'dist/src/cli/main.js'), ...given, '--quiet'], {
    cwd: folder,
    stdio: 'inherit',
  })
  return model
}

interface Scored {
  /** Log-probability of the learned tokens, and their number. */
  readonly sum: number
  readonly count: number
}

/** A model whose log-probabilities are read. */
interface Judge {
  readonly tokenizer: Tokenizer
  score(row: TrainingExample): Scored
}

/** A loaded model, or one with the random weights with which the pretraining begins. */
async function judgeOf(folder: string, isRandom = false): Promise<Judge> {
  const { model, weights, tokenizer } = isRandom ? await untrained(folder) : await loadLanguageModel(folder)
  const read = transformerLogprobs({ model, weights }, bestKernelBuild(), CONTEXT)
  return {
    tokenizer,
    score({ ids, lossMask }) {
      const [logprobs] = read.logprobs([ids.slice(0, CONTEXT)]) as [number[]]
      const learned = logprobs.filter((_, t) => lossMask[t + 1] === 1)
      return { sum: learned.reduce((sum, value) => sum + value, 0), count: learned.length }
    },
  }
}

async function untrained(folder: string) {
  const environment = dataset({ path: place('held.jsonl') })
  const policy = languageModel({ folder, initialize: true })
  return (await createWorld({ environment, policy, numLanes: 1, seed: 1 })).cohort()
}

/** Perplexity of the rows' learned tokens. */
function perplexity({ score }: Judge, rows: readonly TrainingExample[]): number {
  const scores = rows.map(score)
  const total = (key: keyof Scored) => scores.reduce((sum, each) => sum + each[key], 0)
  return Math.exp(-total('sum') / total('count'))
}

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length

type Asked = Example & { readonly prompt: readonly Message[]; readonly answer: string }
type Pair = Pick<Asked, 'prompt'> & { readonly chosen: string; readonly rejected: string }

prepare()
const texts = linesOf<{ text: string }>('held.jsonl').slice(0, MEASURED)
const asked = linesOf<Asked>('asked.jsonl').slice(0, MEASURED)
const pairs = linesOf<Pair>('asked-pairs.jsonl')
const figures: Figure[] = []

/** Tells a held-out measure before and after, which is to become better. */
function tell(name: string, unit: string, before: number, after: number, isLess = false): void {
  figures.push(figure(`${name}: before`, unit, [before]))
  figures.push(figure(`${name}: after`, unit, [after], isLess ? { atMost: before } : { atLeast: before }))
  console.log(`${name}: ${before.toPrecision(4)} → ${after.toPrecision(4)} ${unit}`)
}

const answerRows = ({ tokenizer }: Judge) =>
  asked.map(({ prompt, answer }) => trainingRows(tokenizer, { prompt, answer })[0]!)
const textRows = ({ tokenizer }: Judge) =>
  texts.map(({ text }) => {
    const ids = tokenizer.encode(text)
    return { ids, lossMask: ids.map(() => 1) }
  })

/** Answers of a model to the held-out prompts. */
const answersOf = (model: string) =>
  generateTokens({
    policy: languageModel({ folder: model }),
    prompts: asked.map(({ prompt }) => prompt),
    ...{ maxTokens: ANSWER_TOKENS, context: CONTEXT, seed: 1 },
  })

/** Mean reward of a model's answers to the held-out prompts. */
async function rewardOf(reward: Reward, model: string): Promise<number> {
  const inputs = (await answersOf(model)).map(({ completion, prompt }) => {
    const example = asked[prompt]!
    return { prompt: example.prompt.map(({ content }) => content).join('\n'), completion, example }
  })
  const judged = await Promise.all(inputs.map((input) => judge(reward, input)))
  return mean(judged.map(({ value }) => value!))
}

// Pretraining.
const pretrained = train(
  'pretrained',
  { 'sft.updates': 400 },
  ...[
    'mode=sft',
    'environment.path=train.jsonl',
    `languageModel.folder=${place('shape')}`,
    'languageModel.initialize=true',
  ],
  ...['tooLong=cut', 'sft.batchSize=8', 'sft.learningRate=1.5e-3', 'sft.warmupFraction=0.05'],
  'sft.learningRateSchedule=cosine',
)
const random = await judgeOf(place('shape'), true)
const base = await judgeOf(pretrained)
tell(
  'pretraining, held-out files',
  'perplexity',
  perplexity(random, textRows(random)),
  perplexity(base, textRows(base)),
  true,
)

// Supervised steps: what is documented, and the first sentence about it.
const loaded = (model: string) => [`languageModel.folder=${model}`, `languageModel.context=${CONTEXT}`]
const supervised = train(
  'supervised',
  { 'sft.updates': 150 },
  ...['mode=sft', 'environment.path=learned.jsonl', ...loaded(pretrained), 'sft.batchSize=16'],
)
const tuned = await judgeOf(supervised)
const [before, after] = [base, tuned].map((each) => perplexity(each, answerRows(each))) as [number, number]
tell('SFT, held-out answers', 'perplexity', before, after, true)

/** The model of a run whose adapter was trained. */
const merged = (name: string) => {
  const out = place(`${name}/merged`)
  if (!existsSync(out))
    execFileSync(process.execPath, [join(root, 'dist/src/cli/main.js'), 'export', place(name), `out=${out}`, '--quiet'])
  return out
}
const adapted = [...loaded(supervised), 'languageModel.loraRank=16']

// Preferences: the sentence of the same thing, or of another.
const margins = ({ tokenizer, score }: Judge) =>
  pairs.map(({ prompt, chosen, rejected }) => {
    const of = (answer: string) => score(trainingRows(tokenizer, { prompt, answer })[0]!).sum
    return of(chosen) - of(rejected)
  })
train(
  'preferred',
  { 'sft.updates': 100 },
  ...['mode=sft', 'sft.loss=dpo', 'environment.path=learned-pairs.jsonl', ...adapted, 'sft.batchSize=16'],
)
const preferred = merged('preferred')
const [stood, moved] = [margins(tuned), margins(await judgeOf(preferred))]
const accuracy = (values: readonly number[]) => mean(values.map((value) => (value > 0 ? 1 : 0)))
tell(
  'DPO, held-out pairs: rewards of the right one above',
  'of pairs',
  0.5,
  accuracy(moved.map((value, i) => value - stood[i]!)),
)
tell('DPO, held-out pairs: log-probability of the right one above', 'of pairs', accuracy(stood), accuracy(moved))

// A reward model of the same pairs, and PPO on it.
const judging = train(
  'judging',
  { 'sft.updates': 100 },
  ...['mode=sft', 'sft.loss=reward', 'environment.path=learned-pairs.jsonl', ...loaded(supervised), 'sft.batchSize=16'],
)
const scored = modelReward({ folder: judging })
const scoresOf = (key: 'chosen' | 'rejected') =>
  Promise.all(
    pairs.map((pair) => judge(scored, { prompt: '', completion: pair[key], example: { prompt: pair.prompt } })),
  )
const [chosen, rejected] = await Promise.all([scoresOf('chosen'), scoresOf('rejected')])
tell(
  'reward model, held-out pairs',
  'of pairs',
  0.5,
  accuracy(chosen.map(({ value }, i) => value! - rejected[i]!.value!)),
)

const sampled = [`environment.maxTokens=${ANSWER_TOKENS}`, 'rl.groupsPerUpdate=6', 'rl.groupSize=8', 'numLanes=48']
/** A training of an adapter by reinforcement learning, merged. */
const reinforce = (name: string, updates: number, ...words: readonly string[]): string => {
  train(name, { 'rl.updates': updates }, 'mode=rl', 'environment.path=learned.jsonl', ...sampled, ...words)
  return merged(name)
}
const ppo = reinforce(
  'ppo',
  120,
  'rl.loss=ppo',
  'environment.reward=model',
  `environment.reward.folder=${judging}`,
  ...adapted,
)
tell('PPO, held-out prompts', 'score', await rewardOf(scored, supervised), await rewardOf(scored, ppo))

// GRPO: answers of five words.
const brief = lengthReward({ targetLength: 5 })
const grpo = reinforce('grpo', 40, 'environment.reward=length', 'environment.reward.targetLength=5', ...adapted)
tell('GRPO, held-out prompts', 'reward', await rewardOf(brief, supervised), await rewardOf(brief, grpo))

// Distillation: the pretrained model learns from the fine-tuned one, on its own answers.
const apart = async (model: string) => {
  const [student, answers] = [await judgeOf(model), await answersOf(model)]
  const rows = answers.map(({ promptIds, completionIds }) => ({
    ids: [...promptIds, ...completionIds],
    lossMask: [...promptIds.map(() => 0), ...completionIds.map(() => 1)],
  }))
  const differences = rows.map((row) => [student.score(row), tuned.score(row)] as const)
  const tokens = differences.reduce((sum, [{ count }]) => sum + count, 0)
  return differences.reduce((sum, [own, other]) => sum + own.sum - other.sum, 0) / tokens
}
const distilled = reinforce(
  'distilled',
  30,
  ...['rl.loss=distill', `rl.teacher=${supervised}`, ...loaded(pretrained), 'languageModel.loraRank=16'],
)
tell(
  'distillation, KL to the teacher on own answers to held-out prompts',
  'nats a token',
  await apart(pretrained),
  await apart(distilled),
  true,
)
const student = await judgeOf(distilled)
tell('distillation, held-out answers', 'perplexity', before, perplexity(student, answerRows(student)), true)

for (const [name, model] of Object.entries({ supervised, preferred, ppo, grpo, distilled })) {
  const read = await judgeOf(model)
  figures.push(figure(`held-out files, by the model after ${name}`, 'perplexity', [perplexity(read, textRows(read))]))
}
reportRoom('natural', figures)
