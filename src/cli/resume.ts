import { isTextRun, resumeRun, resumeTextRun } from '../index.ts'
import { follow } from './follow.ts'
import { followText } from './follow-text.ts'
import { type Command, readKeys, splitWords } from './invocation.ts'
import { askForModule, trustKeys } from './trust.ts'

/** colonnade resume <run> [trust=MODULE] */
export const resumeCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'a run folder')
  const { trust } = readKeys(trustKeys, texts)
  const modules = { allowModule: askForModule(trust) }
  const warn = (warnings: readonly string[]): void => {
    for (const warning of warnings) console.error(`colonnade: warning: ${warning}`)
  }
  if (await isTextRun(subject)) {
    const run = await resumeTextRun(subject, modules)
    warn(run.warnings)
    return followText(run, { json, quiet })
  }
  const run = await resumeRun(subject, modules)
  warn(run.warnings)
  return follow(run, { json, quiet })
}
