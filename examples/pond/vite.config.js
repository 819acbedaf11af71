import { fileURLToPath } from 'node:url'

/** A page with these headers may share memory with its workers. */
const headers = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' }
/** The package lies above this folder. In a project of your own, install `colonnade` and leave `resolve` and `fs` out. */
const colonnade = fileURLToPath(new URL('../../dist/page/index.js', import.meta.url))
export default {
  resolve: { alias: { colonnade } },
  server: { headers, fs: { allow: ['../..'] } },
  preview: { headers },
  worker: { format: 'es' },
}
