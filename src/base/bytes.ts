/** Joins bytes, and converts them to text. */

export function joined(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(pieces.reduce((sum, { byteLength }) => sum + byteLength, 0))
  let at = 0
  for (const piece of pieces) {
    whole.set(piece, at)
    at += piece.byteLength
  }
  return whole
}

/** Maximum number of characters that one call takes as its arguments. */
const LETTERS = 4096

export function base64Of(bytes: Uint8Array): string {
  let text = ''
  for (let at = 0; at < bytes.length; at += LETTERS) text += String.fromCharCode(...bytes.subarray(at, at + LETTERS))
  return btoa(text)
}
