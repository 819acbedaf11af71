import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import ts from 'typescript'
import { describe, expect, test } from 'vitest'
import { entrySpecifiers, namesOfEntries } from './support/entries.ts'

const root = new URL('..', import.meta.url).pathname

/** What each room may import besides itself; `docs/architecture.md` shows the same table. */
const ROOT = [
  ...['space', 'random', 'errors', 'settings', 'metrics', 'definition', 'files', 'version', 'clock', 'half'],
  ...[
    'safetensors',
    'trust',
    'seal',
    'guarded',
    'workers',
    'serve',
    'curves',
    'http-request',
    'column-file',
    'expression',
    'expression-program',
    'packages',
    'own-files',
    'environment-variables',
    'former-names',
  ],
]
const TABLE: Readonly<Record<string, readonly string[]>> = {
  kernels: [],
  components: [],
  tables: ['components', 'environments/text'],
  environments: ['components', 'kernels'],
  policies: ['components', 'kernels', 'devices'],
  cohorts: [
    ...['components', 'kernels/bind', 'kernels/kernels', 'environments/environment', 'environments/text'],
    ...['policies/policy', 'policies/transformer', 'tables', 'text', 'engines'],
  ],
  engines: ['components', 'kernels/bind', 'kernels/kernels', 'policies/transformer', 'text'],
  text: [
    'components',
    'tables',
    'kernels/bind',
    'kernels/kernels',
    'environments/text',
    'environments/tool-calls',
    'policies/transformer',
  ],
  datasets: ['tables', 'text', 'environments/text', 'kernels/bind', 'kernels/kernels'],
  kinds: ['cohorts', 'systems', 'components', 'kernels/bind', 'kernels/kernels'],
  world: ['kinds', 'cohorts', 'components', 'kernels/bind', 'kernels/kernels'],
  systems: [
    ...[
      'world',
      'kinds',
      'cohorts',
      'components',
      'kernels/bind',
      'kernels/kernels',
      'environments/environment',
      'environments/text',
    ],
    ...['environments/check-written', 'text', 'engines/engine'],
  ],
  tick: ['systems', 'kinds', 'world', 'cohorts'],
  devices: ['kernels'],
  algorithms: [
    'components',
    'kernels/bind',
    'kernels/kernels',
    'policies/policy',
    'policies/transformer',
    'rewards/filters',
  ],
  export: ['policies/policy', 'policies/weights'],
  rewards: ['environments/text'],
  orchestration: [],
  dashboard: ['loggers/entry', 'serving/http', 'tables', 'environments/tool-calls'],
  loggers: ['export/protobuf', 'engines/json-client', 'serving/http'],
  compat: [
    ...['orchestration', 'tables', 'datasets', 'rewards', 'environments', 'engines', 'world', 'cohorts', 'tick'],
    ...[
      'algorithms',
      'policies',
      'text',
      'training',
      'components',
      'kernels/bind',
      'kernels/kernels',
      'serving/batcher',
    ],
  ],
  training: [
    ...['world', 'cohorts', 'tick', 'systems', 'algorithms', 'tables', 'components'],
    ...[
      'environments',
      'policies',
      'engines',
      'kernels/bind',
      'kernels/kernels',
      'text',
      'datasets',
      'rewards',
      'orchestration',
      'loggers',
    ],
  ],
  serving: [
    'components',
    'kernels/bind',
    'kernels/kernels',
    'policies/transformer',
    'engines',
    'text',
    'environments/text',
    'environments/tool-calls',
  ],
  gateway: [
    ...['serving', 'engines', 'text', 'tables', 'policies/transformer', 'environments/text', 'world', 'cohorts'],
    ...['orchestration', 'training', 'algorithms', 'rewards'],
  ],
  index: ['*'],
  entries: ['*'],
  cli: ['index', 'entries', 'kernels/bind', 'kernels/kernels'],
  examples: ['index'],
  bench: ['index', 'entries', 'kernels', 'devices'],
}
/** Packages, and the rooms that may load them. */
const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(entrySpecifiers.map((name) => [name, ['examples']])),
  'quickjs-emscripten-core': ['rewards'],
  '@jitl/quickjs-wasmfile-release-sync': ['rewards'],
  bitecs: ['world', 'cohorts', 'examples'],
  'apache-arrow': ['tables'],
  yaml: ['cli'],
  hyparquet: ['datasets', 'tables'],
  'hyparquet-writer': ['tables'],
  '@tensorflow/tfjs-core': ['devices', 'policies', 'bench'],
  '@tensorflow/tfjs-layers': ['devices', 'policies'],
  '@tensorflow/tfjs-backend-wasm': ['bench'],
  '@huggingface/jinja': ['text'],
  '@huggingface/tokenizers': ['text'],
  '@observablehq/plot': ['bench'],
  linkedom: ['bench'],
}
/** Loaded where they are first used: only `import type` or `await import` may name them. */
const HEAVY = Object.keys(PACKAGES).filter((name) => ![...entrySpecifiers, 'bitecs'].includes(name))
const NODE_ROOMS = [
  'environments',
  'files',
  'trust',
  'seal',
  'guarded',
  'workers',
  'serve',
  'packages',
  'http-request',
  'column-file',
  'training',
  'compat',
  'tables',
  'cli',
  'bench',
  'examples',
  'kernels',
  'devices',
  'export',
  'rewards',
  'datasets',
  'engines',
  'serving',
  'gateway',
  'dashboard',
  'loggers',
  'text',
]

interface Import {
  readonly from: string
  readonly to: string
  readonly isLazy: boolean
}

function sources(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.simd.ts'))
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

/** `src/kernels/advantage/gae.ts` is in kernels, `src/world.ts` in world, `bench/main.ts` in bench. */
function roomOf(file: string): string {
  const parts = file.replace(/\.ts$/, '').split('/')
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

describe('the import table', () => {
  test('there are imports to check, and every room has its row', () => {
    expect(imports.length).toBeGreaterThan(200)
    const rooms = new Set(imports.map(({ from }) => roomOf(from)))
    expect([...rooms].filter((room) => !ROOT.includes(room) && !(room in TABLE))).toEqual([])
  })

  test('every import of our own files stands in it', () => {
    const broken = imports.filter(({ from, to }) => {
      if (!to.startsWith('.')) return false
      const target = relative(root, join(root, dirname(from), to))
        .replace(/\.ts$/, '')
        .replace(/^src\//, '')
      const room = roomOf(from)
      const targetRoom = target.split('/')[0]!
      if (room === targetRoom || ROOT.includes(targetRoom)) return false
      if (ROOT.includes(room)) return true
      const allowed = TABLE[room]!
      return !allowed.some((entry) => entry === '*' || entry === targetRoom || `${target}/`.startsWith(`${entry}/`))
    })
    expect(broken).toEqual([])
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
    expect(cyclesOf(new Map([...edges, ['src/errors.ts', ['src/index.ts']]])).length).toBeGreaterThan(0)
  })

  test('every package is loaded only by the rooms that need it, and heavy ones only where they are first used', () => {
    const eager = imports.filter(({ to, isLazy }) => !isLazy && to.startsWith('.'))
    const atOnce = new Set(eager.map(({ from, to }) => relative(root, join(root, dirname(from), to))))
    const broken = imports.filter(({ from, to, isLazy }) => {
      if (to.startsWith('.')) return false
      if (to.startsWith('node:')) return !NODE_ROOMS.includes(roomOf(from))
      return !PACKAGES[to]?.includes(roomOf(from)) || (HEAVY.includes(to) && !isLazy && atOnce.has(from))
    })
    expect(broken).toEqual([])
  })

  test('a module that only its address names is imported behind the gate of definitions alone', () => {
    const computed = sources('src').flatMap((file) => {
      const found = readFileSync(join(root, file), 'utf8').match(/\bimport\((?!\s*['"])[^)]*/g) ?? []
      return found.map((call) => `${file}: ${call}`)
    })
    expect(computed).toEqual(['src/definition.ts: import(module', 'src/packages.ts: import(pathToFileURL(path'])
  })

  test('only the binding and bodies of the same kind import a kernel body', () => {
    const NO_BODIES = ['src/kernels/bind.ts', 'src/kernels/kernels.ts', 'src/kernels/spans.ts'] // The third is a type of columns.
    const broken = imports.filter(({ from, to }) => {
      if (!to.startsWith('.')) return false
      const target = relative(root, join(root, dirname(from), to))
      const isBody = target.startsWith('src/kernels/') && !NO_BODIES.includes(target)
      const isBinding = from === 'src/kernels/bind.ts' || from === 'src/kernels/plain.ts'
      return isBody && !isBinding && dirname(target) !== dirname(from) && roomOf(from) !== 'bench'
    })
    expect(broken).toEqual([])
  })

  test('files above 500 lines are named in the drawing of the house, each with its reason, and no others', () => {
    const document = readFileSync(join(root, 'docs/architecture.md'), 'utf8')
    const list = document.split('## Files above 500 lines')[1]!.split('\n## ')[0]!
    const named = [...list.matchAll(/^\| `([^`]+)` \| \S/gm)].map(([, file]) => `src/${file}`)
    const long = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts') && name !== join('kernels', 'twins.ts'))
      .map((name) => join('src', name))
      .filter((file) => readFileSync(join(root, file), 'utf8').split('\n').length - 1 > 500)
    expect(long.length).toBeGreaterThan(0)
    expect(named.sort()).toEqual(long.sort())
  })

  test('every file that the drawing of the house names is there', () => {
    const document = readFileSync(join(root, 'docs/architecture.md'), 'utf8')
    const parts = document.split('## The parts')[1]!.split('\n## ')[0]!
    const cells = parts
      .split('\n')
      .filter((line) => line.startsWith('| '))
      .map((line) => line.split(' | ')[2]!)
    const files = cells.flatMap((cell) => {
      let folder = ''
      return [...cell.matchAll(/`([\w/.-]+\.(?:ts|mjs))`/g)].map(([, file]) => {
        // A file without a folder lies in that of the one before it, or in src.
        const candidates = [join(root, file!), join(root, 'src', file!), join(root, 'src', folder, file!)]
        const found = candidates.find(existsSync)
        if (found) folder = relative(join(root, 'src'), dirname(found))
        return found ? '' : file!
      })
    })
    expect(files.length).toBeGreaterThan(40)
    expect(files.filter((file) => file !== '')).toEqual([])
  })

  test('package.json has the version that the code says, and exports what is built', () => {
    const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    expect(readFileSync(join(root, 'src/version.ts'), 'utf8')).toContain(`'${manifest.version}'`)
  })
})

describe('docstrings', () => {
  const names = namesOfEntries('source')

  test.each(entrySpecifiers)('every public name of %s has one', (specifier) => {
    const bare = names.get(specifier)!.filter(({ isDocumented }) => !isDocumented)
    expect(bare.map(({ name }) => name)).toEqual([])
  })
})
