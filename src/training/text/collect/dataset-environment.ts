/** A text environment with examples from a file or hub dataset, and a reward by registry id or module path. */
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
  opened,
  type Reward,
  type RewardFactory,
  type RewardInput,
} from '../../../language/rewards/reward.ts'

const settings = {
  path: text(
    '',
    'file of JSON Lines, JSON, Arrow or Parquet, or the id of a hub dataset; `path@[a:b]` takes rows a to b − 1',
  ),
  subset: text('', 'configuration of a hub dataset; empty: its default or only one'),
  split: text('', 'split of a hub dataset; empty: train'),
  prompt: text('prompt', 'column of prompts: texts, or lists of messages'),
  answer: text('answer', 'column of right answers, if any'),
  completion: text('completion', 'column of completions, which are trained on if there are no answers'),
  messages: text('messages', 'column of whole conversations, which are trained on if there are no prompts'),
  text: text('text', 'column of texts, which are trained on if there are neither'),
  chosen: text('chosen', 'column of the better answers of pairs, as texts or messages, to compare'),
  rejected: text('rejected', 'column of the worse answers of pairs'),
  label: text('label', 'column that says whether a completion is good, if there are no pairs'),
  margin: text('margin', 'column that says by how much the better answer is better, if any'),
  limit: integer(0, 'maximum of rows to read; 0: all', { min: 0 }),
  reward: part('reward', 'accuracy', 'id of the reward, or the path of a module that exports one'),
  rewardSettings: strings(
    [],
    'settings of the reward, like url=http://127.0.0.1:8000,batchSize=8; each also has its own key (environment.reward.batchSize=8); | separates entries of a list',
  ),
  retries: integer(0, 'retries of a failed reward', { min: 0 }),
  timeoutMs: integer(10_000, 'milliseconds after which a reward counts as failed, unless it has its own limit', {
    min: 1,
  }),
  maxTokens: integer(64, 'maximum of tokens of an answer', { min: 1 }),
} satisfies Settings

/**
 * Examples from a file or hub dataset, answered in one turn. A failed reward is unknown, with its reason. Rows of
 * conversations or texts have no prompt to answer: supervised fine-tuning learns them.
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
        await opened(made)
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

/** Makes the reward with `key=value` settings, as on a command line. */
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
