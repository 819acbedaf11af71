/** Prunes the checkpoints of a run to the newest, saying when it begins. */
import { pruneCheckpoints } from '../../dist/src/training/folder/checkpoint.js'

console.log('pruning')
await pruneCheckpoints(process.argv[2], 1)
