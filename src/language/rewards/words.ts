/** The words of a text, for rewards and verifiers. */

/** The words of a text, in lower case without surrounding punctuation. */
export function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+(?:['’.,-][\p{L}\p{N}]+)*/gu) ?? []
}

/** Whether the phrase occurs as whole words, in any case. */
export function containsPhrase(text: string, phrase: string): boolean {
  const escaped = phrase.trim().replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')
  return new RegExp(`(?<![\\p{L}\\p{N}_])${escaped}(?![\\p{L}\\p{N}_])`, 'iu').test(text)
}

/** A text for comparison: lower case, single spaces, no punctuation at its ends. */
export function normalizedText(text: string): string {
  return text
    .toLowerCase()
    .replace(/\s+/g, ' ')
    .replace(/^[\s.,;:!?"'`*]+|[\s.,;:!?"'`*]+$/g, '')
}
