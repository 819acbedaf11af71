/** Memory for long bytes that pass through a process piece by piece, such as between a file and a connection. */

/** Bytes of a piece. */
export const PIECE_BYTES = 2 ** 19
/** Pieces that are kept for later: to take memory anew for each costs more than to copy its bytes. */
const SPARE_MAX = 8

const spare: Uint8Array[] = []

/** Memory of `PIECE_BYTES`, with any content. */
export function takePiece(): Uint8Array {
  return spare.pop() ?? new Uint8Array(PIECE_BYTES)
}

/** Gives memory back that nobody reads or writes any more. */
export function givePiece(piece: Uint8Array): void {
  if (spare.length < SPARE_MAX) spare.push(piece)
}
