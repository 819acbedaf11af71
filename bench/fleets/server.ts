/** The other process of `npm run bench -- fleets`: a store over HTTP, and `node:http` with nothing else. Ends with its parent. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { FolderStore } from '../../src/fleet/store/folder-store.ts'
import { serveStore } from '../../src/fleet/store/http-store.ts'

export interface Served {
  readonly url: string
  readonly bare: string
}

const [folder, key] = process.argv.slice(2) as [string, string]
const zeros = new Map<number, Buffer>()
const bare = createServer((request, response) => {
  if (request.method === 'POST') {
    let length = 0
    request.on('data', (chunk: Buffer) => {
      length += chunk.length
    })
    request.on('end', () => response.end(String(length)))
    return
  }
  const bytes = Number(request.url!.slice(1))
  if (!zeros.has(bytes)) zeros.set(bytes, Buffer.alloc(bytes, 1))
  response.writeHead(200, { 'content-length': bytes })
  response.end(zeros.get(bytes))
})
await new Promise<void>((resolve) => bare.listen(0, '127.0.0.1', resolve))
const { url } = await serveStore(new FolderStore(folder), { key, listening: { host: '127.0.0.1', port: 0 } })
process.on('disconnect', () => process.exit())
process.on('message', () => {
  const { user, system } = process.cpuUsage()
  process.send!((user + system) / 1000)
})
process.send!({ url, bare: `http://127.0.0.1:${(bare.address() as AddressInfo).port}` } satisfies Served)
