/** Measures lengths of answers and speeds of engine and learner in a run, for simulations. */

import { rlSettings } from '../../../algorithms/tokens/rl.ts'
import { checkGiven, InputError, show } from '../../../base/errors.ts'
import type { SimulationSettings } from '../../../fleet/simulation.ts'
import { isOfModel } from '../../../tables/trajectories/trajectory.ts'
import { readMetrics } from '../../../telemetry/metrics-lines.ts'
import { readConfig } from '../../folder/run-record.ts'
import { readRunTrajectories } from './export.ts'
import type { RlMetrics } from './metrics.ts'

/** A run's measurements as settings of a simulation. */
export interface MeasuredRun {
  readonly settings: Pick<
    SimulationSettings,
    | 'slots'
    | 'tokensPerSecond'
    | 'engineTokensPerSecond'
    | 'groupSize'
    | 'groupsPerBatch'
    | 'overSampling'
    | 'order'
    | 'dropFraction'
    | 'learnerTokensPerSecond'
    | 'updateSeconds'
    | 'deliverySeconds'
  >
  /** Tokens of each kept answer, all turns of a conversation together. */
  readonly lengths: readonly number[]
}

/** The fields read from an update's line. */
type Line = Pick<RlMetrics, (typeof FIGURES)[number] | 'drops'>

const FIGURES = ['sampledTokens', 'rolloutSeconds', 'updateSeconds', 'lanesIdleSeconds', 'trajectories'] as const

/** Values that `config.json` leaves out. */
const defaults = {
  groupSize: rlSettings.groupSize.default,
  groupsPerUpdate: rlSettings.groupsPerUpdate.default,
  overSampling: rlSettings.overSampling.default,
  order: rlSettings.order.default,
}

/**
 * Measures a language model's run. An engine is assumed to have as many slots as the run had lanes, each with the mean
 * rate of a busy lane, prompts and replies included. The learner's seconds are per token of the answers and include the
 * delivery of weights. Dropped groups are assumed to be as long as others.
 * @throws InputError if the folder has no run with updates of reinforcement learning, or it kept no trajectories.
 * @example
 * const { settings, lengths } = await measureRun('runs/text-countdown-1')
 * const simulation = await simulate({ ...settings, engines: 4, maxStaleness: 1 }, lengths)
 */
export async function measureRun(folder: string): Promise<MeasuredRun> {
  checkGiven('folder of measureRun', folder, 'a text')
  const { rl, settings } = (await readConfig(folder)) as {
    readonly rl?: { readonly parameters: Partial<typeof defaults> } | null
    readonly settings?: { readonly numLanes: number }
  }
  if (rl === undefined || rl === null || settings === undefined) {
    const expected = 'a run with mode=rl or sft+rl'
    throw new InputError(`run ${folder}`, 'no reinforcement learning of a language model', expected)
  }
  const lines = (await readMetrics(folder)).filter(({ phase }) => phase === 'rl') as unknown as Line[]
  if (lines.length === 0) throw new InputError(`metrics.jsonl of ${folder}`, 'no update', 'at least one')
  for (const [i, line] of lines.entries()) {
    const lacking = FIGURES.find((name) => !Number.isFinite(line[name]))
    if (lacking === undefined) continue
    throw new InputError(`metrics.jsonl of ${folder}, update ${i + 1}, ${lacking}`, show(line[lacking]), 'a number')
  }
  const { numLanes } = settings
  const { groupSize, groupsPerUpdate, overSampling, order } = { ...defaults, ...rl.parameters }
  const sum = (name: (typeof FIGURES)[number]) => lines.reduce((total, line) => total + line[name], 0)
  const learnedGroups = sum('trajectories') / groupSize
  const droppedGroups = lines.reduce((total, { drops }) => total + Object.values(drops).reduce((a, b) => a + b, 0), 0)
  const groups = learnedGroups + droppedGroups
  const sampled = (sum('sampledTokens') * groups) / learnedGroups
  // Idle lanes were not counted during the last update's learning.
  const seconds = sum('rolloutSeconds') + sum('updateSeconds') - lines.at(-1)!.updateSeconds
  const busySeconds = numLanes * (seconds - sum('lanesIdleSeconds'))
  const tokensPerSecond = sampled / busySeconds
  if (!(tokensPerSecond > 0 && Number.isFinite(tokensPerSecond))) {
    const got = `${sampled} tokens in ${busySeconds} seconds in which lanes had a turn`
    throw new InputError(`metrics.jsonl of ${folder}`, got, 'sampled tokens, and time in which lanes had a turn')
  }
  return {
    settings: {
      slots: numLanes,
      tokensPerSecond,
      engineTokensPerSecond: numLanes * tokensPerSecond,
      groupSize,
      groupsPerBatch: groupsPerUpdate,
      overSampling,
      order,
      dropFraction: droppedGroups / groups,
      learnerTokensPerSecond: sum('sampledTokens') / sum('updateSeconds'),
      updateSeconds: 0,
      deliverySeconds: 0,
    },
    lengths: await lengthsOf(folder),
  }
}

/** Number of tokens that the model chose in each conversation, over all rows. */
async function lengthsOf(folder: string): Promise<number[]> {
  const { trajectories } = await readRunTrajectories(folder)
  const lengths: number[] = []
  for (const i of trajectories.order()) {
    const { token, lossMask, version, segment } = trajectories.row(i)
    if (segment === 0) lengths.push(0)
    for (let t = 0; t < token.length; t++) {
      if (isOfModel(lossMask, version, t)) lengths[lengths.length - 1] = lengths.at(-1)! + 1
    }
  }
  return lengths.map((length) => Math.max(1, length)) // Includes conversations that failed before the first token.
}
