/**
 * Ended sessions created over HTTP: their rows in memory or, with a folder, in a file per session, so that the memory of
 * a gateway that runs for long does not grow. No loss is silent: a session whose file cannot be written stays and is
 * retried each second, and the gateway creates no new sessions meanwhile.
 */
import { InputError } from '../../base/errors.ts'
import { listFolder } from '../../base/files/files.ts'
import { RequestError } from '../../base/http/server.ts'
import { TokenTexts } from '../../language/tokenizers/token-texts.ts'
import { Trajectories } from '../../tables/trajectories/trajectories.ts'
import { writeTrajectories } from '../../tables/trajectories/trajectory-table.ts'
import type { EndedSession, Session, SessionReward } from './sessions.ts'
import type { Source } from './source.ts'

/** A session's reward, and whether it was abandoned. */
export interface SessionEnd {
  readonly worth: Required<SessionReward>
  readonly isAbandoned: boolean
}

const FILE = /^session-(\d{6,})\.arrow$/

export class SessionArchive {
  /** Rows of the kept sessions, in order; none with a folder. */
  readonly trajectories = new Trajectories()
  /** Sessions whose files could not be written, with their ends. */
  readonly unwritten = new Map<Session, SessionEnd>()
  readonly #folder: string | null
  readonly #sourceOf: () => Source
  readonly #writing = new Set<Session>()
  #why = ''

  constructor(folder: string | null, sourceOf: () => Source) {
    this.#folder = folder
    this.#sourceOf = sourceOf
  }

  /** The next session's number, above those in the folder. @throws InputError if the folder cannot be read. */
  async nextNumber(): Promise<number> {
    if (this.#folder === null) return 0
    const numbers = (await listFolder(this.#folder)).map((name) => Number(FILE.exec(name)?.[1] ?? -1))
    return Math.max(-1, ...numbers) + 1
  }

  /** Ends a session and keeps its rows, on disk with a folder. @throws RequestError 409 while ending, 500 unwritten. */
  async keep(session: Session, end: SessionEnd): Promise<EndedSession> {
    if (this.#writing.has(session)) {
      throw new RequestError(409, 'the session is being ended', { code: 'session_ending', retryAfter: 1 })
    }
    this.#writing.add(session)
    try {
      const ended = session.close(end.worth)
      if (ended.rows.length > 0) {
        if (this.#folder === null) this.trajectories.appendConversation(ended.rows)
        else await this.#write(this.#folder, session, ended)
      }
      this.unwritten.delete(session)
      return ended
    } catch (error) {
      this.#why = (error as Error).message
      if (!this.unwritten.has(session)) {
        console.error(`colonnade: session ${session.number} is not written; retrying each second: ${this.#why}`)
      }
      this.unwritten.set(session, end)
      throw this.#notWritten(500)
    } finally {
      this.#writing.delete(session)
    }
  }

  /** @throws RequestError 503 while a session is unwritten. */
  checkWritten(): void {
    if (this.unwritten.size > 0) throw this.#notWritten(503)
  }

  /** @throws InputError for unwritten sessions when the gateway closes. */
  checkAllWritten(): void {
    if (this.unwritten.size === 0) return
    const numbers = [...this.unwritten.keys()].map(({ number }) => number)
    throw new InputError(`sessions ${numbers.join(', ')}`, `lost rows: ${this.#why}`, 'a writable folder')
  }

  #notWritten(status: number): RequestError {
    const message = `${this.unwritten.size} sessions are not written; retrying each second: ${this.#why}`
    return new RequestError(status, message, { code: 'not_written', retryAfter: 1 })
  }

  async #write(folder: string, session: Session, ended: EndedSession): Promise<void> {
    const rows = new Trajectories()
    rows.appendConversation(ended.rows)
    const { tokenizer, name } = this.#sourceOf().served
    const texts = new TokenTexts(tokenizer)
    await writeTrajectories(`${folder}/session-${String(ended.number).padStart(6, '0')}.arrow`, rows, {
      ...{ environment: 'gateway', model: name, tokenizer: tokenizer.id, algorithm: 'none', seed: 0 },
      promptOf: () => JSON.stringify(session.calls.prompt),
      decode: (ids) => tokenizer.decode(ids),
      textsOf: (ids) => texts.of(ids),
    })
  }
}
