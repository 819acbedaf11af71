/** Whether a word is a key with its value. A path that begins with `.` or `/` is none, whatever else it has. */
export function isPair(word: string): boolean {
  return /^[^=./\\][^=]*=/.test(word)
}
