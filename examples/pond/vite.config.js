/** A page with these headers may share memory with its workers. The package lies above this folder. */
const headers = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' }
export default { server: { headers, fs: { allow: ['../..'] } }, preview: { headers }, worker: { format: 'es' } }
