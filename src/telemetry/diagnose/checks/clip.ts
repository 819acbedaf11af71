import { become, defineRunCheck, times } from '../check.ts'

/** Usual are 0.02 to 0.2 of the rows. */
const MANY = 0.35
/** A KL below which so many clipped rows mean that the range is narrow. */
const SMALL_KL = 1e-3
const USUAL_CLIP = 0.2

export const clip = defineRunCheck({
  id: 'clip',
  description: 'many rows outside the clip range',
  metrics: ['clipFraction', 'approxKl'],
  look(run) {
    const most = run.highest('clipFraction')
    if (most.mean <= MANY) return null
    const change = run.during('approxKl', most)
    const isNarrow = change !== null && change.mean < SMALL_KL
    const usual = isNarrow ? `above ${SMALL_KL} if that many rows move` : 'about 0.001 to 0.02 nats'
    return {
      problem: isNarrow ? 'the clip range is too narrow for any learning' : 'most of what updates do is clipped',
      evidence: [
        { ...most, expected: `at most ${MANY} of the rows; usual are 0.02 to 0.2` },
        ...(change === null ? [] : [{ ...change, expected: usual }]),
      ],
      changes: isNarrow ? become(run, 'clipCoef', USUAL_CLIP) : times(run, 'learningRate', 1 / 10),
    }
  },
})
