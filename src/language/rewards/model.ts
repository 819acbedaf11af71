/**
 * A trained reward model in this process: its score is the value head's value after an answer's last token. The answer follows the
 * example's prompt with the model's own tokenizer and chat template, as in its training (`sft.loss=reward`).
 */
import { InputError } from '../../base/errors.ts'
import { isThere } from '../../base/files/files.ts'
import { integer, text } from '../../base/settings.ts'
import { column } from '../../components/column.ts'
import { spansOf } from '../../kernels/bind.ts'
import { scoredRow } from '../examples.ts'
import { loadLanguageModel } from '../load-language-model.ts'
import { answerRow } from '../templates/dialogue.ts'
import { VALUE_FILE } from '../transformer/folder.ts'
import { takeColumns } from '../transformer/memory.ts'
import { PackedTransformer, packedPlan } from '../transformer/packed.ts'
import { defineReward, failed, type Judgment, judgesTogether, type RewardInput, withOpening } from './reward.ts'

/** Judges answers with a model. An answer without a score has a reason. */
type Scorer = (inputs: readonly RewardInput[]) => Judgment[]

/**
 * The score of a reward model in a folder, in batches of `batchSize` answers. An answer longer than the model's context has no value.
 * @throws InputError without a folder, and when it is opened for one without a model or a value head.
 * @example colonnade train text/dataset … environment.reward=model environment.reward.folder=runs/judge/model
 */
export const modelReward = defineReward({
  id: 'model',
  settings: {
    folder: text('', "folder of a model with a value head, as sft.loss=reward leaves it in a run's model"),
    context: integer(
      0,
      "maximum of tokens of a prompt with its answer; 0: 1,024, or the model's context if that is less",
      { min: 0 },
    ),
    batchSize: integer(16, 'answers per call', { min: 1 }),
  },
  make({ folder, context, batchSize }) {
    if (folder === '')
      throw new InputError('reward model.folder', 'nothing', 'a folder with a model and its value head')
    let loading: Promise<Scorer> | undefined
    const open = () => (loading ??= scorerOf(folder, context))
    return withOpening(
      judgesTogether(async (inputs) => (await open())(inputs), batchSize),
      open,
    )
  },
})

async function scorerOf(folder: string, given: number): Promise<Scorer> {
  const { model, weights, tokenizer } = await loadLanguageModel(folder, { valueHead: true })
  if (!(await isThere(`${folder}/${VALUE_FILE}`))) {
    throw new InputError(
      'reward model.folder',
      `${folder}, without ${VALUE_FILE}`,
      'a model trained with sft.loss=reward',
    )
  }
  const context = Math.min(given || 1024, model.shape.contextLength)
  const { columns, kernels } = takeColumns({
    weights: column('f32', model.numParameters),
    packed: packedPlan(model, context, context),
  })
  columns.weights.set(weights)
  const packed = new PackedTransformer(model, columns.weights, columns.packed, kernels)
  const scoreOf = ({ completion, example }: RewardInput): Judgment => {
    const { demonstration: _, ...asked } = example
    const row = scoredRow(answerRow(tokenizer, { ...asked, answer: completion }, 'chosen', 'reward model')!)
    const { length } = row.ids
    if (length - 1 > context) return failed('refused', `${length - 1} tokens, expected at most ${context}`)
    const { value } = packed.evaluate(packed.pack(row.ids, spansOf([0, length]), 0, 1))
    return { value: value[length - 2]!, components: {} }
  }
  return (inputs) => inputs.map(scoreOf)
}
