/**
 * A run in a folder, begun or gone on with: `node crashing-run.mjs control|text n folder environment key=value …`. With n > 0 the
 * process is killed at its n-th file operation, in the middle of it where that is a writing; with 0 it is not.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { disk } from '../../dist/src/base/files/files.js'
import { configureRun, resumeRun, startRun } from '../../dist/src/index.js'

const [, n, folder, environment, ...words] = process.argv.slice(2)
let count = 0
for (const [name, operation] of Object.entries({ ...disk })) {
  disk[name] = (...args) => {
    if (++count !== Number(n)) return operation(...args)
    const kill = () => process.kill(process.pid, 'SIGKILL')
    if (name === 'append') operation(args[0], args[1].slice(0, args[1].length >> 1))
    if (name !== 'write') return kill()
    const [handle, bytes, from] = args
    return operation(handle, bytes.subarray(0, from + ((bytes.byteLength - from) >> 1)), from).then(kill)
  }
}

const texts = Object.fromEntries(words.map((word) => word.split('=')))
const isRun = existsSync(join(folder, 'config.json'))
const run = isRun ? await resumeRun(folder) : await startRun(await configureRun(environment, texts), folder)
console.log('begun')
await run.train()
console.log(`done ${count}`)
