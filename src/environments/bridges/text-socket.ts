/** A WebSocket with one text answer per text request, one request at a time. */
import { once } from 'node:events'
import type { WebSocket } from 'ws'

/** Maximum bytes of an answer, so that a wrong length cannot exhaust memory. */
const MAX_BYTES = 64 * 2 ** 20

export class TextSocket {
  readonly #socket: WebSocket
  readonly #where: string
  /** Answers not requested yet, and the waiting request. */
  readonly #answers: string[] = []
  #waiting: { resolve(answer: string): void; reject(error: Error): void } | null = null
  #error: Error | null = null

  private constructor(where: string, socket: WebSocket) {
    this.#where = where
    this.#socket = socket
    socket.on('message', (bytes, isBinary) => {
      if (isBinary) return // Binary messages are ignored.
      if (this.#waiting === null) this.#answers.push(String(bytes))
      else this.#waiting.resolve(String(bytes))
    })
    socket.on('error', (error) => this.#fail(error.message))
    socket.on('close', (code, reason) =>
      // 1006: the connection closed without a close frame.
      this.#fail(code === 1006 ? 'the connection was closed' : `the server closed it (${code} ${reason})`),
    )
  }

  /** Connects to an address like `ws://127.0.0.1:8000/ws`; rejects after `seconds`. */
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

  /** Whether it accepts requests. */
  get isOpen(): boolean {
    return this.#error === null
  }

  /** Sends a text and waits for the next one. On a timeout the socket closes, so that no later request gets the late answer. */
  async ask(text: string, seconds: number): Promise<string> {
    if (this.#error === null) this.#socket.send(text)
    return this.next(seconds)
  }

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
