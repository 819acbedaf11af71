/** An MLflow tracking server (mlflow.org, "REST API"). */
import { environmentVariable } from '../../base/environment-variables.ts'
import { AnswerError, JsonClient } from '../../base/http/json-client.ts'
import { text } from '../../base/settings.ts'
import { defineLogger, type LoggedEnd } from './logger.ts'

const API = '/api/2.0/mlflow'
/** The server's limits per request. */
const [MAX_METRICS, MAX_PARAMS] = [1000, 100]
const MAX_PARAM_LENGTH = 500
const STATUS: Readonly<Record<LoggedEnd, string>> = { complete: 'FINISHED', interrupted: 'KILLED', failed: 'FAILED' }

/** Sends settings and numbers to an MLflow tracking server, as a new run of an experiment. */
export const mlflow = defineLogger({
  id: 'mlflow',
  settings: {
    url: text(
      'http://127.0.0.1:5000',
      'address of the server; its token, if needed, is read from MLFLOW_TRACKING_TOKEN',
    ),
    experiment: text('colonnade', 'name of the experiment, which is created if missing'),
  },
  async open({ url, experiment }, { name, settings }) {
    const apiKey = environmentVariable('MLFLOW_TRACKING_TOKEN') ?? ''
    const client = new JsonClient(url, { deadline: 10, retries: 1, apiKey })
    const ask = (path: string, body: object) => client.ask(`${API}/${path}`, body)
    const made = await ask('runs/create', {
      ...{ experiment_id: await experimentOf(client, experiment), run_name: name, start_time: Date.now() },
    })
    const { run_id: run } = (made.run as { info: { run_id: string } }).info
    const params = Object.entries(settings).map(([key, value]) => {
      return { key: keyOf(key), value: String(value).slice(0, MAX_PARAM_LENGTH) }
    })
    for (const some of chunks(params, MAX_PARAMS)) await ask('runs/log-batch', { run_id: run, params: some })
    return {
      place: url,
      isRepeatable: true,
      async write(entries) {
        const metrics = entries.flatMap(({ step, time: timestamp, values }) =>
          Object.entries(values)
            .filter(([, value]) => Number.isFinite(value))
            .map(([key, value]) => ({ key: keyOf(key), value, step, timestamp })),
        )
        for (const some of chunks(metrics, MAX_METRICS)) await ask('runs/log-batch', { run_id: run, metrics: some })
      },
      async close(end) {
        await ask('runs/update', { run_id: run, status: STATUS[end], end_time: Date.now() })
      },
    }
  },
})

async function experimentOf(client: JsonClient, name: string): Promise<string> {
  const byName = `${API}/experiments/get-by-name?experiment_name=${encodeURIComponent(name)}`
  const found = await client.askIfThere(byName)
  if (found !== null) return (found.experiment as { experiment_id: string }).experiment_id
  try {
    return (await client.ask(`${API}/experiments/create`, { name })).experiment_id as string
  } catch (error) {
    // Another training may have created it at the same time.
    const made = error instanceof AnswerError ? await client.askIfThere(byName) : null
    if (made === null) throw error
    return (made.experiment as { experiment_id: string }).experiment_id
  }
}

/** Replaces characters that keys may not have by underscores. */
function keyOf(key: string): string {
  return key.replaceAll(/[^\w\-. /]/g, '_')
}

function chunks<T>(list: readonly T[], size: number): T[][] {
  return Array.from({ length: Math.ceil(list.length / size) }, (_, i) => list.slice(i * size, (i + 1) * size))
}
