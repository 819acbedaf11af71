// npm run build: the kernels, then the modules, the native addon and the declarations side by side. Each step skips what is made
// of the same bytes already (scripts/stamp.mjs). With `--check`, as `npm test` runs it: native bodies for the best level of this
// machine alone, the linter besides, and then the types of the tests, which import declarations; `npm run types`, of the thorough
// tier, checks those of the playground too. The exit code is 1 where a step fails.
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const tool = (path, ...words) => run(`node_modules/${path}`, ...words)
const areChecked = process.argv.includes('--check')

const lint = areChecked ? tool('@biomejs/biome/bin/biome', 'check', '.') : true
const isBuilt = await build()
process.exitCode = (await lint) && isBuilt ? 0 : 1

async function build() {
  if (!(await run('scripts/build-kernels.mjs'))) return false
  const parts = [
    run('scripts/build-modules.mjs'),
    run('scripts/build-native.mjs', ...(areChecked ? ['--best'] : [])),
    types(),
  ]
  return (await Promise.all(parts)).every(Boolean)
}

async function types() {
  if (!(await tool('typescript-native/bin/tsc', '--build'))) return false
  if (!areChecked) return true
  return tool('typescript-native/bin/tsc', '-p', 'tests')
}

/** Runs a program of Node to its end, from the root; true where it succeeds. */
function run(...words) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, words, { cwd: root, stdio: 'inherit' })
    child.on('close', (code) => resolve(code === 0))
  })
}
