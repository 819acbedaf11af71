import type { Command } from '../../base/invocation.ts'
import { type EnvironmentMeasurement, measureEnvironment } from '../../entries/environments.ts'
import { number, sizes } from '../../entries/settings.ts'
import { readEnvironment } from '../words/environment-keys.ts'

export const benchKeys = {
  numLanes: sizes([16, 64, 256, 1024, 4096], 'numbers of lanes, each in its own world'),
  threads: sizes([1], 'numbers of threads, each with every number of lanes'),
  seconds: number(0.5, 'minimum duration of each measurement in seconds', { min: 0.01 }),
}

/** colonnade bench <environment>: how fast it steps, is played and trains here, and the recommended number of lanes. */
export const benchCommand: Command = async ({ words, json }) => {
  const { values, environment, policy } = await readEnvironment(words, benchKeys, ['wrappers', 'policy'])
  const measurement = await measureEnvironment(environment, { ...values, policy })
  if (!json) print(measurement)
  return measurement
}

function print({ environment, measured, recommendedNumLanes }: EnvironmentMeasurement): void {
  console.log(`${environment}, steps a second of all lanes`)
  console.log('  lanes threads  environment     rollouts     training  most of the time')
  for (const { numLanes, threads, shares, ...rates } of measured) {
    const figures = [rates.environmentStepsPerSecond, rates.rolloutStepsPerSecond, rates.trainingStepsPerSecond]
    const most = Object.entries(shares)
      .sort(([, a], [, b]) => b - a)
      .slice(0, 4)
      .map(([work, share]) => `${work} ${(100 * share).toFixed(0)} %`)
    const columns = [String(numLanes).padStart(7), String(threads).padStart(7), ...figures.map(perSecond)]
    console.log(`${columns.join(' ')}  ${most.join(', ')}`)
  }
  console.log(`numLanes=${recommendedNumLanes}: the fewest whose rollouts are within a tenth of the fastest`)
}

function perSecond(rate: number): string {
  return Math.round(rate).toLocaleString('en').padStart(12)
}
