/** Supervised fine-tuning of a language model on your own examples, without an environment. */
import { sft as makeSft, type sftSettings } from '../../../algorithms/tokens/sft.ts'
import { checkOptions, InputError, show, unknownWord } from '../../../base/errors.ts'
import type { SettingValues } from '../../../base/settings.ts'
import { defineTextEnvironment, type Example } from '../../../environments/text.ts'
import { textOf } from '../../../language/datasets/example.ts'
import { conversationOf, exampleOf, type SftExample } from '../../../language/datasets/load.ts'
import type { TooLong } from '../../../language/examples.ts'
import type { LanguageModelDefinition } from '../../../language/language-model.ts'
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'
import { createWorld } from '../../../world/world.ts'
import { createTrainer, type Trainer } from '../../loop/trainer.ts'
import type { TextMetrics } from '../evaluate/metrics.ts'

/** Options of `trainOnExamples`. */
export interface SftTrainingOptions {
  readonly policy: LanguageModelDefinition
  /** Prompts with answers, conversations or texts, as from `loadSftDataset`. */
  readonly examples: readonly (Example | SftExample)[]
  readonly settings?: Partial<SettingValues<typeof sftSettings>>
  /** Keys initial weights and the order of the examples; default 0. */
  readonly seed?: number
  /** How to treat examples longer than the context; default an error before the first step. */
  readonly tooLong?: TooLong
  onStep?(metrics: TextMetrics): void
}

/**
 * Trains on the examples and returns the trainer, which has the model and saves checkpoints.
 * @throws InputError if there is no example, one is invalid, has nothing to learn or is longer than the context, or as
 * `createWorld` does.
 * @example const { world } = await trainOnExamples({ policy: languageModel({ folder }), examples, settings: { steps: 200 } })
 */
export async function trainOnExamples(options: SftTrainingOptions): Promise<Trainer<ConversationCohort>> {
  checkOptions('runSftTraining', options, ['policy', 'examples', 'settings', 'seed', 'tooLong', 'onStep'])
  const { policy, examples, settings = {}, seed = 0, tooLong = 'error', onStep } = options
  if (!Array.isArray(examples) || examples.length === 0) {
    throw new InputError('examples', Array.isArray(examples) ? 'none' : show(examples), 'at least one example')
  }
  const lessons = examples.map((example, i) => lessonFrom(example, `example ${i}`))
  const environment = defineTextEnvironment({
    id: 'text/examples',
    settings: {},
    make: () => ({
      numExamples: lessons.length,
      example: (index) => lessons[index]!,
      respond: () => ({ reward: null, error: 'examples to learn from have no rewards' }),
    }),
  })()
  const world = await createWorld({ environment, policy, numLanes: 1, seed, tooLong })
  const trainer = createTrainer(world, makeSft(settings))
  for await (const metrics of trainer.updates()) onStep?.(metrics)
  return trainer
}

/** Converts an example of any form to an environment's example. */
function lessonFrom(example: Example | SftExample, subject: string): Example {
  if (typeof example !== 'object' || example === null) throw new InputError(subject, show(example), 'an object')
  if ('prompt' in example) return example as Example
  if ('text' in example) return exampleOf({ text: textOf(example.text, `${subject}, text`) })
  if ('messages' in example) {
    return exampleOf({ messages: conversationOf(example.messages, `${subject}, messages`) })
  }
  const names = Object.keys(example)
  throw unknownWord(`${subject}, column`, names[0] ?? 'none', ['prompt', 'messages', 'text'])
}
