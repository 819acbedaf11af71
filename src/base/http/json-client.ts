/** JSON requests to a server, with deadlines, status checks, and retries where repeating is harmless. */
import { checkCount, InputError, show } from '../errors.ts'
import { type HttpAnswer, isOk, requestHttp } from './http-request.ts'

export interface JsonClientOptions {
  /** Seconds after which a request has failed. */
  readonly deadline: number
  /** Retries after a temporary refusal (408, 425, 429, 5xx) or a broken connection. */
  readonly retries: number
  /** Sent as a bearer token, or unchanged in `apiKeyHeader`; none if empty. */
  readonly apiKey: string
  readonly apiKeyHeader?: string
  /** When aborted, a failed request is not repeated. */
  readonly leaving?: AbortSignal
}

/** Another format than JSON for the request's body, and for a response with this media type. */
export interface OtherForm {
  readonly type: string
  /** The body; absent: JSON, and only the response may have the format. */
  readonly bytes?: Uint8Array
  /** Parses a response's bytes; absent: the response is JSON. */
  read?(bytes: Uint8Array): Record<string, unknown>
}

/** A request that failed after all retries. */
export class AnswerError extends Error {
  /** The response's status; 0 without one. */
  readonly status: number
  /** Whether the same request may succeed later. */
  readonly mayPass: boolean

  constructor(message: string, status: number, mayPass: boolean) {
    super(message)
    this.status = status
    this.mayPass = mayPass
  }
}

const PASSING = [408, 425, 429, 500, 502, 503, 504]

export function mayPassLater(status: number): boolean {
  return PASSING.includes(status)
}

export class JsonClient {
  /** Without a trailing slash. */
  readonly url: string
  readonly #options: JsonClientOptions

  /** @throws InputError for an address that is not http or https, and numbers out of range. */
  constructor(url: string, options: JsonClientOptions) {
    if (typeof url !== 'string' || !URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
      throw new InputError('url', show(url), 'a URL like http://127.0.0.1:8000')
    }
    const { deadline, retries } = options
    if (!(deadline > 0 && deadline < 2 ** 31 / 1000))
      throw new InputError('deadline', show(deadline), 'seconds above 0')
    checkCount('retries', retries, 0)
    this.url = url.replace(/\/+$/, '')
    this.#options = options
  }

  /** Posts `body`, or gets for null, with retries; returns the JSON object. @throws AnswerError */
  async ask(
    path: string,
    body: object | null,
    signal?: AbortSignal,
    form: OtherForm | null = null,
  ): Promise<Record<string, unknown>> {
    return this.retry(async () => {
      const { where, status, type, bytes } = await this.#askOnce(path, body, signal, form)
      if (form?.read !== undefined && type.startsWith(form.type)) {
        try {
          return form.read(bytes)
        } catch (error) {
          throw new AnswerError(`${where}: ${(error as Error).message}, in an answer of ${type}`, status, false)
        }
      }
      const json = objectOf(bytes.toString())
      if (json !== null) return json
      throw new AnswerError(`${where}: got ${show(bytes.toString())}, expected a JSON object`, status, false)
    }, signal)
  }

  /** Gets the JSON object of an optional route; null if the server lacks it (404). @throws AnswerError otherwise. */
  async askIfThere(path: string): Promise<Record<string, unknown> | null> {
    try {
      return await this.ask(path, null)
    } catch (error) {
      if (error instanceof AnswerError && error.status === 404) return null
      throw error
    }
  }

  /** Posts `body` as `ask` does, and checks only the status. @throws AnswerError with the server's text. */
  async tell(path: string, body: object, signal?: AbortSignal): Promise<void> {
    await this.retry(() => this.#askOnce(path, body, signal), signal)
  }

  async retry<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await work()
      } catch (error) {
        const isOver = !(error instanceof AnswerError && error.mayPass) || attempt >= this.#options.retries
        const { leaving } = this.#options
        if (isOver || signal?.aborted || leaving?.aborted) throw error
        await new Promise((resolve) => setTimeout(resolve, Math.min(5000, 100 * 2 ** attempt)))
      }
    }
  }

  async #askOnce(
    path: string,
    body: object | null,
    signal: AbortSignal | undefined,
    form: OtherForm | null = null,
  ): Promise<{ where: string; status: number; type: string; bytes: Buffer }> {
    const { deadline, apiKey, apiKeyHeader } = this.#options
    const late = AbortSignal.timeout(Math.ceil(1000 * deadline))
    const where = `${this.url}${path}`
    let answer: HttpAnswer
    try {
      answer = await requestHttp(where, {
        ...(body === null ? { method: 'GET' } : { method: 'POST', body: form?.bytes ?? JSON.stringify(body) }),
        headers: {
          ...(body === null ? {} : { 'content-type': form?.bytes === undefined ? 'application/json' : form.type }),
          ...(form?.read === undefined ? {} : { accept: form.type }),
          ...keyHeader(apiKey, apiKeyHeader),
        },
        signal: signal === undefined ? late : AbortSignal.any([signal, late]),
      })
    } catch (error) {
      if (late.aborted) throw new AnswerError(`${where}: no answer in ${deadline} s`, 0, false)
      const { message, code } = error as Error & { code?: string }
      throw new AnswerError(`${where}: ${message || code}`, 0, true)
    }
    const { status, type, body: bytes } = answer
    if (isOk(answer)) return { where, status, type, bytes }
    const text = bytes.toString()
    throw new AnswerError(`${where}: status ${status}, ${wordsOf(objectOf(text), text)}`, status, mayPassLater(status))
  }
}

function keyHeader(key: string, header: string | undefined): Record<string, string> {
  if (key === '') return {}
  return header === undefined ? { authorization: `Bearer ${key}` } : { [header]: key }
}

function objectOf(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null
  } catch {
    return null
  }
}

/** The message of an error in known formats (OpenAI's, FastAPI's, SGLang's), or else its text. */
function wordsOf(json: Record<string, unknown> | null, text: string): string {
  const { error, message, error_message: reason, detail } = json ?? {}
  const words = [(error as { message?: unknown } | null | undefined)?.message, error, message, reason, detail]
  return (words.find((each) => typeof each === 'string') as string | undefined) ?? show(text)
}

/** Cleans up after a failure, and returns its error; adds the message of a second failure. */
export async function bothErrors(error: Error, follow: () => Promise<void>): Promise<Error> {
  try {
    await follow()
    return error
  } catch (second) {
    return new Error(`${error.message}; and then ${(second as Error).message}`, { cause: error })
  }
}
