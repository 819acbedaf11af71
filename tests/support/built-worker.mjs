/** What the threads of a team run that a test started from the source. */
import './built.mjs'

await import('../../dist/src/training/threads/worker.js')
