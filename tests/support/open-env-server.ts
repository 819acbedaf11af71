/**
 * A server of OpenEnv's WebSocket protocol with scripted answers; its RFC 6455 frames are independent of the client.
 */
import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { atEnd } from './end.ts'

/** A session's reply to a message: an answer, a raw text, nothing (null), or the end of the connection. */
// biome-ignore lint/suspicious/noExplicitAny: messages are of any kind.
export type Saying = (type: string, data: any, session: number) => object | string | null | 'cut'

/** Serves until the end of the test file, at most `capacity` sessions at once. */
export async function openEnvServer(say: Saying, capacity = 100) {
  const sockets = new Set<Socket>()
  let sessions = 0
  let most = 0
  const http = createServer((_, response) => response.writeHead(404).end())
  http.on('upgrade', (request, socket: Socket) => {
    const key = `${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`
    const accept = createHash('sha1').update(key).digest('base64')
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    )
    const session = sessions++
    // In two frames with a ping between them, as servers may.
    const send = (text: string) => {
      const bytes = Buffer.from(text)
      const half = bytes.length >> 1
      const frame = (first: number, part: Buffer) => {
        const long = part.length > 125
        const header = long
          ? Buffer.from([first, 126, part.length >> 8, part.length & 255])
          : Buffer.from([first, part.length])
        socket.write(Buffer.concat([header, part]))
      }
      frame(0x01, bytes.subarray(0, half))
      frame(0x89, Buffer.from('?'))
      frame(0x80, bytes.subarray(half))
    }
    if (sockets.size >= capacity) {
      send(JSON.stringify({ type: 'error', data: { message: 'no room', code: 'CAPACITY_REACHED' } }))
      return void socket.end(Buffer.from([0x88, 2, 0x03, 0xf5]))
    }
    sockets.add(socket)
    most = Math.max(most, sockets.size)
    socket.on('close', () => sockets.delete(socket))
    socket.on('error', () => {})
    let bytes = Buffer.alloc(0)
    socket.on('data', (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk])
      while (bytes.length >= 6) {
        const size = (bytes[1]! & 127) === 126 ? 2 : 0
        const length = size === 2 ? bytes.readUInt16BE(2) : bytes[1]! & 127
        const begin = 2 + size + 4
        if (bytes.length < begin + length) return
        const mask = bytes.subarray(begin - 4, begin)
        const text = bytes.subarray(begin, begin + length).map((byte, i) => byte ^ mask[i % 4]!)
        const opcode = bytes[0]! & 15
        bytes = bytes.subarray(begin + length)
        if (opcode === 8) socket.end()
        if (opcode !== 1) continue
        const { type, data } = JSON.parse(text.toString())
        const said = say(type, data, session)
        if (said === 'cut') socket.destroy()
        else if (said !== null) send(typeof said === 'string' ? said : JSON.stringify(said))
      }
    })
  })
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  atEnd(() => {
    for (const socket of sockets) socket.destroy()
    http.close()
  })
  return {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    /** The sessions so far, the open ones, and the maximum at once. */
    count: () => ({ sessions, open: sockets.size, most }),
  }
}
