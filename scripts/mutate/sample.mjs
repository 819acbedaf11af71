// Which faults are tried. Stryker tries all or none of a line, so all are put in and this checker lets the sample pass.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

/** Why a mutant cannot be judged by its tests: they were not run, which a suite does not pass either. */
export const NOT_RUN = 'Tests were not run'

/**
 * The names of the mutants, in their order: file, kind, what stood there, what stands there now, and which of several
 * that are alike. A name has no line number, so that an edit elsewhere in the file leaves the sample as it was.
 * @param {{ fileName: string, mutatorName: string, location: object, replacement: string }[]} mutants in source order
 * @param {(path: string) => string} sourceOf the text of a file
 */
export function nameMutants(mutants, sourceOf) {
  const seen = new Map()
  return mutants.map(({ fileName, mutatorName, location, replacement }) => {
    const original = textAt(sourceOf(fileName), location)
    const name = JSON.stringify([fileName, mutatorName, original, replacement])
    const nth = seen.get(name) ?? 0
    seen.set(name, nth + 1)
    return `${name}#${nth}`
  })
}

/** `count` of the names, drawn by the seed: those whose hashes come first. */
export function drawSample(names, count, seed) {
  const hash = (name) => createHash('sha256').update(`${seed}\n${name}`).digest('hex')
  return names
    .map((name) => ({ name, rank: hash(name) }))
    .sort((a, b) => (a.rank < b.rank ? -1 : 1))
    .slice(0, count)
    .map(({ name }) => name)
}

/** The text between two places; lines and columns count from 0. */
export function textAt(source, { start, end }) {
  const lines = source.split('\n').slice(start.line, end.line + 1)
  lines[lines.length - 1] = lines.at(-1).slice(0, end.column)
  lines[0] = lines[0].slice(start.column)
  return lines.join('\n')
}

/** Where a mutant lies, as this checker and the one who drew the sample both know it. */
export function placeOf({ fileName, mutatorName, location: { start, end }, replacement }) {
  const file = fileName.slice(fileName.lastIndexOf('src/'))
  return JSON.stringify([file, mutatorName, start.line, start.column, end.line, end.column, replacement])
}

class SampleChecker {
  #places = new Set()

  async init() {
    this.#places = new Set(JSON.parse(readFileSync(process.env.MUTATE_SAMPLE, 'utf8')))
  }

  async group(mutants) {
    return [mutants.map(({ id }) => id)]
  }

  async check(mutants) {
    const verdict = (mutant) =>
      this.#places.has(placeOf(mutant)) ? { status: 'passed' } : { status: 'compileError', reason: 'not in the sample' }
    return Object.fromEntries(mutants.map((mutant) => [mutant.id, verdict(mutant)]))
  }
}

export const strykerPlugins = [{ kind: 'Checker', name: 'sample', injectableClass: SampleChecker }]
