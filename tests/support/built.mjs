/**
 * Lets a process of its own, or a thread, run a test's TypeScript: `node --import tests/support/built.mjs program.ts`. Where the
 * source is imported it gets the built files, which alone Node can run.
 */
import { register } from 'node:module'

const root = new URL('../../', import.meta.url).href
const hooks = `
  import { readFile } from 'node:fs/promises'
  import { createRequire } from 'node:module'
  import { fileURLToPath } from 'node:url'

  const isOwn = (url) => url.startsWith('${root}') && url.endsWith('.ts')

  export async function resolve(specifier, context, next) {
    const { href } = specifier.startsWith('.') ? new URL(specifier, context.parentURL) : { href: specifier }
    const path = isOwn(href) ? href.slice(${root.length}) : ''
    if (/^(src|examples|bench)\\//.test(path)) return next('${root}dist/' + path.replace(/ts$/, 'js'), context)
    return path === '' ? next(specifier, context) : { url: href, format: 'module', shortCircuit: true }
  }

  export async function load(url, context, next) {
    if (!isOwn(url)) return next(url, context)
    const typescript = createRequire('${root}')('typescript')
    const { ESNext } = typescript.ModuleKind
    const options = { target: ESNext, module: ESNext }
    const source = typescript.transpileModule(await readFile(fileURLToPath(url), 'utf8'), { compilerOptions: options })
    return { format: 'module', source: source.outputText, shortCircuit: true }
  }`
register(`data:text/javascript,${encodeURIComponent(hooks)}`)
