import { defineRunCheck } from '../check.ts'

/** Of the conversations. */
const MANY = 0.25

export const truncation = defineRunCheck({
  id: 'truncation',
  description: 'conversations that are cut off',
  metrics: ['clippedRatio'],
  look(run) {
    const last = run.last('clippedRatio')
    if (last.mean <= MANY) return null
    const length = run.stretches('completionLength').at(-1)
    return {
      problem: 'many conversations are cut off by the token budget or the context',
      evidence: [
        { ...last, expected: `at most ${MANY} of the conversations` },
        ...(length === undefined
          ? []
          : [{ ...length, expected: 'less than environment.maxTokens and languageModel.context allow' }]),
      ],
      changes: [], // The budget is the environment's or the model's, which have no common key.
    }
  },
})
