/** SHA-256. A page has another body (`digest.page.ts`), because the browser's own digests are asynchronous. */
import { createHash } from 'node:crypto'

/** A digest of data that arrives piece by piece. */
export interface Digest {
  /** Adds bytes, or a text in UTF-8. */
  update(piece: Uint8Array | string): Digest
  /** Ends the digest and returns it in hexadecimal. */
  hex(): string
}

export function sha256(): Digest {
  const hash = createHash('sha256')
  const digest: Digest = {
    update(piece) {
      hash.update(piece)
      return digest
    },
    hex: () => hash.digest('hex'),
  }
  return digest
}
