/** What all kinds of request have in common: the model's name, room for tokens, and versions as they are told. */
import { type Body, RequestError } from '../../base/http/server.ts'
import type { GeneratedToken } from './batcher.ts'
import { badField, textField } from './fields.ts'

/** Choices of a prompt, and stop strings, at most. */
export const MOST_CHOICES = 128
export const MOST_STOPS = 16

/** What names versions of the weights, and the model that they are of. */
export interface Naming {
  /** The names that requests may have as `model`. */
  names(): readonly string[]
  /** What a version of the engine is called. */
  labelOf(version: number): string
  /** What the version is called that chooses the next token. */
  currentLabel(): string
}

/** Checks the name of a request's model; one that is absent is refused, as OpenAI's API does. */
export function checkModel(body: Body, naming: Naming): string {
  const names = naming.names()
  const model = textField(body, 'model', undefined)
  if (model === undefined) throw badField('model', undefined, `one of ${names.join(', ')}`)
  if (names.includes(model)) return model
  const message = `the model ${JSON.stringify(model)} is not served here, expected one of ${names.join(', ')}`
  throw new RequestError(404, message, { param: 'model', code: 'model_not_found' })
}

/** Runs of one version among tokens. */
export function versionSpans(tokens: readonly GeneratedToken[], naming: Naming) {
  const spans: { version: string; start: number; end: number }[] = []
  tokens.forEach(({ version }, i) => {
    const label = naming.labelOf(version)
    if (spans.at(-1)?.version === label) spans.at(-1)!.end = i + 1
    else spans.push({ version: label, start: i, end: i + 1 })
  })
  return spans
}

/**
 * Checks that a prompt and so many tokens have room; without a number they are all that have room.
 * @throws RequestError 400.
 */
export function checkRoom(
  ids: Int32Array,
  maxTokens: number | null,
  param: string,
  { context }: { readonly context: number },
): number {
  const room = context - ids.length
  const told = { param, code: 'context_length_exceeded' }
  if (room < 1) {
    throw new RequestError(400, `a prompt of ${ids.length} tokens, of at most ${context - 1} that leave room`, told)
  }
  if (maxTokens !== null && maxTokens > room) {
    throw new RequestError(400, `${ids.length} tokens and ${maxTokens} more, of at most ${context}`, told)
  }
  return maxTokens ?? room
}
