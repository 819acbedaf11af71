import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { languageModel } from '../src/language/language-model.ts'
import { lora } from '../src/language/transformer/lora.ts'
import { saveLora } from '../src/language/transformer/lora-folder.ts'
import { tick } from '../src/systems/tick.ts'
import { type ConversationCohort, loadAdapter } from '../src/world/conversations/cohort.ts'
import type { World } from '../src/world/world.ts'
import { Numbers } from './kernels/calls.ts'
import { localEngineOf, talkUntil, talkWorld } from './support/conversations.ts'
import { temporaryFolder } from './support/temporary.ts'

const model = { width: 16, layers: 2, heads: 2, loraRank: 2, loraTargets: ['q_proj', 'down_proj'] }

function adaptedWorld(): Promise<World<ConversationCohort>> {
  return talkWorld({ policy: languageModel(model), groupSize: 4 })
}

/** Changes the adapter as training would, so that it says something else. */
function change({ adapter }: ConversationCohort): void {
  adapter!.weights.set(new Numbers(5).floats(adapter!.weights.length, -1, 1))
}

/** The folder of a changed adapter, and what a policy says with it. */
async function saved() {
  const world = await adaptedWorld()
  const cohort = world.cohort()
  change(cohort)
  const folder = join(await temporaryFolder(), 'adapter')
  await saveLora(folder, cohort.adapter!.lora, cohort.adapter!.weights)
  return { folder, said: await talkUntil(world, 8), weights: cohort.adapter!.weights }
}

describe('an adapter that is loaded into a policy at work', () => {
  test('makes it say what the policy said that saved it, bit for bit', async () => {
    const { folder, said, weights } = await saved()
    const before = await talkUntil(await adaptedWorld(), 8)
    const world = await adaptedWorld()
    expect(await loadAdapter(world.cohort(), folder)).toBe(1)
    expect(world.cohort().adapter!.weights).toEqual(weights)
    const after = await talkUntil(world, 8)
    const anyVersion = (all: typeof said) => all.map(({ version: _, ...rest }) => rest)
    expect(anyVersion(after)).toEqual(anyVersion(said))
    expect(anyVersion(before)).not.toEqual(anyVersion(said))
    expect(new Set(after.flatMap(({ version }) => version))).toEqual(new Set([-1, 1]))
  })

  test('lets conversations under way go on: what is said from then on is of the new adapter, with its version', async () => {
    const { folder } = await saved()
    const [world, other] = [await adaptedWorld(), await adaptedWorld()]
    for (let i = 0; i < 2; i++) for (const each of [world, other]) tick(each)
    const { conversation, context } = world.cohort()
    const lengths = conversation.length.slice()
    const token = conversation.token.slice()
    await loadAdapter(world.cohort(), folder)
    change(other.cohort()) // The same weights, but with keys and values that the old ones made.
    for (const each of [world, other]) tick(each)
    const differs = lengths.map((length, n) => {
      expect(conversation.token.slice(n * context, n * context + length)).toEqual(
        token.slice(n * context, n * context + length),
      )
      expect(conversation.version[n * context + length - 1]).toBe(0)
      expect(conversation.version[n * context + length]).toBe(1)
      const place = n * context + length
      return conversation.logprob[place] === other.cohort().conversation.logprob[place] ? 0 : 1
    })
    expect(differs).toContain(1) // So the cache was dropped.
    expect((await talkUntil(world, 8)).length).toBe(8)
  })

  test('is refused where rank, alpha, targets or model are others, and then nothing has changed', async () => {
    const world = await adaptedWorld()
    const cohort = world.cohort()
    const before = cohort.adapter!.weights.slice()
    tick(world)
    const cached = localEngineOf(cohort).turns.cached.slice()
    const folder = await temporaryFolder()
    const targets = ['q_proj', 'down_proj'] as const
    for (const [settings, message] of [
      [
        { rank: 3, targets },
        'got rank 3, alpha 6, targets q_proj, down_proj, expected rank 2, alpha 4, targets q_proj',
      ],
      [{ rank: 2, alpha: 1, targets }, 'got rank 2, alpha 1'],
      [{ rank: 2, targets: ['q_proj', 'up_proj'] }, 'got rank 2, alpha 4, targets q_proj, up_proj'],
    ] as const) {
      const wrong = lora(cohort.model, settings)
      await saveLora(folder, wrong, new Float32Array(wrong.numParameters))
      await expect(loadAdapter(cohort, folder)).rejects.toThrow(message)
    }
    const wider = await talkWorld({ policy: languageModel({ ...model, width: 32 }) })
    const { lora: other, weights } = wider.cohort().adapter!
    await saveLora(folder, other, weights)
    await expect(loadAdapter(cohort, folder)).rejects.toThrow('of shape [2,16]')
    await saveLora(folder, cohort.adapter!.lora, before)
    await expect(loadAdapter((await talkWorld()).cohort(), folder)).rejects.toThrow(
      /which has no adapter.*a cohort with an adapter/,
    )
    await expect(loadAdapter(cohort, join(folder, 'nowhere'))).rejects.toThrow('nowhere')
    await expect(loadAdapter(world as never, folder)).rejects.toThrow(
      'got no cohort, expected a cohort, like world.cohort()',
    )
    localEngineOf(cohort).workers = { begin: async () => {}, finish: async () => {} } // Its trainer's threads are at work.
    await expect(loadAdapter(cohort, folder)).rejects.toThrow(/a call during a step of several threads/)
    expect([cohort.version, cohort.adapter!.weights, localEngineOf(cohort).turns.cached]).toEqual([0, before, cached])
  })
})
