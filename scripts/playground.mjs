// npm run playground [-- --build]
//
// Builds the playground, files that any server can give out, into dist/playground, and serves it on this machine until Ctrl-C. With
// --build only builds. PORT names another port than 8788.
import { copyFileSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { basename, extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rolldown } from 'rolldown'

const root = fileURLToPath(new URL('..', import.meta.url))
const source = join(root, 'playground')
const out = join(root, 'dist/playground')
const page = join(root, 'dist/page/index.js')

rmSync(out, { recursive: true, force: true })
mkdirSync(out, { recursive: true })
for (const name of ['main', 'worker', 'lanes', 'painter']) {
  const bundle = await rolldown({
    input: { [name]: join(source, `${name}.ts`) },
    platform: 'browser',
    tsconfig: false,
    resolve: { alias: { colonnade: page } },
    onLog(level, log) {
      if (log.code !== 'INEFFECTIVE_DYNAMIC_IMPORT') throw new Error(`${level}: ${log.message}`)
    },
  })
  await bundle.write({
    dir: out,
    format: 'esm',
    minify: true,
    entryFileNames: '[name].js',
    chunkFileNames: `${name}-[name].js`,
  })
}
for (const name of ['index.html', 'style.css']) copyFileSync(join(source, name), join(out, name))
console.log(`${out} is built`)

if (!process.argv.includes('--build')) {
  const types = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css' }
  const server = createServer(({ url }, answer) => {
    const name = basename(new URL(url, 'http://page').pathname) || 'index.html'
    try {
      const bytes = readFileSync(join(out, name))
      answer.setHeader('content-type', types[extname(name)] ?? 'application/octet-stream')
      // A page with these is isolated, so that its threads could share memory.
      answer.setHeader('cross-origin-opener-policy', 'same-origin')
      answer.setHeader('cross-origin-embedder-policy', 'require-corp')
      answer.end(bytes)
    } catch {
      answer.statusCode = 404
      answer.end()
    }
  })
  const port = Number(process.env.PORT ?? 8788)
  server.listen(port, '127.0.0.1', () => console.log(`http://127.0.0.1:${port}/ (Ctrl-C ends it)`))
}
