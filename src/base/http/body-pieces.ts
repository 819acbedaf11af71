/** A request's body in pieces, for routes that do not keep it in memory. */
import type { IncomingMessage } from 'node:http'
import { givePiece, PIECE_BYTES, takePiece } from '../pieces.ts'

/**
 * The body in pieces. While one is used, the next one fills; then the connection waits. A piece is valid until the next one is requested.
 * `tooLong`: the error for a body of more than `maxBytes`. @throws Error if the client disconnects before the end.
 */
export async function* bodyPieces(
  request: IncomingMessage,
  maxBytes: number,
  tooLong: () => Error,
): AsyncGenerator<Uint8Array, void, undefined> {
  const memory = [takePiece(), takePiece()] as [Uint8Array, Uint8Array]
  /** What did not fit. */
  const later: Buffer[] = []
  let [filled, length, isEnded] = [0, 0, false]
  const gone = () => new Error('the client disconnected before the end of the body')
  let failure: Error | null = request.destroyed ? gone() : null // No event follows then.
  let wake = (): void => {}

  const fill = (chunk: Buffer): void => {
    const count = Math.min(PIECE_BYTES - filled, chunk.length)
    memory[0].set(count === chunk.length ? chunk : chunk.subarray(0, count), filled)
    filled += count
    if (count < chunk.length) later.unshift(chunk.subarray(count))
  }
  const onData = (chunk: Buffer): void => {
    length += chunk.length
    if (length > maxBytes) failure ??= tooLong()
    if (filled < PIECE_BYTES) fill(chunk)
    else later.push(chunk)
    if (filled < PIECE_BYTES && failure === null) return
    request.pause()
    wake()
  }
  const onEnd = (): void => {
    isEnded = true
    wake()
  }
  const onClose = (): void => {
    if (!isEnded) failure ??= gone()
    wake()
  }
  request.on('data', onData).on('end', onEnd).on('error', onClose).on('close', onClose)
  try {
    for (;;) {
      if (failure !== null) throw failure
      const isWhole = isEnded && later.length === 0
      if (filled < PIECE_BYTES && !isWhole) {
        await new Promise<void>((resolve) => {
          wake = resolve
        })
        continue
      }
      if (filled === 0) return
      const piece = memory[0].subarray(0, filled)
      memory.reverse()
      filled = 0
      while (later.length > 0 && filled < PIECE_BYTES) fill(later.shift()!)
      if (filled < PIECE_BYTES) request.resume()
      yield piece
    }
  } finally {
    request.off('data', onData).off('end', onEnd).off('close', onClose)
    request.pause()
    memory.forEach(givePiece)
  }
}
