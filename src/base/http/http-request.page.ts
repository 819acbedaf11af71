/** The body of `http-request.ts` in a page, which sends no requests. */
import { InputError } from '../errors.ts'
import type * as node from './http-request.ts'

export class LongAnswerError extends Error {}

export const isOk: typeof node.isOk = ({ status }) => status >= 200 && status < 300

export const requestHttp: typeof node.requestHttp = async (url) => {
  throw new InputError(url, 'a page', 'Node: a page cannot send this request')
}
