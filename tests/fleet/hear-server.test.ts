/** A server that accepts connections and says nothing, for which a learner must not wait beyond a signal. */
import { getEventListeners, once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import { hearServer } from '../../src/fleet/bus/hear-server.ts'

async function serve(greet: (socket: Socket) => void) {
  const server = createServer(greet).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { address: `nats://127.0.0.1:${(server.address() as AddressInfo).port}`, server }
}

test('a silent server is left at the signal, and its connection is closed', async () => {
  let closed: Promise<unknown> | undefined
  const begun = new AbortController()
  const { address, server } = await serve((socket) => {
    closed = once(socket, 'close')
    socket.resume().on('error', () => {})
    begun.abort()
  })
  await expect(hearServer(address, begun.signal)).rejects.toMatchObject({ name: 'TimeoutError' })
  await closed
  await expect(hearServer(address, AbortSignal.abort())).rejects.toThrow('the server does not answer')
  server.close()
})

test('a server that speaks is heard, and one that is not there is left to the client', async () => {
  const { address, server } = await serve((socket) => void socket.on('error', () => {}).write('INFO {}\r\n'))
  const { signal } = new AbortController()
  await hearServer(address, signal)
  server.close()
  await once(server, 'close')
  await hearServer(address, signal)
  expect(getEventListeners(signal, 'abort')).toEqual([])
})
