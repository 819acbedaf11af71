// npm run native:elsewhere -- PLATFORM 'NODE'
//
// Looks at the package of another platform by a Node of it that runs here, as under QEMU (`npm run native:packages` makes the
// package): `linux-arm64 'qemu-aarch64-static -L /usr/aarch64-linux-gnu /path/to/arm64/node'`. Runs the tests that compare native
// bodies with the relaxed build's bits there, and trains CartPole-v1 and Pendulum-v1 there and here: the weights have to be the
// same. The exit code is 1 where something is not.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'
import { PLATFORMS, packageName } from './native-platforms.mjs'
import { install, installNative, pack } from './packed.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const [platform, program] = process.argv.slice(2)
if (PLATFORMS[platform] === undefined || program === undefined) {
  console.error(
    `native:elsewhere: expected one of ${Object.keys(PLATFORMS).join(', ')}, and the command of a Node of it`,
  )
  process.exit(2)
}
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const tarball = join(root, 'dist/packages', `${packageName(platform)}-${version}.tgz`)
if (!existsSync(tarball)) {
  console.error(`${tarball} is not there; npm run native:packages -- ${platform} makes it`)
  process.exit(2)
}

const folder = mkdtempSync(join(tmpdir(), 'colonnade-elsewhere-'))
try {
  install(folder, pack(folder).tarball)
  installNative(folder, tarball, platform)
  for (const tests of ['simd', 'transformer', 'quantized4']) {
    const file = await bundle(tests)
    const said = run([...program.split(' '), file], { ONLY: 'native/' })
    tell(/^[1-9]\d* tests passed$/m.test(said), `${tests}: ${said.trim().split('\n').at(-1)}`)
  }
  for (const environment of ['CartPole-v1', 'Pendulum-v1']) {
    const main = join(folder, 'node_modules/colonnade/dist/src/cli/main.js')
    const there = weightsOf([...program.split(' '), main], environment, 'native')
    const here = weightsOf([process.execPath, main], environment, 'relaxed')
    tell(there === here, `${environment}: weights by native kernels there, and by relaxed ones here`)
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/** A file of tests and what it imports as one module, beside the kernels of the installed package. */
async function bundle(tests) {
  const made = await rolldown({
    input: join(root, `tests/kernels/${tests}.test.ts`),
    platform: 'node',
    resolve: { alias: { vitest: join(root, 'scripts/plain-vitest.mjs') } },
    transform: { define: { 'import.meta.env.MODE': '"test"' } },
  })
  const file = join(folder, 'node_modules/colonnade/dist/src/kernels', `${tests}.test.mjs`)
  await made.write({ file, codeSplitting: false })
  return file
}

/** Checksum of the last checkpoint's columns after a short training. */
function weightsOf(command, environment, kernels) {
  const out = join(mkdtempSync(join(folder, 'run-')), 'run')
  const words = ['train', environment, 'seed=3', 'totalSteps=8192', 'threads=1', `kernels=${kernels}`, `out=${out}`]
  run([...command, ...words, '--quiet'])
  const checkpoints = join(out, 'checkpoints')
  const last = readdirSync(checkpoints).sort().at(-1)
  return createHash('sha256')
    .update(readFileSync(join(checkpoints, last, 'columns.safetensors')))
    .digest('hex')
}

function run([command, ...words], env = {}) {
  const options = { cwd: folder, encoding: 'utf8', env: { ...process.env, ...env } }
  const { status, stdout, stderr, error } = spawnSync(command, words, options)
  if (status !== 0) throw new Error(`${command} ${words.join(' ')} ended with ${status}: ${error ?? stderr}`)
  return stdout
}

function tell(isSame, what) {
  console.log(`${isSame ? 'ok   ' : 'WRONG'} ${what}`)
  if (!isSame) process.exitCode = 1
}
