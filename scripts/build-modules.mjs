// Writes the JavaScript of src, bench and examples into dist; `tsc` checks the types and writes the declarations.
//
// Node takes about half a millisecond to find, read and link a module, so what the package's entries (`src/index.ts` and
// `src/entries/`) import statically is linked here into one file, dist/src/bundle.js, and each of those modules becomes a
// facade at its own path that exports its names from there. A module that a definition names, or that a bench imports, is thus
// the same object as the package's own. What the command line and the judges' workers need before the entries stays in files
// of their own, so that they do not load the rest. All other modules (commands, workers, what is imported where it is first
// used) are compiled one by one.
//
// dist/page has the modules of the entries that run in a page, compiled one by one, since bundlers then carry only those that are used.
// There, `x.page.ts` stands in the place of `x.ts`.
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { RolldownMagicString, rolldown } from 'rolldown'
import { parseSync, transformSync } from 'rolldown/utils'
import { begin, changedSources, SOURCES } from './stamp.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))
const source = join(root, 'src')
const out = join(root, 'dist')
const BUNDLE = 'src/bundle.js'
const OWN_FILES = 'src/base/files/own-files.js'
/** Marks a module that the bundle imports from where it is built, until that path is known. */
const APART = 'apart:'
/** Programs that begin without the entries; the page of the dashboard among them, which a browser loads. */
const SMALL = [
  ...['cli/main.ts', 'cli/words/usage.ts', 'telemetry/dashboard/page/main.ts'],
  ...['language/rewards/code/code-worker.ts', 'language/rewards/maths/maths-worker.ts', 'tables/arrow-worker.ts'],
]

/** What a page can import: the entries with the condition `browser`. */
const PAGE = Object.values(JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).exports).flatMap(
  ({ browser }) => (browser === undefined ? [] : [browser.default.replace('./dist/page/', '').replace(/js$/, 'ts')]),
)

/** What a thread of a page runs. */
const PAGE_WORKER = 'training/threads/worker.ts'
/** What it is handed, and what it never does: it starts no threads, and conversations have one (`world/conversations/kind.ts`). */
const WITHOUT = /\/((relaxed|simd|grids)-module|worker-program|conversations\/kind)\.js$/

const changed = changedSources('modules')
if (changed.length === 0) process.exit()
const stamp = begin('modules')
const files = SOURCES.modules()
  .filter((path) => /^(src|bench|examples)\//.test(path))
  .map((path) => join(root, path))
const isRuleChanged = changed.some((path) => !path.endsWith('.ts'))
for (const path of changed) if (!existsSync(join(root, path))) removeBuilt(path)

const apart = reachable(SMALL.map((path) => join(source, path)))
const entries = files.filter((file) => file === join(source, 'index.ts') || dirname(file) === join(source, 'entries'))
const bundled = [...reachable(entries)].filter((file) => !apart.has(file))

await writeBundle(new Set(bundled))
for (const file of files) if (!bundled.includes(file)) writeModule(file)
writePage()
await writePageWorker()
chmodSync(join(out, 'src/cli/main.js'), 0o755)
stamp.done()

/** Takes away what was built of a module that is gone. */
function removeBuilt(path) {
  const built = join(out, path.replace(/\.ts$/, ''))
  for (const ending of ['.js', '.js.map', '.d.ts']) rmSync(built + ending, { force: true })
}

/** The given modules and all that they import, directly or indirectly; `importsIn` lists the imports of one module. */
function reachable(entries, importsIn = staticImports) {
  const found = new Set()
  const open = [...entries]
  while (open.length > 0) {
    const file = open.pop()
    if (found.has(file)) continue
    found.add(file)
    for (const specifier of importsIn(file)) {
      // What ends in .js is no source: `build-kernels.mjs` writes it.
      if (/^\..*\.ts$/.test(specifier)) open.push(join(dirname(file), specifier))
    }
  }
  return found
}

/** What a module imports or exports again, but for `import type` and `export type`. */
function staticImports(file) {
  const code = readFileSync(file, 'utf8')
  const { staticImports, staticExports } = parseSync(file, code).module
  const again = staticExports.flatMap(({ entries }) => entries.filter(({ isType }) => !isType))
  const imported = staticImports.filter(({ start }) => !code.startsWith('import type', start))
  return new Set([...imported, ...again].flatMap(({ moduleRequest }) => moduleRequest?.value ?? []))
}

/** Links the modules into the bundle and writes their facades. */
async function writeBundle(modules) {
  const bundle = await rolldown({
    cwd: root,
    input: Object.fromEntries([...modules].map((file) => [relative(root, file).replace(/\.ts$/, ''), file])),
    platform: 'node',
    tsconfig: false,
    treeshake: false,
    transform: { target: 'es2022' },
    plugins: [{ name: 'own-modules', resolveId: (id, importer) => resolveOwn(id, importer, modules), transform }],
    onLog(level, log) {
      // Of what is imported dynamically, some is in the bundle already: by design.
      if (log.code !== 'INEFFECTIVE_DYNAMIC_IMPORT') throw new Error(`${level}: ${log.message}`)
    },
  })
  const { output } = await bundle.generate({
    format: 'esm',
    sourcemap: true,
    keepNames: true,
    comments: { legal: true, annotation: true, jsdoc: false },
    minifyInternalExports: false,
    entryFileNames: '[name].js',
    chunkFileNames: 'src/[name].js',
    codeSplitting: { groups: [{ name: 'bundle', test: (id) => modules.has(id) }] },
  })
  for (const { fileName, type, code, source: asset } of output) {
    if (type === 'asset') write(fileName, asset)
    else
      write(
        fileName,
        code.replaceAll(/"apart:([^"]+)"/g, (_, path) => `"${specifierOf(path, fileName)}"`),
      )
    if (type === 'chunk' && fileName !== BUNDLE) rmSync(join(out, `${fileName}.map`), { force: true })
  }
}

/** Links only these modules; every other is imported from where it is built. */
function resolveOwn(specifier, importer, modules) {
  if (importer === undefined) return null
  if (!specifier.startsWith('.')) return { id: specifier, external: true }
  const file = join(dirname(importer), specifier)
  return modules.has(file) ? null : { id: `${APART}${builtPath(file)}`, external: true }
}

/**
 * Prepares a module for bundlers, ours and the users'. Each `import.meta.url` of src goes through `ownUrl` (src/base/files/own-files.ts): it
 * stays the address of the module in the installed package wherever the code is moved. An import by an address that is known
 * only when it runs is marked as one that no bundler resolves. In a page, whose modules are linked together, an address only tells
 * them apart.
 */
function movable(code, file, isInPage = false) {
  const own = builtPath(file)
  const text = new RolldownMagicString(code)
  if (!own.startsWith('src/') || (!isInPage && (own === OWN_FILES || apart.has(file)))) return text
  const { importMetas, dynamicImports } = parseSync(file, code).module
  const urls = importMetas.filter(({ end }) => code.slice(end).startsWith('.url'))
  for (const { start, end } of urls) {
    const path = own.slice('src/'.length)
    text.overwrite(start, end + '.url'.length, isInPage ? `'colonnade:///${path}'` : `ownUrl('${path}')`)
  }
  if (urls.length > 0 && !isInPage)
    text.append(`import { ownUrl } from '${specifierOf(OWN_FILES, own).replace(/js$/, 'ts')}'\n`)
  for (const { moduleRequest } of dynamicImports) {
    const isNamed = /^['"]/.test(code.slice(moduleRequest.start))
    if (!isNamed) text.appendLeft(moduleRequest.start, '/* webpackIgnore: true */ /* @vite-ignore */ ')
  }
  return text
}

function transform(code, file) {
  const text = movable(code, file)
  return text.hasChanged()
    ? { code: text.toString(), map: text.generateMap({ hires: true, source: file }).toString() }
    : null
}

/** Compiles a module by itself, unless that was done already. A facade has no map, so it is none of ours. */
function writeModule(file) {
  const isBuilt = existsSync(join(out, `${builtPath(file)}.map`))
  if (isBuilt && !isRuleChanged && !changed.includes(relative(root, file))) return
  const { code, map } = compiled(file, movable(readFileSync(file, 'utf8'), file), true)
  const target = builtPath(file)
  write(target, `${code}//# sourceMappingURL=${basename(target)}.map`)
  write(`${target}.map`, JSON.stringify({ ...map, sources: [relative(dirname(join(out, target)), file)] }))
}

/** Compiles the modules that a page can load, each by itself. */
function writePage() {
  for (const file of reachable(
    [...PAGE, PAGE_WORKER].map((path) => join(source, path)),
    pageImports,
  )) {
    const { code } = compiled(file, movable(readFileSync(inPage(file), 'utf8'), file, true), false)
    write(join('page', relative(source, file).replace(/\.ts$/, '.js')), code)
  }
}

/**
 * Links what a thread of a page runs into one program, and writes it as text in a module, beside the module that starts threads. It gets
 * the kernels from the page, and loads nothing.
 */
async function writePageWorker() {
  const nowhere = {
    name: 'nowhere',
    resolveId: (id) => (WITHOUT.test(id) ? '\0nowhere' : null),
    load: (id) => (id === '\0nowhere' ? "export const text = ''" : null),
  }
  const bundle = await rolldown({
    cwd: root,
    input: join(out, 'page', PAGE_WORKER.replace(/ts$/, 'js')),
    platform: 'browser',
    plugins: [nowhere],
    external: (id) => !id.startsWith('.') && !id.startsWith('/') && !id.startsWith('\0') && id !== 'bitecs',
  })
  const { output } = await bundle.generate({ format: 'iife', minify: true, codeSplitting: false })
  write('page/base/threads/worker-program.js', `export const text = ${JSON.stringify(output[0].code)}\n`)
  rmSync(join(out, 'page', PAGE_WORKER.replace(/ts$/, 'js')))
}

/** A module without its types. */
function compiled(file, text, sourcemap) {
  const typescript = { onlyRemoveTypeImports: true, rewriteImportExtensions: 'rewrite' }
  const made = transformSync(file, text.toString(), { target: 'es2022', typescript, sourcemap, tsconfig: false })
  if (made.errors.length > 0) throw new Error(`${file}: ${made.errors[0].message}`)
  return made
}

/** The body of a module in a page. */
function inPage(file) {
  const own = file.replace(/\.ts$/, '.page.ts')
  return existsSync(own) ? own : file
}

/** What a module imports in a page, at once or later. */
function pageImports(file) {
  const path = inPage(file)
  const code = readFileSync(path, 'utf8')
  const { dynamicImports } = parseSync(path, code).module
  const later = dynamicImports.map(({ moduleRequest: { start, end } }) => code.slice(start, end))
  return [...staticImports(path), ...later.flatMap((text) => /^'(\..*\.ts)'$/.exec(text)?.[1] ?? [])]
}

/** Where a module is built, in dist. */
function builtPath(file) {
  return relative(root, file).replace(/\.ts$/, '.js')
}

/** How the file at `from` imports the one at `path`; both in dist. */
function specifierOf(path, from) {
  const way = relative(dirname(from), path)
  return way.startsWith('.') ? way : `./${way}`
}

function write(path, text) {
  const target = join(out, path)
  mkdirSync(dirname(target), { recursive: true })
  writeFileSync(target, text)
}
