// npm run zoo [-- --minutes=N] [ENVIRONMENT …]
//
// Trains the presets of environments (default: of all) with seeds 1 to 3, into runs/zoo, and writes zoo/README.md: a row for each, with the
// return of 100 fresh episodes over seeds, steps, seconds, and the hash of the packed policy. The best seed's policy is packed into
// zoo/<environment> if it has at most 100 kB, in f16 if need be; `colonnade play` shows it. It goes on where it was stopped, and keeps finished runs. With
// --minutes, no environment begins after that time, and rows that are missing are named.
import { existsSync } from 'node:fs'
import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { packPolicy, trainSeeds } from '../dist/src/entries/data.js'
import { environments, evaluate, loadPolicy } from '../dist/src/index.js'

const SEEDS = [1, 2, 3]
const EPISODES = 100
const BYTES_MAX = 100_000
const root = fileURLToPath(new URL('..', import.meta.url))
const ZOO = join(root, 'zoo')
const ROWS = join(ZOO, 'zoo.json')

const words = process.argv.slice(2)
const minutes = Number(words.find((word) => word.startsWith('--minutes='))?.slice('--minutes='.length) ?? Infinity)
const wanted = words.filter((word) => !word.startsWith('--'))
const known = environments.map(({ id }) => id)
const unknown = wanted.filter((word) => !known.includes(word))
if (unknown.length > 0 || Number.isNaN(minutes)) {
  console.error(`zoo: got ${words.join(' ')}, expected --minutes=N and environments of: ${known.join(', ')}`)
  process.exit(1)
}

const rows = existsSync(ROWS) ? JSON.parse(await readFile(ROWS, 'utf8')) : {}
const end = Date.now() + 60_000 * minutes
for (const factory of environments) {
  const { id } = factory
  if (wanted.length > 0 && !wanted.includes(id)) continue
  if (factory.presets.length === 0) {
    console.log(`${id}: no preset`)
    continue
  }
  if (Date.now() > end) {
    console.log(`${id}: not begun, since the time is over`)
    continue
  }
  const place = { out: join(root, 'runs/zoo', id), ifExists: 'resume' }
  const summary = await trainSeeds(id, { rollouts: 'none' }, SEEDS, place)
  if (summary.status !== 'complete') throw new Error(`${id}: ${summary.status}`)
  const results = []
  for (const { folder } of summary.runs) {
    const trained = await loadPolicy(folder)
    const { episodeReturn } = await evaluate({ ...trained, episodes: EPISODES, seed: 10_000, explore: false })
    const { totalSteps, seconds, threads } = JSON.parse(await readFile(join(folder, 'summary.json'), 'utf8'))
    results.push({ folder, mean: episodeReturn.mean, steps: totalSteps, seconds, threads })
  }
  const best = results.reduce((one, other) => (other.mean > one.mean ? other : one))
  rows[id] = { algorithm: summary.algorithm, ...figuresOf(results), packed: await pack(id, best.folder) }
  await writeTable()
  console.log(`${id}: ${line(id)}`)
}
await writeTable()

function figuresOf(results) {
  const of = (name) => results.map((result) => result[name])
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length
  const returns = of('mean')
  return { returns, steps: mean(of('steps')), seconds: mean(of('seconds')), threads: results[0].threads }
}

/** Packs a policy; null if it is too large. */
async function pack(id, run) {
  const out = join(ZOO, id.replaceAll('/', '-'))
  for (const type of ['F32', 'F16']) {
    await rm(out, { recursive: true, force: true })
    const packed = await packPolicy(run, out, { type })
    const bytes = await sizeOf(out)
    if (bytes <= BYTES_MAX) return { sha256: packed.sha256, update: packed.update, type, bytes }
    if (type === 'F32') continue
    await rm(out, { recursive: true })
    return { sha256: packed.sha256, update: packed.update, type, bytes, isLeftOut: true }
  }
}

async function sizeOf(folder) {
  const files = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile())
  const sizes = await Promise.all(files.map(async ({ parentPath, name }) => (await stat(join(parentPath, name))).size))
  return sizes.reduce((sum, size) => sum + size, 0)
}

function line(id) {
  const { algorithm, returns, steps, seconds, packed } = rows[id]
  const mean = returns.reduce((sum, value) => sum + value, 0) / returns.length
  const spread = Math.sqrt(returns.reduce((sum, value) => sum + (value - mean) ** 2, 0) / returns.length)
  const short = (value) => String(Number(value.toPrecision(4)))
  const kilobytes = `${(packed.bytes / 1000).toFixed(0)} kB${packed.type === 'F16' ? ' in f16' : ''}${packed.isLeftOut ? ', not packed' : ''}`
  const cells = [
    id,
    algorithm,
    `${short(mean)} ± ${short(spread)}`,
    short(Math.max(...returns)),
    Math.round(steps),
    short(seconds),
  ]
  return `| ${[...cells, packed.sha256.slice(0, 12), kilobytes].join(' | ')} |`
}

/** In the order of the environments, whichever were trained last. */
async function writeTable() {
  const found = known.filter((id) => rows[id] !== undefined)
  const missing = known.filter(
    (id) => rows[id] === undefined && environments.find((each) => each.id === id).presets.length > 0,
  )
  await writeFile(ROWS, `${JSON.stringify(Object.fromEntries(found.map((id) => [id, rows[id]])), null, 2)}\n`)
  const text = `# The zoo

Policies by the presets of environments, made by \`npm run zoo\` with seeds ${SEEDS.join(', ')}. The return is that of ${EPISODES} fresh
episodes of the most probable actions: the mean over seeds, the deviation between seeds, and the best seed, whose policy is packed here
if it has at most ${BYTES_MAX / 1000} kB, in f16 if need be. Steps and seconds are of one training. The hash is of the packed weights.

\`npx colonnade play CartPole-v1\` shows one. Each folder is a run with nothing but its policy: \`replay\`, \`evaluate\` and \`export\` take it.

| environment | algorithm | return over seeds | best seed | steps | seconds | SHA-256 | size |
|---|---|---|---|---|---|---|---|
${found.map(line).join('\n')}
${missing.length === 0 ? '' : `\nNot trained yet: ${missing.join(', ')}.\n`}`
  await writeFile(join(ZOO, 'README.md'), text)
}
