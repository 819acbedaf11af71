import { mlp } from '../../src/policies/mlp.ts'
import type { Policy, PolicyDefinition } from '../../src/policies/policy.ts'

/**
 * A small asynchronous perceptron: answers resolve after `delay()` ms, reject at infer number `fails`, and never settle
 * at infer number `hangs`, both counted from 1.
 */
export function later({
  hidden = [8],
  delay = () => 0,
  fails = 0,
  hangs = 0,
}: {
  hidden?: number[]
  delay?: () => number
  fails?: number
  hangs?: number
} = {}): PolicyDefinition {
  const inner = mlp({ hidden })
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
              if (asked === hangs) await new Promise(() => {})
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
