// npm run runtimes [-- 'PROGRAM' …]
//
// Trains CartPole-v1 and Pendulum-v1 with one seed in Node and in each program named, like `bun` or 'deno run -A', and compares the
// weights' checksums, by each build of the kernels that the program has (`doctor` says so). Where none is named, npm brings Bun and
// Deno, and Deno checks what `deno publish` would send to JSR. The exit code is 1 where a build leaves other weights than in Node, or where
// Deno refuses the package.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const MAIN = fileURLToPath(new URL('../dist/src/cli/main.js', import.meta.url))
const DENO = 'npx --yes deno@2.9.6'
const FROM_NPM = ['npx --yes bun@1.4.5', `${DENO} run -A`]
const named = process.argv.slice(2)
const programs = named.length > 0 ? named : FROM_NPM
const folder = mkdtempSync(join(tmpdir(), 'colonnade-runtimes-'))
try {
  const buildsOf = Object.fromEntries([process.execPath, ...programs].map((program) => [program, examine(program)]))
  for (const program of programs) console.log(`${program}: ${buildsOf[program].join(', ')}`)
  for (const kernels of buildsOf[process.execPath]) {
    const having = programs.filter((program) => buildsOf[program].includes(kernels))
    for (const environment of having.length > 0 ? ['CartPole-v1', 'Pendulum-v1'] : []) {
      const expected = weightsOf(process.execPath, environment, kernels)
      for (const program of having) {
        const same = weightsOf(program, environment, kernels) === expected
        console.log(`${same ? 'same ' : 'OTHER'} ${environment}, ${kernels} kernels: node and ${program}`)
        if (!same) process.exitCode = 1
      }
    }
  }
  if (named.length === 0) checkJsr()
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/** Deno's own check of the package for JSR. Types are not inferred from all of it ("slow types"): JSR then makes no .d.ts for Node. */
function checkJsr() {
  const [command, ...first] = DENO.split(' ')
  const words = [...first, 'publish', '--dry-run', '--allow-dirty', '--allow-slow-types', '--no-check']
  const cwd = fileURLToPath(new URL('..', import.meta.url))
  const { status, stderr } = spawnSync(command, words, { encoding: 'utf8', cwd })
  console.log(
    status === 0
      ? 'deno publish --dry-run: JSR takes the package'
      : `deno publish --dry-run ended with ${status}: ${stderr}`,
  )
  if (status !== 0) process.exitCode = 1
}

/** What a command of Colonnade says in a program. */
function colonnade(program, words) {
  const [command, ...first] = program.split(' ')
  const { status, stdout, stderr, error } = spawnSync(command, [...first, MAIN, ...words], { encoding: 'utf8' })
  if (status !== 0) throw new Error(`${program} ${words.join(' ')} ended with ${status}: ${error ?? stderr}`)
  return stdout
}

/** The builds of the kernels that a program has. */
function examine(program) {
  return JSON.parse(colonnade(program, ['doctor', 'cpu', '--json'])).kernelBuilds
}

/** Checksum of the last checkpoint's columns after a short training. */
function weightsOf(program, environment, kernels) {
  const out = join(mkdtempSync(join(folder, 'run-')), 'run')
  const words = ['train', environment, 'seed=3', 'totalSteps=30000', 'threads=1', `kernels=${kernels}`, `out=${out}`]
  colonnade(program, [...words, '--quiet'])
  const checkpoints = join(out, 'checkpoints')
  const last = readdirSync(checkpoints).sort().at(-1)
  return createHash('sha256')
    .update(readFileSync(join(checkpoints, last, 'columns.safetensors')))
    .digest('hex')
}
