/** The latest metrics of a training for Prometheus (prometheus.io, "Exposition formats"), at `/metrics` while it runs. */
import { HttpDocument, listen } from '../../base/http/server.ts'
import { integer, text } from '../../base/settings.ts'
import { defineLogger, type LogEntry, type LoggedTraining } from './logger.ts'

/** Answers `GET /metrics` with the latest entry, until the training has ended. */
export const prometheus = defineLogger({
  id: 'prometheus',
  settings: {
    port: integer(9464, 'port to listen at; 0: any free port', { min: 0, max: 65_535 }),
    host: text('127.0.0.1', 'address to listen at; 127.0.0.1: reachable from this machine only'),
  },
  async open({ port, host }, training) {
    let newest: LogEntry | undefined
    const metrics = () => new HttpDocument('text/plain; version=0.0.4; charset=utf-8', exposition(training, newest))
    const server = await listen(new Map([['GET /metrics', metrics]]), {
      ...{ host, port, maxBodyBytes: 0 },
      isBackground: true, // Does not keep a program alive that forgets to close its trainer.
    })
    return {
      place: `${server.url}/metrics`,
      write(entries) {
        newest = entries.at(-1)
      },
      async close() {
        const closed = server.close()
        server.closeConnections()
        await closed
      },
    }
  },
})

function exposition({ name, metrics }: LoggedTraining, entry: LogEntry | undefined): string {
  if (entry === undefined) return ''
  const label = `{run="${name.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"}`
  const told = new Map<string, string>()
  for (const [key, value] of Object.entries({ step: entry.step, ...entry.values })) {
    const metric = `colonnade_${snakeCase(key)}`
    if (told.has(metric)) continue // Names that differ only in punctuation collide: Prometheus accepts a value once.
    const { description, unit } = metrics[key.split('/')[0]!] ?? {}
    const words = description === undefined ? '' : `${description}${unit == null ? '' : `; ${unit}`}`
    const help = words.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')
    told.set(
      metric,
      `${help === '' ? '' : `# HELP ${metric} ${help}\n`}# TYPE ${metric} gauge\n${metric}${label} ${numberOf(value)}\n`,
    )
  }
  return [...told.values()].join('')
}

/** Converts `phaseSeconds/forward` to `phase_seconds_forward`. */
function snakeCase(name: string): string {
  return name
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1_$2')
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '_')
}

function numberOf(value: number): string {
  return Number.isFinite(value) ? String(value) : value > 0 ? '+Inf' : '-Inf'
}
