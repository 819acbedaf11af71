import { InputError, show } from '../errors.ts'

/** A request that cannot be answered, as OpenAI's API words it. */
export class RequestError extends Error {
  readonly status: number
  /** OpenAI's kind of error, like `invalid_request_error`. */
  readonly type: string
  /** The field of the body that is wrong, if it is one. */
  readonly param: string | null
  /** A word for programs, like `model_not_found`. */
  readonly code: string | null
  /** Seconds after which the same request may do; null where it never will. */
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

/** Any error as the answer to a request. The terminal tells those that are the server's own. */
export function asRequestError(error: unknown): RequestError {
  if (error instanceof RequestError) return error
  if (error instanceof InputError) return new RequestError(400, error.message)
  console.error(`colonnade: ${(error instanceof Error && error.stack) || show(error)}`)
  return new RequestError(500, 'an error of the server, which its terminal tells')
}
