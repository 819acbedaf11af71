/** The server of a page, in its own thread. */
import { parentPort, workerData } from 'node:worker_threads'
import { type DashboardOptions, openDashboard } from './dashboard.ts'

try {
  const { url, numRuns, close } = await openDashboard(workerData as DashboardOptions)
  // Ending the thread during a request would end the whole process, so the server closes first.
  parentPort!.once('message', async () => {
    await close()
    parentPort!.postMessage('closed')
  })
  parentPort!.postMessage({ url, numRuns })
} catch (error) {
  parentPort!.postMessage({ error: (error as Error).message })
}
