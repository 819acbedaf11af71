// npm run test:all [-- PART …]
//
// The thorough tier: all that `npm test` runs and all that it leaves out, one part after another: learning, faults, properties,
// sanitizers, programs from elsewhere (which it installs), what is packed. It ends with a table and with each thing that could not
// be tried here and why; the exit code is 1 where a part fails. Parts are named as scripts of package.json. Faults put into the code
// (`npm run mutate`) take hours, and are tried a room at a time.
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

const PARTS = [
  'test:tiers',
  'types',
  'lint',
  'package',
  'test:docs',
  'learn',
  'faults',
  'properties',
  'sanitize',
  'fuzz:servers',
  'test:page',
  'test:bundlers',
  'test:servers',
  'test:loggers',
  'test:vector-env',
  'test:minari',
  'test:lerobot',
  'test:exports',
  'test:hub',
  'test:clients',
  'test:tinker',
  'runtimes',
  'test:workerd',
  'matrix',
]

const words = process.argv.slice(2)
const unknown = words.filter((word) => !PARTS.includes(word))
if (unknown.length > 0) {
  console.error(`part: got ${unknown.join(', ')}, expected one of ${PARTS.join(', ')}`)
  process.exit(1)
}

/** Runs a script, shows what it prints, and gathers what it says that it skipped. */
async function run(part) {
  console.log(`\n── ${part}`)
  const child = spawn('npm', ['run', part], { stdio: ['inherit', 'pipe', 'pipe'] })
  const ended = new Promise((resolve) => child.on('close', resolve))
  const skipped = new Set()
  const read = async (stream, shown) => {
    for await (const line of createInterface({ input: stream })) {
      shown.write(`${line}\n`)
      const why = /SKIPPED: (.+)/.exec(line)?.[1]
      if (why !== undefined) skipped.add(why)
    }
  }
  const start = performance.now()
  await Promise.all([read(child.stdout, process.stdout), read(child.stderr, process.stderr)])
  const code = await ended
  return { part, code, seconds: Math.round((performance.now() - start) / 1000), skipped: [...skipped] }
}

const results = []
for (const part of words.length > 0 ? PARTS.filter((each) => words.includes(each)) : PARTS)
  results.push(await run(part))
const failed = results.filter(({ code }) => code !== 0)
console.log()
for (const { part, code, seconds, skipped } of results) {
  const outcome = code === 0 ? 'passed' : `FAILED (exit code ${code})`
  const missing = skipped.length > 0 ? `, ${skipped.length} not tried` : ''
  console.log(`${part.padEnd(16)} ${`${seconds} s`.padStart(7)}  ${outcome}${missing}`)
}
for (const { part, skipped } of results) for (const why of skipped) console.log(`SKIPPED in ${part}: ${why}`)
process.exitCode = failed.length > 0 ? 1 : 0
