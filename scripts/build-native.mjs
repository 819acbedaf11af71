// Builds the native bodies for this machine, dist/native/native.node, where there are a C compiler (CC, else cc; with the flags
// CFLAGS besides) and Node's headers: for all levels of its kind of processor, or with `--best`, as `npm test` runs it, for the best
// that this machine has, which takes half of the time. Says what it did. Where it cannot, nothing fails: dist/native/why.txt says why, and the
// runtime (src/kernels/native.ts) tells it.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bestLevels, buildAddon } from './native-addon.mjs'
import { LEVELS } from './native-platforms.mjs'
import { begin, changedSources } from './stamp.mjs'

const out = fileURLToPath(new URL('../dist/native', import.meta.url))
const addon = join(out, 'native.node')
const why = join(out, 'why.txt')
const built = join(out, 'levels.txt')
const compiler = process.env.CC ?? 'cc'
const isBest = process.argv.includes('--best')
const namesOf = (levels) => Object.keys(levels ?? {}).join(' ')
const lacksLevels = () => !isBest && readFileSync(built, 'utf8') !== namesOf(LEVELS[process.arch])

if (!existsSync(addon) || changedSources('native').length > 0 || lacksLevels()) {
  const stamp = begin('native')
  mkdirSync(out, { recursive: true })
  const start = performance.now()
  const reason = await build().catch((error) => error.message)
  if (reason === undefined) {
    rmSync(why, { force: true })
    stamp.done()
    console.log(`native kernels: built with ${compiler} in ${((performance.now() - start) / 1000).toFixed(1)} s`)
  } else {
    rmSync(addon, { force: true })
    writeFileSync(why, `${reason}\n`)
    console.log(`native kernels: not built (${reason}); the others are there`)
  }
}

/** Builds the addon. What it returns says why it did not; undefined where it did. */
async function build() {
  if (process.platform === 'win32') return 'on Windows they come in a package alone'
  const flags = (process.env.CFLAGS ?? '').split(' ').filter((flag) => flag !== '')
  const machine = { os: process.platform, cpu: process.arch }
  const levels = isBest ? await bestLevels([compiler], process.arch).catch(() => undefined) : LEVELS[process.arch]
  await buildAddon({ out, compiler: [compiler], ...machine, flags, canPrecompile: true, levels })
  writeFileSync(built, namesOf(levels ?? LEVELS[process.arch]))
}
