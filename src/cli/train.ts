import { configureRun, configureTextRun, isTextEnvironment, startRun, startTextRun } from '../index.ts'
import { follow } from './follow.ts'
import { followText } from './follow-text.ts'
import { type Command, splitWords } from './invocation.ts'

/** colonnade train <environment> [out=DIR] [key=value …] */
export const trainCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'an environment, like CartPole-v1')
  const { out, ...overrides } = texts
  if (await isTextEnvironment(subject)) {
    return followText(await startTextRun(await configureTextRun(subject, overrides), out), { json, quiet })
  }
  return follow(await startRun(await configureRun(subject, overrides), out), { json, quiet })
}
