/**
 * Runs of episodes that learn side by side, as the cohorts of one world. Each has a folder of its own, with the bits that the run alone
 * would leave there. What a run does beside learning, like evaluations, it does alone: `whyApart` says so.
 */
import { writeArrow } from '../../tables/arrow.ts'
import { createWorld } from '../../world/world.ts'
import { writeCheckpoint } from '../folder/checkpoint.ts'
import { RunFolder } from '../folder/run-folder.ts'
import { metricsLine, type UpdateMetrics } from '../loop/metrics.ts'
import { createTrainer } from '../loop/trainer.ts'
import type { EpisodeRunDefinition, RunDefinition } from '../run/definition.ts'
import { actorsOf, modelOf, threadsOf } from '../run/episode-run.ts'
import { configOf } from '../run/run.ts'

/** A run that has not begun, and the new folder that it takes. */
export interface ComingRun<D extends RunDefinition = RunDefinition> {
  readonly definition: D
  readonly folder: string
}

/** Who watches, and who may stop the training. */
export interface SideBySideOptions {
  /** Called after each update, with what it did to each of the runs, in their order, and how many steps each is to take. */
  readonly onUpdate?: ((lines: readonly UpdateMetrics[], totalSteps: number) => void) | undefined
  /** When aborted, the training ends after the update, with a checkpoint of each run. */
  readonly signal?: AbortSignal | undefined
}

/** Why a run cannot learn beside others; null where it can. */
export function whyApart(definition: RunDefinition): string | null {
  if (definition.kind === 'conversations') return 'it trains a language model'
  const { environment, settings, recorded } = definition
  const { answersLater = false, staysInThread = false } = modelOf(definition)
  const reasons: readonly (readonly [boolean, string])[] = [
    [recorded !== null, 'it learns from a file (from)'],
    [settings.weights !== '', 'it begins with the weights of a file (weights)'],
    [settings.opponents > 0, 'it plays against earlier selves (opponents)'],
    [actorsOf(definition) > 0, 'its rollouts are collected ahead (maxStaleness)'],
    [settings.evaluateEvery > 0, 'it is judged while it trains (evaluateEvery)'],
    [settings.stopWhenSolved, 'it may end before the others (stopWhenSolved)'],
    [settings.loggers.length > 0, 'it has loggers'],
    [settings.profile, 'its profile is of its own time (profile)'],
    [settings.rollouts === 'all', 'it keeps all rollouts (rollouts)'],
    [environment.population === true, `lanes of ${environment.id} are born and die`],
    [answersLater || staysInThread, `policy ${definition.policy.id} is computed by a device`],
  ]
  return reasons.find(([holds]) => holds)?.[1] ?? null
}

/** Those that can learn beside one another: a list for each world. Runs that have to learn alone are in none. */
export function shareWorlds(runs: readonly ComingRun[]): ComingRun<EpisodeRunDefinition>[][] {
  const worlds = new Map<string, ComingRun<EpisodeRunDefinition>[]>()
  for (const run of runs) {
    if (whyApart(run.definition) !== null) continue
    const { algorithm, settings } = run.definition as EpisodeRunDefinition
    const { numLanes, totalSteps, kernels, threads, checkpointEvery, checkpointsKept, stallSeconds, onStall } = settings
    // What all cohorts of a world have in common: updates of as many steps, as many of them, threads and checkpoints.
    const key = [algorithm.numSteps, numLanes, totalSteps, kernels, threads, checkpointEvery, checkpointsKept]
    const shared = JSON.stringify([...key, stallSeconds, onStall])
    worlds.set(shared, [...(worlds.get(shared) ?? []), run as ComingRun<EpisodeRunDefinition>])
  }
  return [...worlds.values()].filter((each) => each.length > 1)
}

/**
 * Trains runs to their end in one world, or until they are told to stop, and leaves in each folder what `resumeRun` takes up: of those
 * that are at their end it makes the summary. They are runs of one list of `shareWorlds`.
 * @throws InputError as `createWorld` and `createTrainer` do, and for a folder that holds anything.
 */
export async function trainSideBySide(
  runs: readonly ComingRun<EpisodeRunDefinition>[],
  { onUpdate, signal }: SideBySideOptions = {},
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
  const most = Math.min(...runs.map(({ definition }) => threadsOf(definition).threads)) // What all of them can have.
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
      const { found: files } = await RunFolder.claim(() => folder, 'refuse')
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

/** What an update did to one of `count` cohorts that take as many steps; of the time it has an equal share. */
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
