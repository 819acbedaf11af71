import { defineWrapper } from '../../src/entries/environments.ts'
import { number } from '../../src/entries/settings.ts'

/** Scales the environment's reward. */
export const halfReward = defineWrapper({
  id: 'halfReward',
  module: import.meta.url,
  settings: { factor: number(0.5, 'what rewards are multiplied by') },
  make: ({ factor }, environment) => ({
    step({ outer, inner }, from, to) {
      environment.step(inner, from, to)
      for (let n = from; n < to; n++) outer.reward[n] = outer.reward[n]! * factor
    },
  }),
})
