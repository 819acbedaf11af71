/** Serves files to a browser as any server would, with the headers by which a page may share memory with its workers. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Served {
  readonly address: string
  close(): void
}

/** Serves what `file` has for a path: its type and its text. */
export async function serveIsolated(file: (path: string) => readonly [type: string, text: string]): Promise<Served> {
  const server = createServer(({ url }, answer) => {
    const [type, text] = file(new URL(url!, 'http://page').pathname)
    answer.setHeader('content-type', type)
    answer.setHeader('cross-origin-opener-policy', 'same-origin')
    answer.setHeader('cross-origin-embedder-policy', 'require-corp')
    answer.end(text)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { address: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, close: () => server.close() }
}
