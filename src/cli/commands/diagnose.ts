import { pathToFileURL } from 'node:url'
import { findPart } from '../../base/definition.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { short } from '../../base/metrics.ts'
import { type Diagnosis, diagnose, type RunCheck } from '../../entries/loggers.ts'
import { strings } from '../../entries/settings.ts'

export const diagnoseKeys = {
  checks: strings([], 'paths of modules that export custom checks (defineRunCheck), in addition to the built-in ones'),
}

/** colonnade diagnose <run>: why it does not learn. Exits with 1 if there is a finding, or no check could be made. */
export const diagnoseCommand: Command = async ({ words, json }) => {
  const { subject, texts } = splitWords(words, 'a run folder')
  const paths = readKeys(diagnoseKeys, texts).checks
  const own = paths.map((path) => findPart('check', pathToFileURL(path).href, 'caller'))
  const diagnosis = await diagnose(subject, { checks: (await Promise.all(own)) as unknown as RunCheck[] })
  if (!json) console.log(describe(subject, diagnosis))
  if (diagnosis.findings.length > 0 || diagnosis.checked.length === 0) process.exitCode = 1
  return { run: subject, ...diagnosis }
}

function describe(run: string, { environment, algorithm, updates, findings, checked, skipped }: Diagnosis): string {
  const lines = findings.flatMap(({ check, problem, evidence, changes }) => [
    `${check}: ${problem}`,
    ...evidence.map(({ metric, first, last, mean, expected }) => {
      return `  ${metric} ${short(mean)} in updates ${first} to ${last}; expected ${expected}`
    }),
    ...changes.map(({ key, value, to }) => `  try ${key}=${to}, which was ${value}`),
  ])
  const notMade = [...new Set(Object.values(skipped))].map((reason) => {
    const checks = Object.keys(skipped).filter((check) => skipped[check] === reason)
    return `not checked: ${checks.join(', ')}, since ${reason}`
  })
  const numChecks = checked.length + Object.keys(skipped).length
  const found = findings.length === 0 ? 'nothing found' : `${findings.length} found`
  const result = checked.length === 0 ? 'so nothing is known' : found
  return [
    `${run}: ${updates} updates of ${algorithm} on ${environment}, ${checked.length} of ${numChecks} checks made, ${result}`,
    ...lines,
    ...notMade,
  ].join('\n')
}
