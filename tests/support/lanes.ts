import { Random } from '../../src/base/random.ts'
import { observationType, spaceType, spaceWidth } from '../../src/base/space.ts'
import { takeArena } from '../../src/components/arena.ts'
import { type ColumnSpec, column } from '../../src/components/column.ts'
import {
  actionMaskWidth,
  type EnvironmentDefinition,
  type Lanes,
  statePlan,
} from '../../src/environments/environment.ts'
import { type BenchBuild, kernelsOf } from './builds.ts'

/** What observations of bytes begin with. */
export const UNWRITTEN = 255

/** Columns for an environment's functions, without a world. Outputs begin as NaN. */
export function lanesOf<S>(
  environment: EnvironmentDefinition,
  numLanes: number,
  seed = 1,
  build: BenchBuild = 'plain',
): Lanes<S> & { readonly laneList: Uint32Array } {
  const { observationSpace, actionSpace } = environment
  const { arena, columns } = takeArena({
    state: statePlan(environment, numLanes),
    observation: column(observationType(observationSpace), numLanes, spaceWidth(observationSpace)) as ColumnSpec<'f32'>,
    actionMask: column('u8', numLanes, actionMaskWidth(environment)),
    action: column(spaceType(actionSpace), numLanes, spaceWidth(actionSpace)),
    reward: column('f32', numLanes),
    terminated: column('u8', numLanes),
    truncated: column('u8', numLanes),
    died: column('u8', 0),
    births: column('u8', 0),
    lane: column('u32', numLanes),
    episode: column('u32', numLanes),
    step: column('i32', numLanes),
    laneList: column('u32', numLanes),
  })
  columns.observation.fill(observationType(observationSpace) === 'u8' ? UNWRITTEN : Number.NaN)
  columns.reward.fill(Number.NaN)
  for (let n = 0; n < numLanes; n++) columns.lane[n] = n
  return {
    ...columns,
    state: columns.state as S,
    answersLater() {},
    present: numLanes,
    random: new Random(seed),
    kernels: kernelsOf(arena.memory, build),
  }
}

/** Begins an episode in all lanes. */
export function resetAll(environment: EnvironmentDefinition, lanes: Lanes): void {
  environment.reset(
    lanes,
    Uint32Array.from(lanes.reward, (_, n) => n),
    lanes.reward.length,
  )
}
