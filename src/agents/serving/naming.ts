/** Shared by all kinds of request: the model's name, room for tokens, and labels of versions. */
import { type Body, RequestError } from '../../base/http/server.ts'
import type { GeneratedToken } from './batcher.ts'
import { badField, textField } from './fields.ts'

/** Maximum choices of a prompt, and stop strings. */
export const MOST_CHOICES = 128
export const MOST_STOPS = 16

/** Names of the model and of weight versions. */
export interface Naming {
  /** The names that requests may give as `model`. */
  names(): readonly string[]
  /** The label of an engine's version. */
  labelOf(version: number): string
  /** The label of the version that chooses the next token. */
  currentLabel(): string
}

/** Checks the name of a request's model. A missing one is refused, as in OpenAI's API. */
export function checkModel(body: Body, naming: Naming): string {
  const names = naming.names()
  const model = textField(body, 'model', undefined)
  if (model === undefined) throw badField('model', undefined, `one of ${names.join(', ')}`)
  if (names.includes(model)) return model
  const message = `the model ${JSON.stringify(model)} is not served here, expected one of ${names.join(', ')}`
  throw new RequestError(404, message, { param: 'model', code: 'model_not_found' })
}

/** Runs of tokens with the same version. */
export function versionSpans(tokens: readonly GeneratedToken[], naming: Naming) {
  const spans: { version: string; start: number; end: number }[] = []
  tokens.forEach(({ version }, i) => {
    const label = naming.labelOf(version)
    if (spans.at(-1)?.version === label) spans.at(-1)!.end = i + 1
    else spans.push({ version: label, start: i, end: i + 1 })
  })
  return spans
}

/** Checks that prompt and answer fit the context; without a number the answer gets the remaining room. @throws RequestError */
export function checkRoom(
  ids: Int32Array,
  maxTokens: number | null,
  param: string,
  { context }: { readonly context: number },
): number {
  const room = context - ids.length
  const told = { param, code: 'context_length_exceeded' }
  if (room < 1) {
    throw new RequestError(400, `a prompt of ${ids.length} tokens, expected at most ${context - 1}`, told)
  }
  if (maxTokens !== null && maxTokens > room) {
    throw new RequestError(400, `${ids.length} tokens and ${maxTokens} more, expected at most ${context}`, told)
  }
  return maxTokens ?? room
}
