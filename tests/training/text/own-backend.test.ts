/** Trainers of conversations whose backend is one's own: weights, checkpoints, failures. */
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import { cartPole, createTrainer, createWorld, languageModel, mlp, ppo, rl, sft } from '../../../src/index.ts'
import { defineArrayBackend } from '../../../src/training/backends/array-backend.ts'
import type { BackendDefinition } from '../../../src/training/backends/backend.ts'
import { localBackend } from '../../../src/training/backends/local-backend.ts'
import { pruneCheckpoints } from '../../../src/training/folder/checkpoint.ts'
import { digits, talkWorld } from '../../support/conversations.ts'
import { temporaryFolder } from '../../support/temporary.ts'
import { unigramModel, unigrams } from '../../support/unigrams.ts'

const environment = digits({
  maxTokens: 4,
  respond: ({ completion }) => ({ reward: [...completion].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) % 7 }),
})
const settings = { groupsPerUpdate: 3, groupSize: 4, lossSettings: { klCoef: 0 } }
const world = () => talkWorld({ environment, groupSize: 4, numLanes: 5 })

describe('a trainer with a backend of one’s own', () => {
  /** Of the model's numbers it trains the first, as logits of a distribution that forgets what came before. */
  const firstLogits = defineArrayBackend('first-logits', (context) => {
    const size = context.model.shape.vocabularySize
    const { weights: _, ...said } = unigramModel([])
    return {
      weights: context.trained,
      forward: (weights, ...given) => said.forward(weights.subarray(0, size), ...given),
      backward: (weights, batch, derivatives, options, gradient) =>
        said.backward(weights.subarray(0, size), batch, derivatives, options, gradient.subarray(0, size)),
    }
  })
  const phases = () =>
    [
      sft({ updates: 2, batchSize: 3, optimizer: 'sgd', momentum: 0.9, learningRate: 1 }),
      rl({ ...settings, updates: 2, optimizer: 'sgd', momentum: 0.9, learningRate: 1 }),
    ] as const
  const made = async (backend: BackendDefinition = firstLogits, folder?: string) =>
    createTrainer(await world(), phases(), { backend, ...(folder === undefined ? {} : { folder }) })
  const trainOn = async (trainer: Awaited<ReturnType<typeof made>>, updates: number) => {
    for await (const _ of trainer.updates()) if (--updates === 0) break
    return trainer.world.cohort().weights.slice()
  }

  test('refuses to freeze parameters, which it does not know', async () => {
    const policy = languageModel({ trainable: ['model.norm.weight'] })
    const frozen = await createWorld({ environment, policy, numLanes: 4, seed: 1, groupSize: 4 })
    expect(() => createTrainer(frozen, phases(), { backend: firstLogits })).toThrow(
      'languageModel.trainable: got names, with backend first-logits, expected none: it trains all its weights',
    )
  })

  test('refuses a device, which only the local backend uses', async () => {
    const policy = languageModel({ device: 'webgpu' })
    const onDevice = await createWorld({ environment, policy, numLanes: 4, seed: 1, groupSize: 4 })
    expect(() => createTrainer(onDevice, phases(), { backend: firstLogits })).toThrow(
      'languageModel.device: got webgpu, with backend first-logits, expected none, or backend local',
    )
  })

  test('gives the weights to the engine of this process, and goes on from checkpoints to the same ones', async () => {
    const trainer = await made()
    const first = trainer.world.cohort().weights.slice()
    const after: Float32Array[] = []
    for (let i = 0; i < 4; i++) after.push(await trainOn(trainer, 1))
    const size = trainer.world.cohort().model.shape.vocabularySize
    for (const [i, weights] of after.entries()) {
      expect(weights.subarray(0, size)).not.toEqual((after[i - 1] ?? first).subarray(0, size))
      expect(weights.subarray(size)).toEqual(first.subarray(size))
    }
    for (const updates of [1, 2, 3]) {
      const folder = await temporaryFolder()
      const before = await made()
      await trainOn(before, updates)
      const saving = before.save(folder)
      await trainOn(before, 1) // It goes on when the checkpoint is written.
      await saving
      const resumed = await made(firstLogits, folder)
      await resumed.restore()
      expect(resumed.world.cohort().weights).toEqual(after[updates - 1])
      expect(await trainOn(resumed, 4)).toEqual(after[3])
    }
  })

  test('keeps what its backend keeps beside the checkpoints, where the backend names no other place, and prunes it', async () => {
    const named: string[] = []
    const elsewhere: BackendDefinition = {
      id: 'elsewhere',
      create(context) {
        const backend = firstLogits.create(context)
        return {
          ...backend,
          saveCheckpoint: (name) =>
            backend.saveCheckpoint(name).then(() => `service://${name}`) as ReturnType<typeof backend.saveCheckpoint>,
          loadCheckpoint(name) {
            named.push(name)
            return backend.loadCheckpoint(name.replace('service://', ''))
          },
        }
      },
    }
    const folder = await temporaryFolder()
    for (const [backend, expected] of [
      [firstLogits, []],
      [elsewhere, [`service://${join(folder, 'elsewhere', 'checkpoints', '00000001.languageModel')}`]],
    ] as const) {
      const own = join(folder, backend.id)
      const trainer = await made(backend, own)
      await trainOn(trainer, 1)
      await trainer.save()
      await trainOn(trainer, 1)
      await trainer.save()
      const files = ['00000001', '00000001.languageModel', '00000002', '00000002.languageModel']
      expect((await readdir(join(own, 'checkpoints'))).toSorted()).toEqual(files)
      await (await made(backend, own)).restore(undefined, 1)
      expect(named).toEqual(expected)
      await pruneCheckpoints(own, 1)
      expect((await readdir(join(own, 'checkpoints'))).toSorted()).toEqual(files.slice(2))
    }
  })

  test('is not taken up with another backend, nor where what it kept is gone', async () => {
    const folder = await temporaryFolder()
    const trainer = await made(firstLogits, folder)
    await trainOn(trainer, 1)
    await trainer.save()
    await expect((await made(unigrams([1]), folder)).restore()).rejects.toThrow(
      /backend of languageModel: got "first-logits", expected "unigrams", as in this training/,
    )
    await expect(createTrainer(await world(), phases(), { folder }).restore()).rejects.toThrow(
      /backend of languageModel: got "first-logits", expected null/,
    )
    await rm(join(folder, 'checkpoints', '00000001.languageModel'))
    const resumed = await made(firstLogits, folder)
    const before = resumed.world.cohort().weights.slice()
    await expect(resumed.restore()).rejects.toThrow(InputError)
    expect(resumed.world.cohort().weights).toEqual(before)
    expect(resumed.update).toBe(0)
  })

  test('refuses another update after one that failed, until a checkpoint is restored', async () => {
    const folder = await temporaryFolder()
    for (const backend of [firstLogits, localBackend]) {
      const own = join(folder, backend.id)
      const expected = await trainOn(await made(byDerivatives(backend, false)), 4)
      const trainer = await made(byDerivatives(backend, true), own)
      await trainOn(trainer, 1)
      await trainer.save()
      await expect(trainOn(trainer, 1)).rejects.toThrow('gradient: got a norm of NaN')
      await expect(trainOn(trainer, 1)).rejects.toThrow(/after optimStep\(\) failed .*loadCheckpoint\(\) before it/)
      await trainer.restore()
      expect(await trainOn(trainer, 4)).toEqual(expected)
    }
  })

  test('refuses what is no backend, and one where no conversations learn', async () => {
    await expect(made({} as never)).rejects.toThrow(
      'createTrainer, backend: got {}, expected a backend like defineBackend(…), with an id and create()',
    )
    const episodes = await createWorld({ environment: cartPole(), policy: mlp(), numLanes: 2 })
    expect(() => createTrainer(episodes, ppo(), { backend: firstLogits })).toThrow(
      'createTrainer, backend: got first-logits, and cohorts of episodes, expected at least one of conversations',
    )
  })
})

/** A backend that takes derivatives alone, and where `isFailing` finds them to be no numbers the second time, once. */
function byDerivatives(definition: BackendDefinition, isFailing: boolean): BackendDefinition {
  let calls = 0
  return {
    ...definition,
    create(context) {
      const { forwardBackward: _, ...backend } = definition.create(context)
      return {
        ...backend,
        backward(batch, derivatives, options) {
          if (isFailing && ++calls === 2) derivatives.dLogprob.fill(Number.NaN)
          return backend.backward(batch, derivatives, options)
        },
      }
    },
  }
}
