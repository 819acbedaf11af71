/** Gymnasium and PettingZoo from PyPI, and what tests of both bridges do. */
import { fileURLToPath } from 'node:url'
import { beforeAll, beforeEach, expect } from 'vitest'
import {
  collect,
  createTrainer,
  createWorld,
  type EnvironmentDefinition,
  type EpisodeCohort,
  mlp,
  ppo,
} from '../../dist/src/index.js'
import { skipLoudly } from './command.ts'
import { FARAMA, FARAMA_MODULES, findPython, PYTHON_MS } from './python.ts'
import { temporaryFolder } from './temporary.ts'

/** The folder of Python's modules for tests. */
export const support = fileURLToPath(new URL('./', import.meta.url))
const policy = mlp({ hidden: [8] })

/** A Python with both, for the tests of a file; `skipped` says why they are skipped, or is empty. */
export function useFarama(skipped: string): { readonly python: string } {
  const found = { python: '' }
  let why = skipped
  beforeAll(async () => {
    if (why !== '') return
    const made = await findPython(FARAMA, FARAMA_MODULES)
    if ('why' in made) why = made.why
    else found.python = made.python
    process.env.PYTHONPATH = support
  }, PYTHON_MS)
  beforeEach((context) => {
    if (why !== '') skipLoudly(context, why)
  })
  return found
}

/** The rollout of an environment with actions by a policy that learns nothing. */
export async function recorded(environment: EnvironmentDefinition, numLanes: number, numSteps: number) {
  const world = await createWorld({ environment, policy, numLanes, seed: 3 })
  world.reserve(world.draft(), { numSteps, learner: {} })
  try {
    await collect(world, numSteps)
    return (world.cohort() as EpisodeCohort).rollout
  } finally {
    world.close()
  }
}

/** Expects that four updates leave the same bits as two in two threads and then, after a resume, two more. */
export async function expectSameBits(
  make: () => EnvironmentDefinition,
  numLanes: number,
  numSteps: number,
): Promise<void> {
  const trained = async (updates: number, threads: number, folder?: string) => {
    const world = await createWorld({ environment: make(), policy, numLanes, seed: 3 })
    const options = { threads, ...(folder === undefined ? {} : { folder }) }
    const trainer = createTrainer(world, ppo({ numSteps, numMinibatches: 2, updateEpochs: 2 }), options)
    try {
      if (folder !== undefined && updates > 2) await trainer.restore()
      for await (const { update } of trainer.updates({ totalSteps: 20 * numLanes * numSteps }))
        if (update === updates) break
      if (folder !== undefined) await trainer.save()
      return world.cohorts[0]!.weights.slice()
    } finally {
      trainer.close()
      world.close()
    }
  }
  const whole = await trained(4, 1)
  const folder = await temporaryFolder()
  expect(await trained(2, 2, folder)).not.toEqual(whole)
  expect(await trained(4, 1, folder)).toEqual(whole)
}
