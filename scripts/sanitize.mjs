// `npm run sanitize`: the tests of the native kernels with an addon that GCC's or Clang's sanitizers of addresses and of undefined
// behavior watch; the first fault ends the process and says where it is. Flags besides them: CFLAGS. The usual addon is built
// again at the end.
import { spawnSync } from 'node:child_process'
import { existsSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const addon = fileURLToPath(new URL('../dist/native/native.node', import.meta.url))
const compiler = process.env.CC ?? 'cc'
const SANITIZED =
  '-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer -g'

/** Builds the addon with these flags besides the usual ones. Whether it is there. */
function build(flags) {
  rmSync(addon, { force: true })
  const CFLAGS = `${process.env.CFLAGS ?? ''} ${flags}`
  run(process.execPath, ['scripts/build-native.mjs'], { CFLAGS })
  return existsSync(addon)
}

function run(command, words, env = {}) {
  return spawnSync(command, words, { cwd: root, stdio: 'inherit', env: { ...process.env, ...env } }).status ?? 1
}

/** The sanitizer's own library, which has to be in the process before anything else. */
function libraryOf(name) {
  return spawnSync(compiler, [`-print-file-name=${name}`], { encoding: 'utf8' }).stdout.trim()
}

let status = 1
try {
  if (build(SANITIZED)) {
    const watched = {
      LD_PRELOAD: libraryOf('libasan.so'),
      ASAN_OPTIONS: 'detect_leaks=0',
      UBSAN_OPTIONS: 'print_stacktrace=1',
    }
    const vitest = ['node_modules/vitest/vitest.mjs', 'run', '--mode', 'all']
    const bodies = [
      'tests/kernels/simd.test.ts',
      'tests/kernels/transformer.test.ts',
      'tests/kernels/quantized4.test.ts',
      '-t',
      'native/',
    ]
    status = run(process.execPath, [...vitest, ...bodies], watched)
    if (status === 0) status = run(process.execPath, [...vitest, 'tests/kernels/native.test.ts'], watched)
    const games = ['tests/environments/compiled-games.test.ts', '-t', 'native']
    if (status === 0) status = run(process.execPath, [...vitest, ...games], watched)
  }
} finally {
  build('')
}
process.exitCode = status
