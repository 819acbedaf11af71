/** A program that runs beside the bench: one line asks for one run, one JSON line answers. It sleeps in between. */
import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'

export class Companion {
  readonly #name: string
  readonly #child: ChildProcess
  readonly #waiting: { resolve: (answer: never) => void; reject: (error: Error) => void }[] = []
  #complaint = ''
  #ended: Error | undefined

  constructor(command: string, words: readonly string[]) {
    this.#name = [command, ...words].join(' ')
    this.#child = spawn(command, words, { stdio: ['pipe', 'pipe', 'pipe'] })
    const { stdin, stdout, stderr } = this.#child
    stdin!.on('error', () => undefined) // The end of the process tells more.
    stderr!.on('data', (text) => {
      this.#complaint = (this.#complaint + text).slice(-600)
    })
    createInterface({ input: stdout! }).on('line', (line) => {
      if (line.startsWith('{')) this.#waiting.shift()?.resolve(JSON.parse(line) as never)
    })
    this.#child.on('error', (error) => this.#end(error))
    this.#child.on('close', (code) => this.#end(new Error(`${this.#name} ended with ${code}: ${this.#complaint}`)))
  }

  #end(error: Error): void {
    this.#ended ??= error
    for (const { reject } of this.#waiting.splice(0)) reject(this.#ended)
  }

  /** Sends a line and takes the answer. Rejects when the program has ended. */
  ask<Answer>(request: string): Promise<Answer> {
    if (this.#ended) return Promise.reject(this.#ended)
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject })
      this.#child.stdin!.write(`${request}\n`)
    })
  }

  /** Lets the program end: there are no more lines. */
  close(): void {
    this.#child.stdin!.end()
  }
}
