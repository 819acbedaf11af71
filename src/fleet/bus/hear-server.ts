/** Waits for the first words of a NATS server, because the client waits forever for a server that accepts connections but does not answer. */
import { connect } from 'node:net'

/** Milliseconds without them after which a server counts as away. */
const SILENT_MS = 10_000
const USUAL_PORT = 4222

/**
 * Resolves once the server of an address like `nats://host:4222` has answered, and for a server that cannot be reached,
 * which the client reports. Rejects with a TimeoutError at the signal, and if the server is silent for 10 s.
 */
export function hearServer(address: string, signal?: AbortSignal): Promise<void> {
  const { hostname, port } = new URL(address)
  const socket = connect(port === '' ? USUAL_PORT : Number(port), hostname.replace(/^\[|\]$/g, ''))
  const over = new AbortController()
  return new Promise<void>((resolve, reject) => {
    const giveUp = () => reject(Object.assign(new Error('the server does not answer'), { name: 'TimeoutError' }))
    socket.setTimeout(SILENT_MS, giveUp)
    socket.once('data', () => resolve())
    socket.once('error', () => resolve())
    socket.once('close', () => resolve())
    signal?.addEventListener('abort', giveUp, { signal: over.signal })
    if (signal?.aborted) giveUp()
  }).finally(() => {
    over.abort() // Attempts are many where a server is away for long.
    socket.destroy()
  })
}
