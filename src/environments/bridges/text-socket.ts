/**
 * A WebSocket (RFC 6455) of texts, each of which is answered by one: what is asked is asked in turn. Node has one of its own from 22 on;
 * this one is a few frames over `node:http`.
 */
import { createHash, randomBytes } from 'node:crypto'
import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import type { Socket } from 'node:net'

/** What the protocol has a server append to the key. */
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
const OPCODE = { rest: 0, text: 1, close: 8, ping: 9, pong: 10 } as const
/** Bytes of an answer, at most: a server that lies about a length would fill the memory. */
const MAX_BYTES = 64 * 2 ** 20

export class TextSocket {
  readonly #socket: Socket
  readonly #where: string
  #bytes: Buffer
  /** Frames of an answer that is not whole. */
  #parts: Buffer[] = []
  /** Answers that nobody has asked for yet, and who waits for one. */
  readonly #answers: string[] = []
  #waiting: { resolve(answer: string): void; reject(error: Error): void } | null = null
  #error: Error | null = null

  private constructor(where: string, socket: Socket, head: Buffer) {
    this.#where = where
    this.#socket = socket
    this.#bytes = head
    socket.setNoDelay(true)
    socket.on('data', (chunk: Buffer) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk])
      this.#read()
    })
    socket.on('error', (error) => this.#fail(error.message))
    socket.on('close', () => this.#fail('the connection was closed'))
    this.#read()
  }

  /** Connects to an address like `ws://127.0.0.1:8000/ws`; rejects where nobody answers in so many seconds. */
  static connect(url: string, seconds: number): Promise<TextSocket> {
    const { protocol, hostname, port, pathname, search } = new URL(url)
    const key = randomBytes(16).toString('base64')
    const accept = createHash('sha1')
      .update(key + GUID)
      .digest('base64')
    return new Promise((resolve, reject) => {
      const ask = protocol === 'wss:' ? requestHttps : requestHttp
      const request = ask({
        ...{ hostname: hostname.replace(/^\[(.*)\]$/, '$1'), path: pathname + search, timeout: 1000 * seconds },
        ...(port === '' ? {} : { port }),
        headers: {
          ...{ connection: 'Upgrade', upgrade: 'websocket' },
          ...{ 'sec-websocket-key': key, 'sec-websocket-version': '13' },
        },
      })
      const refuse = (why: string) => {
        request.destroy()
        reject(new Error(`${url}: ${why}`))
      }
      request.on('upgrade', (response, socket, head) => {
        socket.setTimeout(0)
        if (response.headers['sec-websocket-accept'] === accept) resolve(new TextSocket(url, socket as Socket, head))
        else refuse('the server speaks another protocol')
      })
      request.on('response', ({ statusCode }) => refuse(`status ${statusCode}, expected 101`))
      request.on('timeout', () => refuse(`no answer in ${seconds} s`))
      request.on('error', (error) => reject(new Error(`${url}: ${error.message || (error as { code?: string }).code}`)))
      request.end()
    })
  }

  /** Whether it can be asked. */
  get isOpen(): boolean {
    return this.#error === null
  }

  /** Sends a text, and waits for the next one. A socket whose answer is late is closed: a later one would be of another question. */
  async ask(text: string, seconds: number): Promise<string> {
    this.#send(OPCODE.text, Buffer.from(text))
    return this.next(seconds)
  }

  /** The next text that comes. */
  async next(seconds: number): Promise<string> {
    if (this.#answers.length > 0) return this.#answers.shift()!
    if (this.#error !== null) throw this.#error
    let timer: NodeJS.Timeout | undefined
    try {
      return await new Promise<string>((resolve, reject) => {
        this.#waiting = { resolve, reject }
        timer = setTimeout(() => {
          this.#fail(`no answer in ${seconds} s`)
          this.#socket.destroy()
        }, 1000 * seconds)
      })
    } finally {
      clearTimeout(timer)
      this.#waiting = null
    }
  }

  close(): void {
    if (this.#error === null) this.#send(OPCODE.close, Buffer.of(0x03, 0xe8)) // 1000: it was meant so.
    this.#fail('it was closed here')
    this.#socket.end()
  }

  #fail(why: string): void {
    this.#error ??= new Error(`${this.#where}: ${why}`)
    this.#waiting?.reject(this.#error)
  }

  /** Sends a frame, masked, as clients have to. */
  #send(opcode: number, payload: Buffer): void {
    if (this.#error !== null) return
    const { length } = payload
    const size = length < 126 ? 0 : length < 2 ** 16 ? 2 : 8
    const header = Buffer.alloc(2 + size)
    header[0] = 0x80 | opcode
    header[1] = 0x80 | (size === 0 ? length : size === 2 ? 126 : 127)
    if (size === 2) header.writeUInt16BE(length, 2)
    if (size === 8) header.writeBigUInt64BE(BigInt(length), 2)
    const mask = randomBytes(4)
    const masked = payload.map((byte, i) => byte ^ mask[i % 4]!)
    this.#socket.write(Buffer.concat([header, mask, masked]))
  }

  /** Takes whole frames off what has come. */
  #read(): void {
    for (;;) {
      const bytes = this.#bytes
      if (bytes.length < 2) return
      const [first, second] = [bytes[0]!, bytes[1]!]
      const size = (second & 0x7f) === 126 ? 2 : (second & 0x7f) === 127 ? 8 : 0
      const begin = 2 + size
      if (bytes.length < begin) return
      const length = size === 0 ? second & 0x7f : size === 2 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2))
      if (length > MAX_BYTES || (second & 0x80) !== 0) {
        this.#fail(length > MAX_BYTES ? `an answer of ${length} bytes` : 'a masked frame of a server')
        this.#socket.destroy()
        return
      }
      if (bytes.length < begin + length) return
      this.#bytes = bytes.subarray(begin + length)
      this.#take(first & 0x0f, (first & 0x80) !== 0, bytes.subarray(begin, begin + length))
    }
  }

  #take(opcode: number, isLast: boolean, payload: Buffer): void {
    if (opcode === OPCODE.ping) this.#send(OPCODE.pong, payload)
    if (opcode === OPCODE.close) {
      const code = payload.length >= 2 ? payload.readUInt16BE(0) : 1005
      this.#fail(`the server closed it (${code} ${payload.subarray(2).toString()})`)
      this.#socket.end()
      return
    }
    if (opcode !== OPCODE.text && opcode !== OPCODE.rest) return // Pings, pongs and bytes are nobody's answer.
    this.#parts.push(payload)
    if (!isLast) return
    const text = Buffer.concat(this.#parts).toString()
    this.#parts = []
    if (this.#waiting === null) this.#answers.push(text)
    else this.#waiting.resolve(text)
  }
}
