/** Owns a run folder until it is killed, and says so. */
import { Ownership } from '../../dist/src/training/folder/owner.js'

await Ownership.take(process.argv[2])
console.log('owned')
setInterval(() => undefined, 60_000)
