import { InputError, show } from '../errors.ts'

/** A request that cannot be answered, in the format of OpenAI's API. */
export class RequestError extends Error {
  readonly status: number
  /** OpenAI's kind of error, like `invalid_request_error`. */
  readonly type: string
  /** The wrong field of the body, if there is one. */
  readonly param: string | null
  /** A word for programs, like `model_not_found`. */
  readonly code: string | null
  /** Seconds after which the same request may succeed; null for never. */
  readonly retryAfter: number | null

  constructor(
    status: number,
    message: string,
    {
      param = null,
      code = null,
      retryAfter = null,
    }: { param?: string | null; code?: string | null; retryAfter?: number | null } = {},
  ) {
    super(message)
    this.status = status
    this.type = status >= 500 ? 'server_error' : status === 429 ? 'rate_limit_error' : 'invalid_request_error'
    this.param = param
    this.code = code
    this.retryAfter = retryAfter
  }
}

/** Converts any error to a response. The server's own errors are logged to the terminal. */
export function asRequestError(error: unknown): RequestError {
  if (error instanceof RequestError) return error
  if (error instanceof InputError) return new RequestError(400, error.message)
  console.error(`colonnade: ${(error instanceof Error && error.stack) || show(error)}`)
  return new RequestError(500, 'an error of the server; see its terminal')
}
