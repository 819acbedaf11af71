/** Which kernels a run goes on with: those that its checkpoint was made by, since its bits depend on them. */
import { InputError } from '../../base/errors.ts'
import { examineNative, haveSameBits, kernelBuilds } from '../../kernels/bind.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import { listCheckpoints, readManifest } from '../folder/checkpoint.ts'

/** A build, and what a user should be told of it. */
export interface RecordedKernels {
  readonly build: KernelBuild
  readonly notes: readonly string[]
}

/**
 * The kernels of a checkpoint of a run, of the newest where no number is given; others that leave the same bits where those are
 * not here. Null where there is no checkpoint, or none that can be read, which is told of when it is restored.
 * @throws InputError where this runtime has no kernels of these bits.
 */
export async function recordedKernels(run: string, number?: number): Promise<RecordedKernels | null> {
  const chosen = number ?? (await listCheckpoints(run)).at(-1)
  if (chosen === undefined) return null
  const read = await readManifest(run, chosen).catch(() => null)
  return read === null ? null : kernelsAmong(kernelBuilds(), `run ${run}`, read.manifest.kernels)
}

/** As `recordedKernels`, of the builds that a runtime has. */
export function kernelsAmong(builds: readonly KernelBuild[], subject: string, recorded: string): RecordedKernels {
  const build = builds.find((name) => name === recorded) ?? builds.findLast((name) => haveSameBits(name, recorded))
  if (build === undefined) {
    const here = `one by ${builds.join(', ')} kernels, which this runtime has`
    const expected = `${here}; with kernels= and one of them it goes on with other bits`
    throw new InputError(subject, `a checkpoint by ${recorded} kernels`, expected)
  }
  if (build === recorded) return { build, notes: [] }
  const why = recorded === 'native' ? `: ${examineNative().why}` : ''
  return { build, notes: [`kernels were ${recorded} and are ${build}, which leave the same bits${why}`] }
}
