/** A trackio server (github.com/gradio-app/trackio): `POST /api/bulk_log`. */
import { environmentVariable } from '../../base/environment-variables.ts'
import { JsonClient } from '../../base/http/json-client.ts'
import { text } from '../../base/settings.ts'
import { defineLogger } from './logger.ts'

/** The environment variable with the token that a server prints when it starts. */
const TOKEN = 'TRACKIO_WRITE_TOKEN'

/** Sends the numbers of each update to a trackio server, as a run of a project. A repeated entry is stored once. */
export const trackio = defineLogger({
  id: 'trackio',
  settings: {
    url: text('http://127.0.0.1:7860', `address of the server; its token, if needed, is read from ${TOKEN}`),
    project: text('colonnade', 'the project'),
  },
  open({ url, project }, { name, settings, done }) {
    const apiKey = environmentVariable(TOKEN) ?? ''
    const client = new JsonClient(url, { deadline: 10, retries: 1, apiKey, apiKeyHeader: 'x-trackio-write-token' })
    // A resumed training repeats later updates, which are new entries.
    const session = `${name}-${done}-${Date.now().toString(36)}`
    let isFirst = true
    return {
      place: url,
      isRepeatable: true,
      async write(entries) {
        const logs = entries.map(({ step, values }, i) => ({
          ...{ project, run: name, metrics: finite(values), step },
          log_id: `${session}-${step}`,
          ...(isFirst && i === 0 ? { config: settings } : {}),
        }))
        await client.tell('/api/bulk_log', { logs, hf_token: null })
        isFirst = false
      },
    }
  },
})

/** Removes values that JSON cannot express. */
export function finite(values: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => Number.isFinite(value)))
}
