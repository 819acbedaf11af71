/** The server of a page, in a thread of its own. */
import { parentPort, workerData } from 'node:worker_threads'
import { type DashboardOptions, openDashboard } from './dashboard.ts'

const answer = await openDashboard(workerData as DashboardOptions).then(
  ({ url, numRuns }) => ({ url, numRuns }),
  (error: Error) => ({ error: error.message }),
)
parentPort!.postMessage(answer)
