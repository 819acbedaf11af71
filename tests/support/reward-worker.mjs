/** A worker for pools: does as its task says. */
import { parentPort, threadId } from 'node:worker_threads'

parentPort.on('message', (task) => {
  if (task === 'loop') for (;;);
  if (task === 'exit') process.exit(3)
  if (task === 'throw') throw new Error('out of the worker')
  if (task === 'grow') for (const hoard = []; ; ) hoard.push(new Array(100_000).fill(hoard.length))
  parentPort.postMessage(
    task === 'error' ? { error: 'a task that fails' } : { answer: threadId, isSpent: task === 'spent' },
  )
})
parentPort.postMessage({ answer: null })
