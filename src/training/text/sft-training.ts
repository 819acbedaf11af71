/** Supervised fine-tuning of a language model on examples of one's own, without an environment to talk to. */
import { sft as makeSft, type sftSettings } from '../../algorithms/sft.ts'
import { defineTextEnvironment, type Example } from '../../environments/text.ts'
import { InputError, show } from '../../errors.ts'
import type { SettingValues } from '../../settings.ts'
import type { LanguageModelDefinition } from '../../text/language-model.ts'
import { createWorld } from '../../world.ts'
import type { TextMetrics } from './metrics.ts'
import { createTextTrainer, type TextTrainer } from './trainer.ts'

/** What `runSftTraining` is told. */
export interface SftTrainingOptions {
  readonly policy: LanguageModelDefinition
  /** Prompts with answers, or conversations that end with what the assistant says; as `loadSftDataset` reads them, but texts. */
  readonly examples: readonly Example[]
  readonly settings?: Partial<SettingValues<typeof sftSettings>>
  /** Keys starting weights and the order of the examples; default 0. */
  readonly seed?: number
  /** Called after each step. */
  onStep?(metrics: TextMetrics): void
}

/**
 * Trains on the examples and returns the trainer, which has the model, and saves checkpoints.
 * @throws InputError where there is no example, one has nothing to learn from or is longer than the context, or as
 * `createWorld` does.
 * @example const { cohort } = await runSftTraining({ policy: languageModel({ folder }), examples, settings: { steps: 200 } })
 */
export async function runSftTraining(options: SftTrainingOptions): Promise<TextTrainer> {
  const { policy, examples, settings = {}, seed = 0, onStep } = options
  if (!Array.isArray(examples) || examples.length === 0) {
    throw new InputError('examples', Array.isArray(examples) ? 'none' : show(examples), 'at least one example')
  }
  const environment = defineTextEnvironment({
    id: 'text/examples',
    settings: {},
    make: () => ({
      numExamples: examples.length,
      example: (index) => examples[index]!,
      respond: () => ({ reward: null, error: 'examples to learn from have no rewards' }),
    }),
  })()
  const world = await createWorld({ environment, policy, numLanes: 1, seed })
  const trainer = createTextTrainer(world, { sft: makeSft(settings) })
  for await (const metrics of trainer.supervise()) onStep?.(metrics)
  return trainer
}
