// npm run mutate -- ROOM [--seed N] [--sample N] [--concurrency N] [--timeout SECONDS] [--survivors]
//
// Puts faults into a room (StrykerJS), one at a time, and runs the tests that reach them: a fault that no test notices
// survives. Faults are a sample drawn by a seed from all of the room's; texts (string literals) are left out. Prints the
// score and each survivor, and writes reports/mutation/ROOM.json, which git ignores. `--sample 0` tries all of them;
// `--survivors` tries only those that survived in the report that stands. `--timeout` is what a fault's tests may take beyond
// four times what they took without it, default 20 s: more on a busy machine, for a fault that takes longer counts as noticed.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { rooms } from './rooms.mjs'
import { drawSample, NOT_RUN, nameMutants, placeOf, textAt } from './sample.mjs'

const EXCLUDED_MUTATIONS = ['StringLiteral']

process.chdir(fileURLToPath(new URL('../..', import.meta.url)))
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seed: { type: 'string', default: '1' },
    sample: { type: 'string', default: '250' },
    concurrency: { type: 'string', default: '1' },
    timeout: { type: 'string', default: '20' },
    survivors: { type: 'boolean', default: false },
  },
})
const [name] = positionals
const room = rooms[name]
if (!room || positionals.length > 1) {
  console.error(
    `npm run mutate -- ROOM, one of: ${Object.keys(rooms).join(' ')}; got ${positionals.join(' ') || 'none'}`,
  )
  process.exit(2)
}
const number = (key) => {
  const value = Number(values[key])
  if (!Number.isInteger(value) || value < 0) {
    console.error(`--${key}: a number of 0 or more was expected; got ${values[key]}`)
    process.exit(2)
  }
  return value
}
const seed = number('seed')
const count = number('sample')
const report = join('reports/mutation', `${name}.json`)

const files = room.mutate.flatMap(filesOf).filter((path) => !room.without?.some((part) => path.includes(part)))
const all = await listMutants(files)
let sample = drawSample([...all.keys()], count || all.size, seed)
if (values.survivors) {
  const survived = new Set(JSON.parse(readFileSync(report, 'utf8')).survivors.map(({ name }) => name))
  sample = sample.filter((mutant) => survived.has(mutant))
}
console.log(`${name}: ${sample.length} of ${all.size} mutants in ${files.length} files, seed ${seed}`)

const started = performance.now()
const results = await tryMutants(sample.map((mutant) => all.get(mutant)))
summarize(results)

/** The TypeScript files of a folder, or the file itself, by their paths. */
function filesOf(path) {
  if (statSync(path).isFile()) return [path]
  const inside = readdirSync(path, { recursive: true }).filter((file) => file.endsWith('.ts'))
  return inside.map((file) => join(path, file)).sort()
}

/** Each mutant of the files by its name, with what stood there. */
async function listMutants(paths) {
  const { createInstrumenter } = await import('@stryker-mutator/instrumenter')
  const { createInjector } = await import('typed-inject')
  const quiet = new Proxy({}, { get: (_, key) => (String(key).startsWith('is') ? () => false : () => {}) })
  const instrumenter = createInjector().provideValue('logger', quiet).injectFunction(createInstrumenter)
  const sources = paths.map((path) => ({ name: path, mutate: true, content: readFileSync(path, 'utf8') }))
  const { mutants } = await instrumenter.instrument(sources, {
    plugins: null,
    excludedMutations: EXCLUDED_MUTATIONS,
    ignorers: [],
  })
  const kept = mutants.filter(({ status }) => status !== 'Ignored')
  const sourceOf = new Map(sources.map(({ name, content }) => [name, content]))
  const names = nameMutants(kept, (path) => sourceOf.get(path))
  return new Map(
    names.map((mutant, i) => {
      const { fileName, location } = kept[i]
      return [mutant, { ...kept[i], name: mutant, original: textAt(sourceOf.get(fileName), location) }]
    }),
  )
}

/** Runs the room's tests against each mutant, and answers with the same mutants, each with its status. */
async function tryMutants(mutants) {
  const { Stryker } = await import('@stryker-mutator/core')
  const folder = mkdtempSync(join(tmpdir(), 'mutate-'))
  process.env.MUTATE_SAMPLE = join(folder, 'sample.json')
  process.env.MUTATE_TESTS = JSON.stringify(
    room.tests.map((path) => (statSync(path).isFile() ? path : `${path}/**/*.test.ts`)),
  )
  process.env.MUTATE_WITHOUT = JSON.stringify((room.withoutTests ?? []).map((part) => `**/${part}`))
  writeFileSync(process.env.MUTATE_SAMPLE, JSON.stringify(mutants.map(placeOf)))
  try {
    const found = await new Stryker({
      mutate: [...new Set(mutants.map(({ fileName }) => fileName))],
      mutator: { excludedMutations: EXCLUDED_MUTATIONS },
      plugins: ['@stryker-mutator/vitest-runner', fileURLToPath(new URL('sample.mjs', import.meta.url))],
      testRunner: 'vitest',
      vitest: { configFile: 'scripts/mutate/vitest.config.mjs' },
      checkers: ['sample'],
      coverageAnalysis: 'perTest',
      // Vitest checks no types.
      disableTypeChecks: false,
      // A mutant that runs for ever is found by its hits; the clock is for those that wait.
      timeoutMS: 1000 * number('timeout'),
      timeoutFactor: 4,
      dryRunTimeoutMinutes: 30,
      concurrency: number('concurrency') || 1,
      reporters: ['progress-append-only'],
      ignorePatterns: ['reports', 'runs', '/docs', '/bench'],
      allowEmpty: false,
    }).runMutationTest()
    const byPlace = new Map(found.map((result) => [placeOf(fromOne(result)), result]))
    return mutants.map((mutant) => {
      const { status, statusReason } = byPlace.get(placeOf(mutant))
      const isNoticed = status === 'RuntimeError' && statusReason?.includes(NOT_RUN)
      return { ...mutant, status: isNoticed ? 'Killed' : status, statusReason }
    })
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** A result with lines and columns that count from 0, as those of the instrumenter do. */
function fromOne(result) {
  const { start, end } = result.location
  const less = ({ line, column }) => ({ line: line - 1, column: column - 1 })
  return { ...result, location: { start: less(start), end: less(end) } }
}

function summarize(results) {
  const of = (...statuses) => results.filter(({ status }) => statuses.includes(status))
  const killed = of('Killed', 'Timeout')
  const survivors = of('Survived', 'NoCoverage')
  const rest = results.filter((result) => !killed.includes(result) && !survivors.includes(result))
  const shown = survivors.map(({ name, fileName, location, mutatorName, original, replacement, status }) => {
    return { name, status, mutatorName, place: `${fileName}:${location.start.line + 1}`, original, replacement }
  })
  for (const { place, status, original, replacement } of shown) {
    console.log(`${place} ${status === 'NoCoverage' ? 'no test reaches it' : 'survived'}`)
    for (const line of original.split('\n')) console.log(`  - ${line.trim()}`)
    for (const line of replacement.split('\n')) console.log(`  + ${line.trim()}`)
  }
  for (const { status, statusReason, fileName, location } of rest) {
    console.log(`${fileName}:${location.start.line + 1} ${status}: ${statusReason}`)
  }
  const judged = killed.length + survivors.length
  const seconds = Math.round((performance.now() - started) / 1000)
  console.log(
    `${name}: ${((100 * killed.length) / judged).toFixed(1)} % of ${judged} (seed ${seed}): ${of('Killed').length} killed, ` +
      `${of('Timeout').length} ran for ever, ${of('Survived').length} survived, ${of('NoCoverage').length} not reached` +
      `${rest.length ? `, ${rest.length} could not be judged` : ''}; ${seconds} s`,
  )
  mkdirSync('reports/mutation', { recursive: true })
  writeFileSync(
    report,
    JSON.stringify({ room: name, seed, judged, killed: killed.length, seconds, survivors: shown }, null, 2),
  )
}
