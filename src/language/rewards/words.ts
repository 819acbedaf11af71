/** What rewards and verifiers see of a text: its words, and whether a phrase stands in it. */

/** The words of a text, in lower case and without the punctuation around them. */
export function wordsOf(text: string): string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+(?:['’.,-][\p{L}\p{N}]+)*/gu) ?? []
}

/** Whether the phrase stands in the text as whole words, in capitals or not. */
export function containsPhrase(text: string, phrase: string): boolean {
  const escaped = phrase.trim().replace(/[.*+?^${}()|[\]\\/]/g, '\\$&')
  return new RegExp(`(?<![\\p{L}\\p{N}_])${escaped}(?![\\p{L}\\p{N}_])`, 'iu').test(text)
}

/** A text for comparison: lower case, one space between words, no punctuation at its ends. */
export function normalizedText(text: string): string {
  return text
    .toLowerCase()
    .replace(/\s+/g, ' ')
    .replace(/^[\s.,;:!?"'`*]+|[\s.,;:!?"'`*]+$/g, '')
}
