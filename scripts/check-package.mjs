// npm run package: packs what is built, and looks at it as somebody does who installs it: the types without the DOM's
// library (and without tfjs, which is optional), how other tools find modules and types, source maps, and the size with
// all dependencies; and the package of native kernels for this platform. Needs no network. Prints what it found; the exit code is 1 where something is amiss.
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { lastChange } from './native-addon.mjs'
import { PLATFORMS, packageName } from './native-platforms.mjs'
import { dependencies, install, installNative, pack, packNative } from './packed.mjs'

/** Megabytes of an installed package, its dependencies included. */
const MEGABYTES_MAX = 45
/** Ways to look for modules that Colonnade does not serve: it is made of ES modules, for Node 20.19 and later. */
const OTHER_WAYS = ['node10', 'node16-cjs']

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'colonnade-package-'))
let wrong = 0
try {
  const { tarball, size, unpackedSize } = pack(folder, Object.keys(PLATFORMS))
  console.log(`${basename(tarball)}: ${megabytes(size)} packed, ${megabytes(unpackedSize)} unpacked`)
  install(folder, tarball, ['@types/node', 'undici-types'])
  checkTypes()
  await checkManifest()
  await checkResolution(tarball)
  checkSourceMap()
  checkSize()
  checkNative()
} finally {
  rmSync(folder, { recursive: true, force: true })
}
process.exitCode = wrong > 0 ? 1 : 0

/** Tells one result; `problems` are lines. */
function tell(what, problems) {
  console.log(`${problems.length === 0 ? 'ok   ' : 'WRONG'} ${what}`)
  for (const problem of problems) console.log(`      ${problem}`)
  wrong += problems.length
}

function checkTypes() {
  const program = readFileSync(join(root, 'examples/quickstart.ts'), 'utf8')
  const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const entries = Object.keys(exports).filter((entry) => exports[entry].types !== undefined)
  const reexports = entries.map((entry, i) => `export * as entry${i} from '${entry.replace('.', 'colonnade')}'`)
  writeFileSync(join(folder, 'main.ts'), [program, ...reexports].join('\n'))
  const compilerOptions = {
    ...{ target: 'es2022', lib: ['es2023'], types: ['node'], module: 'nodenext', noEmit: true },
    ...{ strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, skipLibCheck: false },
  }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['main.ts'] }))
  const tsc = join(root, 'node_modules/typescript/bin/tsc')
  const { stdout } = spawnSync(process.execPath, [tsc, '-p', folder], { cwd: folder, encoding: 'utf8' })
  tell('types of the declarations, without the DOM and without tfjs', lines(stdout))
}

async function checkManifest() {
  const pkgDir = join(folder, 'node_modules/colonnade')
  const { messages, pkg } = await publint({ pkgDir, pack: false, strict: true })
  const scripts = Object.keys(pkg.scripts ?? {})
  tell(
    'no scripts that run where it is installed',
    scripts.map((name) => `package.json has the script ${name}`),
  )
  tell(
    'package.json (publint)',
    messages.map((message) => formatMessage(message, pkg, { color: false })),
  )
}

async function checkResolution(tarball) {
  const { problems, types } = await checkPackage(createPackageFromTarballData(new Uint8Array(readFileSync(tarball))))
  const ours =
    types === false ? ['no types'] : problems.filter(({ resolutionKind }) => !OTHER_WAYS.includes(resolutionKind))
  tell(
    'modules and types as other tools find them (attw)',
    ours.map((problem) => JSON.stringify(problem)),
  )
}

/** An error of the installed package names the line of TypeScript that throws it. */
function checkSourceMap() {
  const program = "import { createWorld } from 'colonnade'\nawait createWorld({ numLanes: 1 })\n"
  writeFileSync(join(folder, 'throws.mjs'), program)
  const { stderr } = spawnSync(process.execPath, ['--enable-source-maps', 'throws.mjs'], {
    cwd: folder,
    encoding: 'utf8',
  })
  // The first frame is the error's own constructor.
  const [, file, line] = /at (?!new ).*colonnade\/(src\/.*\.ts):(\d+)/.exec(stderr) ?? []
  const text = file === undefined ? '' : readFileSync(join(root, file), 'utf8').split('\n')[Number(line) - 1]
  tell(`source maps: an error comes from ${file}:${line}`, text.includes('throw ') ? [] : [`${text.trim()}\n${stderr}`])
}

function checkSize() {
  const bytes = [
    bytesOf(join(folder, 'node_modules/colonnade')),
    ...dependencies().map((name) => bytesOf(join(root, 'node_modules', name))),
  ].reduce((sum, size) => sum + size)
  const problems = bytes > MEGABYTES_MAX * 1e6 ? [`at most ${MEGABYTES_MAX} MB were expected`] : []
  tell(`${megabytes(bytes)} installed, with ${dependencies().length} dependencies`, problems)
}

/**
 * Native kernels come from the package of this platform, and without it they are said to be missing. It holds the addon that
 * `npm run native:packages` made for this platform, else, where that is older than its sources, the one of the repository's build.
 */
function checkNative() {
  const { header } = process.report.getReport()
  const isMusl = process.platform === 'linux' && header.glibcVersionRuntime === undefined
  const platform = `${process.platform}-${process.arch}${isMusl ? '-musl' : ''}`
  const made = [`dist/packages/build/${platform}/native.node`, 'dist/native/native.node'].map((path) =>
    join(root, path),
  )
  const addon = made.find((path) => existsSync(path) && statSync(path).mtimeMs > lastChange())
  if (PLATFORMS[platform] === undefined || addon === undefined) {
    console.log(`      the package of native kernels for ${platform} is not looked at: no addon has been built for it`)
    return
  }
  const before = nativeReport()
  const missing = `the package ${packageName(platform).replace('-musl', '')} is not installed`
  tell(
    'native kernels without their package: none, and it is said why',
    before.level === null && before.why.includes(missing) ? [] : [JSON.stringify(before)],
  )
  const { tarball, size, unpackedSize } = packNative(folder, platform, addon)
  installNative(folder, tarball, platform)
  const after = nativeReport()
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const expected = `${packageName(platform)} ${version}`
  tell(
    `native kernels (${after.level}) from ${after.from}: ${megabytes(size)} packed, ${megabytes(unpackedSize)} unpacked`,
    after.from === expected && after.level !== null ? [] : [`${JSON.stringify(after)}, expected ${expected}`],
  )
}

/** What the installed package says of native kernels, where no compiler is on the path. */
function nativeReport() {
  const program = "import { examineNative } from 'colonnade/kernels'\nconsole.log(JSON.stringify(examineNative()))\n"
  writeFileSync(join(folder, 'native.mjs'), program)
  const { stdout, stderr } = spawnSync(process.execPath, ['native.mjs'], { cwd: folder, encoding: 'utf8', env: {} })
  if (stderr !== '') throw new Error(stderr)
  return JSON.parse(stdout)
}

/** Bytes of all files in a folder. */
function bytesOf(path) {
  const entries = readdirSync(path, { recursive: true, withFileTypes: true })
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  return files.reduce((sum, file) => sum + statSync(file).size, 0)
}

function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(1)} MB`
}

function lines(text) {
  return text.split('\n').filter((line) => line.trim() !== '')
}
