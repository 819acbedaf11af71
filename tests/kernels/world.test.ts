import { describe, expect, test } from 'vitest'
import { cartPole } from '../../src/environments/classic/cart-pole.ts'
import { pendulum } from '../../src/environments/classic/pendulum.ts'
import type { EnvironmentDefinition } from '../../src/environments/environment.ts'
import { bestKernelBuild, kernelBuildOf } from '../../src/kernels/bind.ts'
import type { KernelBuild } from '../../src/kernels/kernels.ts'
import { mlp } from '../../src/policies/mlp.ts'
import type { Evaluated } from '../../src/policies/policy.ts'
import { tick } from '../../src/systems/tick.ts'
import { createWorld } from '../../src/world/world.ts'

/** `native` takes the place of `relaxed`, whose bits it leaves. */
const builds: readonly KernelBuild[] = [...new Set(['simd', bestKernelBuild()] as const)]
const environments: Record<string, () => EnvironmentDefinition> = { cartPole, pendulum }
const cases = builds.flatMap((build) =>
  Object.keys(environments).flatMap((name) => [true, false].map((shared) => [name, build, shared] as const)),
)

/** A world of `numLanes` after some ticks. */
async function live(name: string, kernels: KernelBuild, sharedTrunk: boolean, numLanes: number, ticks = 40) {
  const policy = mlp({ hidden: [13, 10], sharedTrunk })
  const world = await createWorld({ environment: environments[name]!(), policy, numLanes, seed: 3, kernels })
  for (let t = 0; t < ticks; t++) tick(world)
  return world.cohorts[0]!
}

test('a world takes the fastest kernels for best, and refuses at once those that are none', async () => {
  const options = { environment: cartPole(), policy: mlp(), numLanes: 2 }
  expect(kernelBuildOf()).toBe(bestKernelBuild())
  expect((await createWorld({ ...options, kernels: 'best' })).kernelBuild).toBe(bestKernelBuild())
  expect((await createWorld(options)).kernelBuild).toBe(bestKernelBuild())
  expect((await createWorld({ ...options, kernels: 'plain' })).kernelBuild).toBe('plain')
  await expect(createWorld({ ...options, kernels: 'fast' as never })).rejects.toThrow(
    /^kernels: got "fast", expected best, or one of plain, simd/,
  )
})

describe('a world on compiled kernels', () => {
  test.each(cases)(
    '%s, %s (shared trunk: %j) evaluates to what it inferred, bit for bit',
    async (name, build, shared) => {
      const cohort = await live(name, build, shared, 300)
      const { policy, observation, actionMask, memory, action } = cohort
      policy.infer(cohort, true, 0, 300)
      const rows = {
        observation: observation.current,
        action: action.chosen,
        actionMask: actionMask.current,
        memory: memory.current,
        continues: new Uint8Array(0),
      }
      for (const [from, count] of [
        [0, 256],
        [256, 44],
        [17, 101],
        [299, 1],
      ] as const) {
        const { logprob, value } = policy.evaluate(rows, from, count) as Evaluated
        expect(logprob.slice(0, count)).toEqual(action.logprob.slice(from, from + count))
        expect(value.slice(0, count)).toEqual(action.value.slice(from, from + count))
      }
    },
  )

  test.each(cases)(
    '%s, %s (shared trunk: %j) gives a lane the same life in any company',
    async (name, build, shared) => {
      const [few, many] = [await live(name, build, shared, 5), await live(name, build, shared, 300)]
      const part = <C extends Float32Array | Int32Array | Uint8Array>(of: C, like: C) => of.slice(0, like.length)
      expect(few.observation.current).toEqual(part(many.observation.current, few.observation.current))
      expect(few.action.logprob).toEqual(part(many.action.logprob, few.action.logprob))
      expect(few.action.value).toEqual(part(many.action.value, few.action.value))
      expect(few.episode.step).toEqual(part(many.episode.step, few.episode.step))
    },
  )

  test.each(cases)('%s, %s (shared trunk: %j) stays near the plain world', async (name, build, shared) => {
    const [plain, compiled] = [await live(name, 'plain', shared, 20, 3), await live(name, build, shared, 20, 3)]
    compiled.observation.current.forEach((seen, i) => {
      expect(Math.abs(seen - plain.observation.current[i]!)).toBeLessThan(1e-5)
    })
    compiled.action.value.forEach((value, n) => {
      expect(Math.abs(value - plain.action.value[n]!)).toBeLessThan(1e-5)
    })
  })
})
