/** The server of a page, in a thread of its own. */
import { parentPort, workerData } from 'node:worker_threads'
import { type DashboardOptions, openDashboard } from './dashboard.ts'

try {
  const { url, numRuns, close } = await openDashboard(workerData as DashboardOptions)
  // Ended while somebody asks, Node ends the whole process: the server goes first.
  parentPort!.once('message', async () => {
    await close()
    parentPort!.postMessage('closed')
  })
  parentPort!.postMessage({ url, numRuns })
} catch (error) {
  parentPort!.postMessage({ error: (error as Error).message })
}
