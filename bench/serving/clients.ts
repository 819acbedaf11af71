/** The clients of the room: they ask as they are told, and tell how it went. */
import { check } from '../measure.ts'

/** What they are to ask. */
export interface Asked {
  readonly url: string
  readonly prompt: string
  readonly maxTokens: number
  readonly connections: number
  readonly isStream: boolean
  /** So many answers, or for so many seconds. */
  readonly answers?: number
  readonly forSeconds?: number
}

/** How it went. */
export interface Told {
  readonly seconds: number
  readonly tokens: number
  readonly answers: number
  readonly errors: number
  /** Seconds within which half of the answers were over, 95 and 99 of 100. They alone are sent: the server's heap is measured. */
  readonly latencies: { readonly half: number; readonly of95: number; readonly of99: number }
}

async function run(asked: Asked): Promise<Told> {
  const { url, prompt, maxTokens, connections, isStream, answers = Number.POSITIVE_INFINITY, forSeconds } = asked
  const latencies: number[] = []
  let [begun, tokens, errors] = [0, 0, 0]
  const start = performance.now()
  const isOver = () => begun >= answers || (forSeconds !== undefined && performance.now() - start > 1000 * forSeconds)
  const client = async () => {
    while (!isOver()) {
      const seed = begun++
      const since = performance.now()
      const response = await fetch(`${url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({
          ...{ model: 'model', prompt, max_tokens: maxTokens, seed, stream: isStream },
          ...(isStream ? { stream_options: { include_usage: true } } : {}),
        }),
      })
      const said = await response.text()
      const usage = /"completion_tokens":(\d+)/.exec(said)
      if (!response.ok || usage === null) errors++
      else {
        tokens += Number(usage[1])
        latencies.push((performance.now() - since) / 1000)
      }
    }
  }
  await Promise.all(Array.from({ length: connections }, client))
  const seconds = (performance.now() - start) / 1000
  const sorted = Float64Array.from(latencies).sort()
  const at = (part: number) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))]!
  const within = { half: at(0.5), of95: at(0.95), of99: at(0.99) }
  return { seconds, tokens, answers: sorted.length, errors, latencies: within }
}

process.once('message', async (asked: Asked) => {
  const told = await run(asked)
  check(told.tokens > 0, 'no tokens')
  process.send!(told, () => process.exit(0))
})
