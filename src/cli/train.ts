import { configureRun, configureTextRun, isTextEnvironment, startRun, startTextRun } from '../index.ts'
import { follow, tellWarnings } from './follow.ts'
import { followText, tellPlan } from './follow-text.ts'
import { type Command, splitWords } from './invocation.ts'

/** colonnade train <environment> [out=DIR] [key=value …] */
export const trainCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'an environment, like CartPole-v1')
  const { out, ...overrides } = texts
  if (await isTextEnvironment(subject)) {
    const run = await startTextRun(await configureTextRun(subject, overrides), out, tellPlan(quiet))
    tellWarnings(run.warnings)
    return followText(run, { json, quiet })
  }
  return follow(await startRun(await configureRun(subject, overrides), out), { json, quiet })
}
