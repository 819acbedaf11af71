import { configureRun, startRun } from '../index.ts'
import { follow } from './follow.ts'
import { type Command, splitWords } from './invocation.ts'

/** colonnade train <environment> [out=DIR] [key=value …] */
export const trainCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'an environment, like CartPole-v1')
  const { out, ...overrides } = texts
  const run = await startRun(await configureRun(subject, overrides), out)
  return follow(run, { json, quiet })
}
