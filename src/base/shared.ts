/**
 * Memory that threads share. A page that is not cross-origin isolated has none, and one thread: its memory is its own.
 */

/** Whether threads can share memory here. */
export const canShare: boolean = typeof SharedArrayBuffer !== 'undefined'

/** Zeros for all threads; in a runtime without shared memory for the only one. */
export function sharedBytes(bytes: number): SharedArrayBuffer {
  return canShare ? new SharedArrayBuffer(bytes) : (new ArrayBuffer(bytes) as unknown as SharedArrayBuffer)
}

/** Whether other threads can have this memory. */
export function isShared(buffer: ArrayBufferLike): boolean {
  return canShare && buffer instanceof SharedArrayBuffer
}
