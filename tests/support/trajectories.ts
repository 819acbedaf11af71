/** Trajectories for tests. */

import { stopReasons } from '../../src/environments/text.ts'
import type { Trajectory } from '../../src/tables/trajectories/trajectory.ts'
import * as fc from './properties.ts'

/** A trajectory of two prompt tokens and two chosen by version 0 of the weights. */
export function trajectory(given: Partial<Trajectory> = {}): Trajectory {
  return {
    ...{ promptId: 0, group: 0, member: 0, epoch: 0, turns: 1, stopReason: 'stop', reward: 1, error: null },
    components: {},
    token: [5, 6, 7, 8],
    lossMask: [0, 0, 1, 1],
    logprob: [Number.NaN, Number.NaN, -0.5, -1],
    version: [-1, -1, 0, 0],
    turn: [0, 0, 0, 0],
    ...given,
  }
}

const id = fc.nat({ max: 2 ** 31 - 1 })
const chosen = fc.record({
  token: id,
  lossMask: fc.constantFrom(0, 1),
  logprob: fc.float({ min: -100, max: 0, noNaN: true }),
  version: id,
  turn: fc.nat(5),
  candidates: fc.array(id, { maxLength: 3 }),
})
const given = fc.record({
  token: id,
  lossMask: fc.constantFrom(0, 1),
  logprob: fc.constant(0),
  version: fc.constant(-1),
  turn: fc.nat(5),
  candidates: fc.constant([] as number[]),
})
const known = fc.option(fc.double({ noNaN: true, noDefaultInfinity: true }))

/** Any trajectory. */
export const anyTrajectory: fc.Arbitrary<Trajectory> = fc
  .record({
    source: fc.constantFrom('', 'run a', 'run b'),
    ...{ promptId: id, group: fc.nat(5), member: fc.nat(3), epoch: fc.nat(2), turns: fc.nat(5) },
    ...{ cutTurns: fc.nat(5), droppedReplies: fc.nat(1) },
    stopReason: fc.constantFrom(...stopReasons),
    reward: known,
    error: fc.option(fc.string({ unit: 'grapheme' })),
    components: fc.dictionary(fc.constantFrom('right', 'short', 'a/b'), known, { noNullPrototype: true }),
    turnReward: fc.array(
      known.map((value) => value ?? Number.NaN),
      { maxLength: 3 },
    ),
    tokens: fc.array(fc.oneof(chosen, given), { minLength: 1, maxLength: 30 }),
  })
  .map(({ tokens, ...rest }) => ({
    ...rest,
    token: tokens.map(({ token }) => token),
    lossMask: tokens.map(({ lossMask }) => lossMask),
    logprob: tokens.map(({ logprob }) => logprob),
    version: tokens.map(({ version }) => version),
    turn: tokens.map(({ turn }) => turn),
    candidateCount: tokens.map(({ candidates }) => candidates.length),
    candidateIds: tokens.flatMap(({ candidates }) => candidates),
  }))

/** A trajectory with plain arrays, for comparison: an empty candidate set, or source, equals a missing one. */
export function plain({
  token,
  lossMask,
  logprob,
  version,
  turn,
  candidateCount,
  candidateIds,
  turnReward,
  ...rest
}: Trajectory) {
  const columns = {
    token,
    lossMask,
    logprob,
    version,
    turn,
    candidateIds: candidateIds ?? [],
    turnReward: turnReward ?? [],
  }
  return {
    ...{ source: '', segment: 0, cutTurns: 0, droppedReplies: 0 },
    ...rest,
    ...(Object.fromEntries(Object.entries(columns).map(([k, v]) => [k, Array.from(v)])) as Record<
      keyof typeof columns,
      number[]
    >),
    candidateCount: Array.from(candidateCount ?? new Uint8Array(token.length)),
  }
}
