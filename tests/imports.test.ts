import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import ts from 'typescript'
import { describe, expect, test } from 'vitest'
import { entrySpecifiers } from './support/entries.ts'

const root = new URL('..', import.meta.url).pathname

const document = readFileSync(join(root, 'docs/architecture.md'), 'utf8')
/** The rows of the table of rooms: the room, where to begin, and what it may import. */
const rows = [
  ...document
    .split('## The rooms')[1]!
    .split('\n## ')[0]!
    .matchAll(/^\| `([\w-]+)\/` \| [^|]+ \| ([^|]+) \| ([^|]+) \|$/gm),
].map(([, room, begin, others]) => ({ room: room!, begin: begin!, others: others! }))
const ALL = '*'
/** What each room may import besides itself and `base`, from the bottom of the house to its top. */
const TABLE: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(
    rows.flatMap(({ room, others }): [string, readonly string[]][] => {
      if (others === 'all')
        return [
          ['index', [ALL]],
          [room, [ALL]],
        ]
      const named = others === 'nothing' ? [] : others.split(', ')
      return [[room, named.includes('entries') ? ['index', ...named] : named]]
    }),
  ),
  examples: ['index'],
  bench: ['index', 'entries', 'kernels', 'policies', 'telemetry', 'fleet'],
}
/** Packages, and the rooms that may load them. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(entrySpecifiers.map((name) => [name, ['examples']])),
  'quickjs-emscripten-core': ['language'],
  '@jitl/quickjs-wasmfile-release-sync': ['language'],
  bitecs: ['world', 'examples'],
  'apache-arrow': ['tables'],
  yaml: ['cli', 'fleet'],
  hyparquet: ['language', 'tables'],
  'hyparquet-writer': ['tables'],
  fflate: ['base'],
  ws: ['environments'],
  '@tensorflow/tfjs-core': ['policies', 'bench'],
  '@tensorflow/tfjs-layers': ['policies'],
  '@tensorflow/tfjs-backend-wasm': ['bench'],
  '@huggingface/jinja': ['language'],
  '@huggingface/tokenizers': ['language'],
  '@observablehq/plot': ['bench'],
  linkedom: ['bench'],
  typescript: ['bench'],
}
/** Loaded where they are first used: only `import type` or `await import` may name them. */
const HEAVY = Object.keys(PACKAGES).filter((name) => ![...entrySpecifiers, 'bitecs'].includes(name))
/** The rooms that need Node. */
const NODE_ROOMS = [
  ...['src/base/files', 'src/base/threads', 'src/base/http', 'src/base/trust.ts', 'src/kernels', 'src/environments'],
  ...['src/fleet/address.ts', 'src/fleet/bus', 'src/fleet/store'],
  ...['src/tables', 'src/policies/devices', 'src/policies/export', 'src/language', 'src/engines', 'src/telemetry'],
  ...['src/training', 'src/agents', 'src/compat', 'src/cli', 'bench', 'examples'],
]

interface Import {
  readonly from: string
  readonly to: string
  readonly isLazy: boolean
}

function sources(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.includes('node_modules'))
    .map((name) => join(folder, name))
}

function importsOf(file: string): Import[] {
  const text = readFileSync(join(root, file), 'utf8')
  const tree = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true)
  const found: Import[] = []
  const visit = (node: ts.Node): void => {
    if ((ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) && node.moduleSpecifier) {
      const isLazy = ts.isImportDeclaration(node) && node.importClause?.isTypeOnly === true
      found.push({ from: file, to: (node.moduleSpecifier as ts.StringLiteral).text, isLazy })
    }
    if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
      const [target] = node.arguments
      if (target && ts.isStringLiteral(target)) found.push({ from: file, to: target.text, isLazy: true })
    }
    ts.forEachChild(node, visit)
  }
  visit(tree)
  return found
}

/** `src/kernels/advantage/gae.ts` is in kernels, `src/world/world.ts` in world, `bench/main.ts` in bench. */
function roomOf(file: string): string {
  const parts = file.replace(/(\.page|\.core)?\.ts$/, '').split('/')
  return parts[0] === 'src' ? parts[1]! : parts[0]!
}

/** The cycles that a walk from every file meets, each as `a → b → a`. */
function cyclesOf(edges: ReadonlyMap<string, readonly string[]>): string[] {
  const done = new Set<string>()
  const cycles: string[] = []
  const walk = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) cycles.push([...path.slice(path.indexOf(file)), file].join(' → '))
    if (path.includes(file) || done.has(file)) return
    for (const target of edges.get(file) ?? []) walk(target, [...path, file])
    done.add(file)
  }
  for (const file of edges.keys()) walk(file, [])
  return cycles
}

const imports = ['src', 'examples', 'bench'].flatMap(sources).flatMap(importsOf)

test('the table of where something new goes names files that are there', () => {
  const section = document.split('## Where something new goes')[1]!.split('\n## ')[0]!
  const paths = [...section.matchAll(/`([\w/-]+\/[\w.-]+\.ts)`/g)].map(([, path]) => path!)
  expect(paths.length).toBeGreaterThan(15)
  expect(paths.filter((path) => !existsSync(join(root, 'src', path)))).toEqual([])
})

describe('the import table', () => {
  test('there are imports to check, and every room has its row', () => {
    expect(imports.length).toBeGreaterThan(200)
    const rooms = new Set(imports.map(({ from }) => roomOf(from)))
    expect([...rooms].sort()).toEqual(Object.keys(TABLE).sort())
  })

  test('every import of our own files stands in it', () => {
    const broken = imports.filter(({ from, to }) => {
      if (!to.startsWith('.')) return false
      const target = relative(root, join(root, dirname(from), to))
        .replace(/\.ts$/, '')
        .replace(/^src\//, '')
      const room = roomOf(from)
      const targetRoom = target.split('/')[0]!
      if (room === targetRoom || (targetRoom === 'base' && room !== 'examples')) return false
      const allowed = TABLE[room]!
      return !allowed.some((entry) => entry === ALL || entry === targetRoom || `${target}/`.startsWith(`${entry}/`))
    })
    expect(broken).toEqual([])
  })

  test('goes down alone: no room imports one that stands after it', () => {
    const order = Object.keys(TABLE)
    const up = Object.entries(TABLE).flatMap(([room, others]) =>
      others
        .filter((other) => other !== ALL && order.indexOf(other) >= order.indexOf(room))
        .map((other) => [room, other]),
    )
    expect(up).toEqual([])
  })

  test('has no cycle of any kind: of values, of types, or of what is loaded when it is used', () => {
    const edges = new Map<string, string[]>()
    for (const { from, to } of imports) {
      if (!to.startsWith('.')) continue
      const target = relative(root, join(root, dirname(from), to))
      edges.set(from, [...(edges.get(from) ?? []), target])
    }
    expect(edges.size).toBeGreaterThan(150)
    expect(cyclesOf(edges)).toEqual([])
    expect(cyclesOf(new Map([...edges, ['src/base/errors.ts', ['src/index.ts']]])).length).toBeGreaterThan(0)
  })

  test('every package is loaded only by the rooms that need it, and heavy ones only where they are first used', () => {
    const eager = imports.filter(({ to, isLazy }) => !isLazy && to.startsWith('.'))
    const atOnce = new Set(eager.map(({ from, to }) => relative(root, join(root, dirname(from), to))))
    const broken = imports.filter(({ from, to, isLazy }) => {
      if (to.startsWith('.')) return false
      if (to.startsWith('node:')) return !NODE_ROOMS.some((place) => `${from}/`.startsWith(`${place}/`))
      return !PACKAGES[to]?.includes(roomOf(from)) || (HEAVY.includes(to) && !isLazy && atOnce.has(from))
    })
    expect(broken).toEqual([])
  })

  test('a module that only its address names is imported behind the gate of definitions alone', () => {
    const computed = sources('src').flatMap((file) => {
      const found = readFileSync(join(root, file), 'utf8').match(/\bimport\((?!\s*['"])[^)]*/g) ?? []
      return found.map((call) => `${file}: ${call}`)
    })
    expect(computed).toEqual([
      'src/base/definition.ts: import(module',
      'src/base/files/packages.ts: import(pathToFileURL(path',
    ])
  })

  test('only the binding and bodies of the same kind import a kernel body', () => {
    const NO_BODIES = ['apart.ts', 'bind.ts', 'grids/bind.ts', 'kernels.ts', 'spans.ts'].map(
      (name) => `src/kernels/${name}`,
    ) // The last is a type of columns.
    const broken = imports.filter(({ from, to }) => {
      if (!to.startsWith('.')) return false
      const target = relative(root, join(root, dirname(from), to))
      const isBody = target.startsWith('src/kernels/') && !NO_BODIES.includes(target)
      const isBinding =
        /^src\/kernels\/(apart|bind|bodies\.page|plain|uncompiled|grids\/(bind|module|module\.page))\.ts$/.test(from)
      const isShader = [target, from].some((path) => path.startsWith('src/kernels/webgpu/')) // Bodies that run on a device.
      return isBody && !isBinding && !isShader && dirname(target) !== dirname(from) && roomOf(from) !== 'bench'
    })
    expect(broken).toEqual([])
  })

  test('files above 500 lines are named in the drawing of the house, each with its reason, and no others', () => {
    const list = document.split('## Files above 500 lines')[1]!.split('\n## ')[0]!
    const named = [...list.matchAll(/^\| `([^`]+)` \| \S/gm)].map(([, file]) => `src/${file}`)
    const long = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && name !== join('kernels', 'twins.ts'))
      .map((name) => join('src', name))
      .filter((file) => readFileSync(join(root, file), 'utf8').split('\n').length - 1 > 500)
    expect(long.length).toBeGreaterThan(0)
    expect(named.sort()).toEqual(long.sort())
  })

  test('every file that the table of rooms names is there', () => {
    const files = rows.flatMap(({ begin }) => [...begin.matchAll(/`([\w/.-]+\.ts)`/g)].map(([, file]) => file!))
    expect(files.length).toBeGreaterThan(50)
    expect(files.filter((file) => !existsSync(join(root, 'src', file)))).toEqual([])
  })

  test('package.json has the version that the code says, and exports what is built', () => {
    const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    expect(readFileSync(join(root, 'src/base/version.ts'), 'utf8')).toContain(`'${manifest.version}'`)
  })

  test('jsr.json has the version and the entries of package.json, as sources, and those that the build writes', () => {
    const [manifest, jsr] = ['package.json', 'jsr.json'].map((file) =>
      JSON.parse(readFileSync(join(root, file), 'utf8')),
    )
    const built = Object.entries<{ default?: string }>(manifest.exports).filter(
      ([, found]) => found.default !== undefined,
    )
    const sources = built.map(([name, found]) => [name, found.default!.replace('./dist/', './').replace(/js$/, 'ts')])
    expect(jsr.version).toBe(manifest.version)
    expect(sources.length).toBeGreaterThan(10)
    expect(jsr.exports).toEqual(Object.fromEntries(sources))
    for (const file of Object.values<string>(jsr.exports)) expect(existsSync(join(root, file)), file).toBe(true)
    // JSR leaves out what git ignores, and the build writes these sources.
    const made = readFileSync(join(root, '.gitignore'), 'utf8').match(/^src\/.+\.ts$/gm)!
    expect(jsr.publish.exclude).toEqual(made.map((path) => `!${path}`))
  })
})
