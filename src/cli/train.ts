import { configureRun, startRun } from '../index.ts'
import { follow, tellPlan, tellWarnings } from './follow.ts'
import { type Command, splitWords } from './invocation.ts'

/** colonnade train <environment> [out=DIR] [key=value …] */
export const trainCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'an environment, like CartPole-v1')
  const { out, ...given } = texts
  const run = await startRun(await configureRun(subject, given), out, tellPlan(quiet))
  tellWarnings(run.warnings)
  return follow(run, { json, quiet })
}
