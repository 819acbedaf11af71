import { resumeRun } from '../index.ts'
import { follow } from './follow.ts'
import { type Command, readKeys, splitWords } from './invocation.ts'

/** colonnade resume <run> */
export const resumeCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'a run folder')
  readKeys({}, texts)
  const run = await resumeRun(subject)
  for (const warning of run.warnings) console.error(`colonnade: warning: ${warning}`)
  return follow(run, { json, quiet })
}
