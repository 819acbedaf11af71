import { mlp } from '../../src/policies/mlp.ts'
import type { Policy, PolicyDefinition } from '../../src/policies/policy.ts'

/** A small perceptron whose every answer is a promise: kept after `delay()` ms, and broken by the `fails`th infer. */
export function later(delay: () => number = () => 0, fails = Number.POSITIVE_INFINITY): PolicyDefinition {
  const inner = mlp({ hidden: [8] })
  const wait = () => new Promise((resolve) => setTimeout(resolve, delay()))
  let asked = 0
  return {
    ...inner,
    build(...spaces) {
      const model = inner.build(...spaces)
      return {
        ...model,
        answersLater: true,
        staysInThread: true,
        bind(...columns) {
          const policy = model.bind(...columns)
          const { infer, values, differentiate } = policy
          const late: Partial<Policy> = {
            async infer(...given) {
              await wait()
              asked++
              if (asked === fails) throw new Error('the device is gone')
              infer.apply(policy, given)
            },
            async values(...given) {
              await wait()
              values.apply(policy, given)
            },
            async differentiate(...given) {
              await wait()
              differentiate.apply(policy, given)
            },
          }
          return Object.assign(policy, late)
        },
      }
    },
  }
}
