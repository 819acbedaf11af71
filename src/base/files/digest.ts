/** SHA-256. A page has another body (`digest.page.ts`): its own digests come as promises. */
import { createHash } from 'node:crypto'

/** A digest of what it is given piece by piece. */
export interface Digest {
  /** Adds bytes, or a text in UTF-8. */
  update(piece: Uint8Array | string): Digest
  /** In hexadecimal; ends the digest. */
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
