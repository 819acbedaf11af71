/** Conversations with three turns under a template that removes thinking from earlier ones, for tests. */
import { rl } from '../../src/algorithms/tokens/rl.ts'
import {
  defineTextEnvironment,
  type TextEnvironmentDefinition,
  type TextEnvironmentModel,
  type Turn,
} from '../../src/environments/text.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { createTrainer, type Trainer } from '../../src/training/loop/trainer.ts'
import type { TextMetrics } from '../../src/training/text/evaluate/metrics.ts'
import type { ConversationCohort } from '../../src/world/conversations/cohort.ts'
import { createWorld } from '../../src/world/world.ts'
import { writeQwen3 } from './qwen3-folder.ts'

/** Three turns; the reward is the number of letters a. */
export function threeTurns(model: Partial<TextEnvironmentModel> = {}) {
  return defineTextEnvironment({
    id: 'text/three-turns',
    settings: {},
    make: () => ({
      numExamples: 3,
      maxTurns: 3,
      maxTokens: 5,
      example: (index) => ({ prompt: [{ role: 'user', content: `${index}?` }] }),
      respond: ({ completion, messages, turn }: Turn) => {
        const said = [...messages.map(({ content }) => content), completion].join('')
        return {
          reward: said.split('a').length - 1 + said.length / 100,
          messages: [{ role: 'user', content: `${turn}!` }],
        }
      },
      ...model,
    }),
  })()
}

let qwen3: Promise<string> | undefined
/** A random Qwen3 model with a template that behaves as Qwen3's. */
export async function modelFolder(): Promise<string> {
  qwen3 ??= makeModel()
  return qwen3
}

async function makeModel(): Promise<string> {
  const { temporaryFolder } = await import('./temporary.ts') // Needs vitest, which separate processes lack.
  const folder = await temporaryFolder()
  const { atEnd } = await import('./end.ts')
  atEnd(() => {
    qwen3 = undefined // The next test file in this process makes its own.
  })
  await writeQwen3(folder)
  return folder
}

/** A training with three turns; `model` is its model's folder, default `modelFolder()`. */
export async function trainerOf(
  updates: number,
  templateArguments: string[],
  {
    environment = threeTurns(),
    model,
    ...settings
  }: { environment?: TextEnvironmentDefinition; model?: string | undefined } & Parameters<typeof rl>[0] = {},
): Promise<Trainer<ConversationCohort>> {
  const policy = languageModel({ folder: model ?? (await modelFolder()), templateArguments })
  const world = await createWorld({ environment, policy, numLanes: 6, seed: 2, groupSize: 3, cutTurn: 'continue' })
  return createTrainer(world, rl({ updates, groupsPerUpdate: 2, groupSize: 3, learningRate: 1e-2, ...settings }))
}

export async function trained(trainer: Trainer<ConversationCohort>, signal?: AbortSignal): Promise<TextMetrics[]> {
  const all: TextMetrics[] = []
  for await (const metrics of trainer.updates({ signal })) all.push(metrics)
  return all
}
