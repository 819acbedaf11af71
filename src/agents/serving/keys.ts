/** Keys that requests show: as a bearer token, as OpenAI's clients send it, or in Anthropic's header. */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { InputError } from '../../base/errors.ts'
import { RequestError, type RequestHead, type Route } from '../../base/http/server.ts'

/** SHA-256 of a secret. */
export function hashOf(secret: string): Buffer {
  return createHash('sha256').update(secret).digest()
}

/** Whether a secret is the one of this hash, in a time that does not depend on how much of it is. */
export class Secret {
  readonly #hash: Buffer

  constructor(secret: string) {
    this.#hash = hashOf(secret)
  }

  is(said: string): boolean {
    return timingSafeEqual(this.#hash, hashOf(said))
  }
}

/** A secret that somebody chose. @throws InputError for one that is short. */
export function checkedSecret(name: string, secret: string): Secret {
  if (typeof secret === 'string' && secret.length >= 16) return new Secret(secret)
  throw new InputError(name, `${String(secret).length} characters`, 'at least 16')
}

/** The key of a request; empty where it has none. */
export function secretOf(headers: IncomingHttpHeaders): string {
  const { authorization = '' } = headers
  const key = headers['x-api-key']
  return typeof key === 'string' ? key : authorization.replace(/^Bearer /i, '')
}

/** Lets in who shows one of these keys; `expected` names it in the refusal. */
export function keyCheck(secrets: readonly Secret[], expected: string): (head: RequestHead) => void {
  return ({ headers }) => {
    const said = secretOf(headers)
    if (!secrets.some((secret) => secret.is(said))) throw unknownKey(expected)
  }
}

/** What answers who shows no key that is known. */
export function unknownKey(message: string): RequestError {
  return new RequestError(401, message, { code: 'invalid_api_key' })
}

/** The same routes for those whom `admit` lets in. */
export function admitting(
  routes: Iterable<readonly [string, Route]>,
  admit: (head: RequestHead) => unknown,
): [string, Route][] {
  return [...routes].map(([key, route]) => [
    key,
    Object.assign(((request) => route(request)) as Route, { errorBody: route.errorBody, admit }),
  ])
}
