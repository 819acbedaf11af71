/** A WebSocket of texts, each of which is answered by one: what is asked is asked in turn. */
import { once } from 'node:events'
import type { WebSocket } from 'ws'

/** Bytes of an answer, at most: a server that lies about a length would fill the memory. */
const MAX_BYTES = 64 * 2 ** 20

export class TextSocket {
  readonly #socket: WebSocket
  readonly #where: string
  /** Answers that nobody has asked for yet, and who waits for one. */
  readonly #answers: string[] = []
  #waiting: { resolve(answer: string): void; reject(error: Error): void } | null = null
  #error: Error | null = null

  private constructor(where: string, socket: WebSocket) {
    this.#where = where
    this.#socket = socket
    socket.on('message', (bytes, isBinary) => {
      if (isBinary) return // Bytes are nobody's answer.
      if (this.#waiting === null) this.#answers.push(String(bytes))
      else this.#waiting.resolve(String(bytes))
    })
    socket.on('error', (error) => this.#fail(error.message))
    socket.on('close', (code, reason) =>
      // 1006: no frame said that it would be closed.
      this.#fail(code === 1006 ? 'the connection was closed' : `the server closed it (${code} ${reason})`),
    )
  }

  /** Connects to an address like `ws://127.0.0.1:8000/ws`; rejects where nobody answers in so many seconds. */
  static async connect(url: string, seconds: number): Promise<TextSocket> {
    const { WebSocket } = await import('ws')
    const socket = new WebSocket(url, {
      ...{ handshakeTimeout: 1000 * seconds, maxPayload: MAX_BYTES, perMessageDeflate: false },
    })
    const made = new TextSocket(url, socket)
    try {
      await once(socket, 'open')
    } catch (cause) {
      const { message, code } = cause as NodeJS.ErrnoException
      throw new Error(`${url}: ${message || code}`, { cause })
    }
    return made
  }

  /** Whether it can be asked. */
  get isOpen(): boolean {
    return this.#error === null
  }

  /** Sends a text, and waits for the next one. A socket whose answer is late is closed: a later one would be of another question. */
  async ask(text: string, seconds: number): Promise<string> {
    if (this.#error === null) this.#socket.send(text)
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
          this.#socket.terminate()
        }, 1000 * seconds)
      })
    } finally {
      clearTimeout(timer)
      this.#waiting = null
    }
  }

  close(): void {
    this.#fail('it was closed here')
    this.#socket.close(1000)
  }

  #fail(why: string): void {
    this.#error ??= new Error(`${this.#where}: ${why}`)
    this.#waiting?.reject(this.#error)
  }
}
