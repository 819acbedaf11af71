/** Trains runs of episodes as cohorts of one world, with the bits they have alone. `whyApart` says which cannot. */
import { writeArrow } from '../../tables/arrow.ts'
import { createWorld } from '../../world/world.ts'
import { writeCheckpoint } from '../folder/checkpoint.ts'
import { RunFolder } from '../folder/run-folder.ts'
import { metricsLine, type UpdateMetrics } from '../loop/metrics.ts'
import { createTrainer } from '../loop/trainer.ts'
import type { EpisodeRunDefinition, RunDefinition } from '../run/definition.ts'
import { actorsOf, modelOf, threadsOf } from '../run/episode-run.ts'
import { configOf } from '../run/run.ts'

/** A run that has not begun, and its new folder. */
export interface ComingRun<D extends RunDefinition = RunDefinition> {
  readonly definition: D
  readonly folder: string
}

export interface SideBySideOptions {
  /** Called after each update with the metrics of each run, in order, and each run's total steps. */
  readonly onUpdate?: ((lines: readonly UpdateMetrics[], totalSteps: number) => void) | undefined
  /** When aborted, the training ends after the update, with a checkpoint of each run. */
  readonly signal?: AbortSignal | undefined
  /** Part of the training after which it pauses, with a checkpoint of each run; default 1: none. */
  readonly part?: number
}

/** Why a run cannot be trained with others; null if it can. */
export function whyApart(definition: RunDefinition): string | null {
  if (definition.kind === 'conversations') return 'it trains a language model'
  const { environment, settings, recorded } = definition
  const { answersLater = false, staysInThread = false } = modelOf(definition)
  const reasons: readonly (readonly [boolean, string])[] = [
    [recorded !== null, 'it learns from a file (from)'],
    [settings.weights !== '', 'it begins with the weights of a file (weights)'],
    [settings.opponents > 0, 'it plays against earlier selves (opponents)'],
    [actorsOf(definition) > 0, 'its rollouts are collected ahead (maxStaleness)'],
    [settings.evaluateEvery > 0, 'it is evaluated while it trains (evaluateEvery)'],
    [settings.stop !== '', 'it may end before the others (stop)'],
    [settings.stopWhenSolved, 'it may end before the others (stopWhenSolved)'],
    [settings.loggers.length > 0, 'it has loggers'],
    [settings.profile, 'its profile measures its own time (profile)'],
    [settings.rollouts === 'all', 'it keeps all rollouts (rollouts)'],
    [environment.population === true, `lanes of ${environment.id} are born and die`],
    [answersLater || staysInThread, `policy ${definition.policy.id} is computed by a device`],
  ]
  return reasons.find(([holds]) => holds)?.[1] ?? null
}

/** Groups runs that can be trained together: a list per world. Runs that must be trained alone are in none. */
export function shareWorlds(runs: readonly ComingRun[]): ComingRun<EpisodeRunDefinition>[][] {
  const worlds = new Map<string, ComingRun<EpisodeRunDefinition>[]>()
  for (const run of runs) {
    if (whyApart(run.definition) !== null) continue
    const { algorithm, settings } = run.definition as EpisodeRunDefinition
    const { numLanes, totalSteps, kernels, threads, checkpointEvery, checkpointsKept, stallSeconds, onStall } = settings
    // A world's cohorts share the steps per update, number of updates, threads and checkpoints.
    const key = [algorithm.numSteps, numLanes, totalSteps, kernels, threads, checkpointEvery, checkpointsKept]
    const shared = JSON.stringify([...key, stallSeconds, onStall])
    worlds.set(shared, [...(worlds.get(shared) ?? []), run as ComingRun<EpisodeRunDefinition>])
  }
  return [...worlds.values()].filter((each) => each.length > 1)
}

/**
 * Trains runs in one world to their end, or until aborted, and leaves in each folder what `resumeRun` continues;
 * finished runs get their summary. The runs must be one list of `shareWorlds`.
 * @throws InputError as `createWorld` and `createTrainer` do, and for a folder that is not empty.
 */
export async function trainSideBySide(
  runs: readonly ComingRun<EpisodeRunDefinition>[],
  { onUpdate, signal, part = 1 }: SideBySideOptions = {},
): Promise<void> {
  const { settings } = runs[0]!.definition
  const names = runs.map((_, i) => `run${i}`)
  const world = await createWorld({
    seed: settings.seed,
    kernels: settings.kernels,
    cohorts: runs.map(({ definition: { environment, policy, systems, settings } }, i) => ({
      ...{ name: names[i]!, environment, policy, systems },
      ...{ numLanes: settings.numLanes, seed: settings.seed },
    })),
  })
  const algorithms = Object.fromEntries(runs.map(({ definition }, i) => [names[i]!, definition.algorithm]))
  const most = Math.min(...runs.map(({ definition }) => threadsOf(definition).threads)) // The number that all of them allow.
  const threads = settings.threads === 0 ? most : settings.threads
  const trainer = createTrainer(world, algorithms, { threads, stallSeconds: 0 })
  const folders: RunFolder[] = []
  let watch: Awaited<ReturnType<RunFolder['watch']>> | undefined
  const keep = async () => {
    const states = trainer.splitState()
    for (const [i, folder] of folders.entries()) {
      const { tensors, manifest } = states.get(names[i]!)!
      await folder.checkpoint(() => writeCheckpoint(folder.path, tensors, manifest), settings.checkpointsKept)
    }
  }
  try {
    for (const { definition, folder } of runs) {
      const { found: files } = await RunFolder.claim(folder, 'refuse')
      folders.push(files)
      await files.writeConfig(configOf(folder, definition))
    }
    const { beats, shares: who, calls } = trainer
    const watched = { beats, who, calls, giveUp: (reason: Error) => trainer.giveUp(reason) }
    watch = await folders[0]!.watch(watched, settings, signal)
    const goal = { totalSteps: settings.totalSteps * runs.length, ...(signal && { signal }) }
    let kept = 0
    for await (const metrics of trainer.updates(goal)) {
      const lines = names.map((name) => lineOf(metrics, name, runs.length))
      for (const [i, line] of lines.entries()) folders[i]!.note(metricsLine(line))
      onUpdate?.(lines, settings.totalSteps)
      if (part < 1 && lines[0]!.steps >= part * settings.totalSteps) break
      if (trainer.update % settings.checkpointEvery !== 0) continue
      await keep()
      kept = trainer.update
    }
    for (const [i, folder] of folders.entries()) {
      if (runs[i]!.definition.settings.rollouts === 'none' || trainer.update === 0) continue
      const name = `${String(trainer.update).padStart(8, '0')}.arrow`
      await writeArrow(folder.file('rollouts', name), trainer.rollouts[names[i]!]!.table)
      await folder.keepOnly('rollouts', name)
    }
    if (kept < trainer.update) await keep()
  } catch (error) {
    for (const folder of folders) folder.log(`ended by an error: ${(error as Error)?.message ?? error}`)
    throw error
  } finally {
    watch?.close()
    trainer.close()
    for (const folder of folders) await folder.release()
  }
}

/** The metrics of one of `count` cohorts with the same number of steps. Time is divided equally. */
function lineOf(metrics: UpdateMetrics, name: string, count: number): UpdateMetrics {
  const { cohorts, steps, seconds, stepsPerSecond, rolloutSeconds, updateSeconds, phaseSeconds } = metrics
  const phases = Object.entries(phaseSeconds).map(([phase, value]) => [phase, value / count])
  return {
    update: metrics.update,
    steps: steps / count,
    seconds: seconds / count,
    stepsPerSecond,
    ...cohorts[name]!,
    rolloutSeconds: rolloutSeconds / count,
    updateSeconds: updateSeconds / count,
    phaseSeconds: Object.fromEntries(phases),
    cohorts: { [name]: cohorts[name]! },
  } as UpdateMetrics
}
