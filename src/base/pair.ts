/** Whether a word is `key=value`. A path that begins with `.` or `/` is never a pair. */
export function isPair(word: string): boolean {
  return /^[^=./\\][^=]*=/.test(word)
}
