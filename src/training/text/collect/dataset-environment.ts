/**
 * A text environment whose examples are those of a file or of a dataset of the hub, and whose reward is one that the registry
 * knows by its id, or one of a module of one's own.
 */
import { InputError, show } from '../../../base/errors.ts'
import { integer, part, readSettingTexts, type Settings, strings, text } from '../../../base/settings.ts'
import { defineTextEnvironment, type Reply, type Turn } from '../../../environments/text.ts'
import { loadExamples } from '../../../language/datasets/load.ts'
import { withPolicy } from '../../../language/rewards/policy.ts'
import { getRewardFunction } from '../../../language/rewards/registry.ts'
import {
  batchSizeOf,
  isInTime,
  type Judgment,
  judge,
  judgeMany,
  type Reward,
  type RewardFactory,
  type RewardInput,
} from '../../../language/rewards/reward.ts'

const settings = {
  path: text(
    '',
    'JSON Lines, JSON, Arrow or Parquet, or the id of a dataset of the hub; `path@[a:b]` are rows a to b − 1',
  ),
  subset: text('', 'of a dataset of the hub; empty: its default one, or its only one'),
  split: text('', 'of a dataset of the hub; empty: train'),
  prompt: text('prompt', 'what the file calls its prompts: texts, or lists of messages'),
  answer: text('answer', 'what the file calls the right answers, where it has them'),
  completion: text('completion', 'what the file calls completions, which are learned where there are no answers'),
  messages: text('messages', 'what the file calls whole conversations, to learn where there are no prompts'),
  text: text('text', 'what the file calls texts, to learn where there are neither'),
  limit: integer(0, 'rows that are read, at most; 0: all', { min: 0 }),
  reward: part('reward', 'accuracy', 'id of the reward of an answer, or the path of a module that exports one'),
  rewardSettings: strings(
    [],
    'its settings, like url=http://127.0.0.1:8000,batchSize=8, or each by a key of its own (environment.reward.batchSize=8); entries of a list have | between them',
  ),
  retries: integer(0, 'how often a reward that failed is asked again', { min: 0 }),
  timeoutMs: integer(10_000, 'milliseconds after which a reward has failed, unless it ends by itself', { min: 1 }),
  maxTokens: integer(64, 'tokens of an answer, at most', { min: 1 }),
} satisfies Settings

/**
 * Examples from a file or a dataset of the hub, answered in one turn. A reward that fails is unknown, with its reason. Rows of
 * whole conversations or of texts have no prompt to answer: supervised fine-tuning learns them.
 * @example colonnade train text/dataset environment.path=sums.jsonl environment.reward=mathAccuracy
 * @example colonnade train text/dataset … environment.reward=./my-reward.mjs
 * @example colonnade train text/dataset … environment.reward=remote environment.rewardSettings=url=http://127.0.0.1:8000
 */
export const dataset = defineTextEnvironment({
  id: 'text/dataset',
  module: import.meta.url,
  settings,
  make: ({ path, subset, split, limit, reward, rewardSettings, retries, timeoutMs, maxTokens, ...names }, parts) => {
    const factory = (parts.reward as RewardFactory | undefined) ?? getRewardFunction(reward)
    const made = rewardOf(factory, rewardSettings)
    const judged = withPolicy(made, { retries, timeoutMs })
    const size = batchSizeOf(made)
    return {
      numExamples: 1,
      example() {
        throw new InputError('text/dataset', 'an environment that was not opened', 'createWorld, or await open()')
      },
      maxTokens,
      repliesInTime: isInTime(made),
      async open() {
        if (path === '')
          throw new InputError('text/dataset path', 'nothing', 'a file, like environment.path=sums.jsonl')
        const columns = Object.fromEntries(Object.entries(names).filter(([ours, theirs]) => ours !== theirs))
        const part = { ...(subset === '' ? {} : { subset }), ...(split === '' ? {} : { split }) }
        const examples = await loadExamples(path, { columns, ...part, ...(limit === 0 ? {} : { limit }) })
        return { numExamples: examples.length, example: (index: number) => examples[index]! }
      },
      async respond(turn, signal) {
        return replyOf(await judge(judged, inputOf(turn), signal))
      },
      ...(size === null
        ? {}
        : {
            together: {
              size,
              async respond(turns, signal) {
                return (await Promise.all(judgeMany(judged, turns.map(inputOf), signal))).map(replyOf)
              },
            },
          }),
    }
  },
})

function inputOf({ completion, example, messages }: Turn): RewardInput {
  return { prompt: messages.map(({ content }) => content).join('\n'), completion, example }
}

function replyOf({ value, error, components }: Judgment): Reply {
  return { reward: value, components, ...(error === undefined ? {} : { error }) }
}

/** The factory's reward, with settings as they stand on a command line: `key=value`. */
function rewardOf(factory: RewardFactory, list: readonly string[]): Reward {
  const { id } = factory
  if (typeof factory.settings !== 'object' || factory.settings === null) {
    throw new InputError(`reward ${id}`, 'an export without settings', 'one that defineReward makes')
  }
  const given = readSettingTexts('text/dataset rewardSettings', `reward ${id}`, factory.settings, list)
  const reward: unknown = factory(given)
  if (typeof reward !== 'function') throw new InputError(`reward ${id}`, show(reward), 'a function that judges')
  return reward as Reward
}
