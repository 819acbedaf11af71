/** A conversation whose reply never comes while the file STUCK is there: to the sixth, and to those after it. */
import { existsSync } from 'node:fs'
import { defineTextEnvironment } from '../../dist/src/index.js'

let asked = 0

export const stuckText = defineTextEnvironment({
  id: 'text/stuck',
  module: import.meta.url,
  settings: {},
  make: () => ({
    numExamples: 4,
    maxTokens: 2,
    example: (i) => ({ prompt: `${i}=`, answer: String(i) }),
    async respond({ completion }) {
      if (++asked > 6 && existsSync(process.env.STUCK)) await new Promise(() => {})
      return { reward: completion.length }
    },
  }),
})
