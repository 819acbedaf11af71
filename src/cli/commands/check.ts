import type { Command } from '../../base/invocation.ts'
import { checkEnvironment, type EnvironmentReport, environmentChecks } from '../../entries/environments.ts'
import { integer } from '../../entries/settings.ts'
import { readEnvironment } from '../words/environment-keys.ts'

export const checkKeys = {
  numLanes: integer(1024, 'lanes; a multiple of the players of a game', { min: 1 }),
  steps: integer(64, 'steps of each lane, with random actions', { min: 1 }),
  seed: integer(0, 'seed of all random numbers', { min: 0 }),
}

/** colonnade check <environment>: checks its contract. Exits with 1 if it is violated. */
export const checkCommand: Command = async ({ words, json }) => {
  const { values, environment } = await readEnvironment(words, checkKeys, ['wrappers'])
  await environment.prepare?.()
  const report = checkEnvironment(environment, values)
  if (!json) print(report)
  if (!report.holds) process.exitCode = 1
  return report
}

function print({ environment, numLanes, steps, episodes, checks }: EnvironmentReport): void {
  console.log(`${environment}: ${numLanes} lanes, ${steps} steps each with random actions, ${episodes} episodes ended`)
  const widest = Math.max(...checks.map(({ name }) => name.length))
  for (const { name, status, got, expected } of checks) {
    console.log(`${status.padEnd(7)} ${name.padEnd(widest)} ${environmentChecks[name]}`)
    if (status === 'failed') console.log(`        got ${got}, expected ${expected}`)
  }
}
