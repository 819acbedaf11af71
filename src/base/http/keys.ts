/** Keys of requests: OpenAI's bearer token or Anthropic's header. */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { InputError } from '../errors.ts'
import { RequestError, type RequestHead, type Route } from './server.ts'

export function hashOf(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

/** A secret, stored as its hash and compared in constant time. */
export class Secret {
  readonly #hash: Buffer

  constructor(secret: string) {
    this.#hash = hashOf(secret)
  }

  is(said: string): boolean {
    return timingSafeEqual(this.#hash, hashOf(said))
  }
}

/** A user's secret. @throws InputError for a short one. */
export function checkedSecret(name: string, secret: string): Secret {
  if (typeof secret === 'string' && secret.length >= 16) return new Secret(secret)
  throw new InputError(name, `${String(secret).length} characters`, 'at least 16')
}

/** The key of a request; '' without one. */
export function secretOf(headers: IncomingHttpHeaders): string {
  const { authorization = '' } = headers
  const key = headers['x-api-key']
  return typeof key === 'string' ? key : authorization.replace(/^Bearer /i, '')
}

/** Admits requests with one of these keys; `expected` names the key in the refusal. */
export function keyCheck(secrets: readonly Secret[], expected: string): (head: RequestHead) => void {
  return ({ headers }) => {
    const said = secretOf(headers)
    if (!secrets.some((secret) => secret.is(said))) throw unknownKey(expected)
  }
}

export function unknownKey(message: string): RequestError {
  return new RequestError(401, message, { code: 'invalid_api_key' })
}

/** The same routes, for requests that `admit` accepts. */
export function admitting(
  routes: Iterable<readonly [string, Route]>,
  admit: (head: RequestHead) => unknown,
): [string, Route][] {
  return [...routes].map(([key, route]) => {
    const { errorBody, reads } = route
    return [key, Object.assign(((request) => route(request)) as Route, { errorBody, reads, admit })]
  })
}
