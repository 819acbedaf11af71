/** The pond of examples/pond, linked with three.js and served as Vite would, to a browser. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { rolldown } from 'rolldown'
import { cached, installPackages } from './cache.ts'
import { type Served, serveIsolated } from './isolated.ts'
import { root } from './linked-page.ts'

const { dependencies } = JSON.parse(readFileSync(join(root, 'examples/pond/package.json'), 'utf8')) as {
  dependencies: { three: string }
}
const THREE = `three@${dependencies.three}`

/** Serves it; or returns why that is impossible. */
export async function servePond(): Promise<Served | { why: string }> {
  const made = await cached(THREE, (path, run) => installPackages(path, run, [THREE]))
  if ('why' in made) return made
  const files = new Map<string, [string, string]>([
    ['/', ['text/html', readFileSync(join(root, 'examples/pond/index.html'), 'utf8')]],
  ])
  // A worker is named by its source.
  for (const name of ['main.js', 'learn.ts']) {
    const bundle = await rolldown({
      input: join(root, 'examples/pond', name),
      platform: 'browser',
      tsconfig: false,
      resolve: {
        alias: {
          colonnade: join(root, 'dist/page/index.js'),
          three: join(made.folder, 'node_modules/three/build/three.module.js'),
        },
      },
    })
    const { output } = await bundle.generate({ format: 'esm', entryFileNames: name, minify: true })
    for (const file of output) if (file.type === 'chunk') files.set(`/${file.fileName}`, ['text/javascript', file.code])
  }
  return serveIsolated((path) => files.get(path) ?? ['text/plain', ''])
}
