/** Chooses the kernels of a resumed run: those of its checkpoint, since its bits depend on them. */
import { InputError } from '../../base/errors.ts'
import { examineNative, haveSameBits, kernelBuilds } from '../../kernels/bind.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import { listCheckpoints, readManifest } from '../folder/checkpoint.ts'

/** A build, and a message for the user. */
export interface RecordedKernels {
  readonly build: KernelBuild
  readonly notes: readonly string[]
}

/** Kernels with the bits of a run's checkpoint; null without one. @throws InputError if this runtime has none. */
export async function recordedKernels(run: string, number?: number): Promise<RecordedKernels | null> {
  const chosen = number ?? (await listCheckpoints(run)).at(-1)
  if (chosen === undefined) return null
  const read = await readManifest(run, chosen).catch(() => null)
  return read === null ? null : kernelsAmong(kernelBuilds(), `run ${run}`, read.manifest.kernels)
}

/** As `recordedKernels`, given a runtime's builds. */
export function kernelsAmong(builds: readonly KernelBuild[], subject: string, recorded: string): RecordedKernels {
  const build = builds.find((name) => name === recorded) ?? builds.findLast((name) => haveSameBits(name, recorded))
  if (build === undefined) {
    const here = `one by ${builds.join(', ')} kernels, which this runtime has`
    const expected = `${here}; set kernels= to one of them to continue with other bits`
    throw new InputError(subject, `a checkpoint by ${recorded} kernels`, expected)
  }
  if (build === recorded) return { build, notes: [] }
  const why = recorded === 'native' ? `: ${examineNative().why}` : ''
  return { build, notes: [`kernels were ${recorded} and are ${build}, which give the same bits${why}`] }
}
