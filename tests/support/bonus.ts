import { integer } from '../../src/entries/settings.ts'
import { defineSystem } from '../../src/index.ts'

/** Adds a bonus to each step's reward, and sums it over rollouts. */
export const bonus = defineSystem({
  id: 'bonus',
  module: import.meta.url,
  settings: { first: integer(0, 'what is paid besides') },
  shared: () => ({ paid: 'f32' }),
  make: ({ first }) => ({
    after: 'step',
    run({ reward }, from, to) {
      for (let n = from; n < to; n++) reward[n]! += first
    },
    afterRollout({ shared }) {
      shared.paid[0] = shared.paid[0]! + first
    },
  }),
})
