/** Why a run does not learn, from its folder. */
import { checkGiven, checkOptions } from '../../base/errors.ts'
import type { RunCheck } from '../../telemetry/diagnose/check.ts'
import { type Diagnosis, diagnosisOf } from '../../telemetry/diagnose/diagnose.ts'
import { readMetrics } from '../../telemetry/metrics-lines.ts'
import { readConfig } from '../folder/run-record.ts'

/**
 * Checks the recorded figures of a run, also of one that still trains, for what keeps runs from learning. Each finding
 * names its evidence and settings to change. No module of the run is imported.
 * @throws InputError if the folder has no run, or metrics that cannot be read.
 * @example
 * for (const { problem, changes } of (await diagnose('runs/CartPole-v1-1')).findings) console.log(problem, changes)
 */
export async function diagnose(
  folder: string,
  options: {
    /** Checks of your own, besides the built-in ones. */
    readonly checks?: readonly RunCheck[]
  } = {},
): Promise<Diagnosis> {
  checkOptions('diagnose', options, ['checks'])
  checkGiven('checks of diagnose', options.checks ?? [], 'a list')
  return diagnosisOf(await readConfig(folder), await readMetrics(folder), options.checks)
}
