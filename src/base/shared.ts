/** Memory that threads share. A page without cross-origin isolation cannot share memory, and has one thread. */

/** Whether threads can share memory here. */
export const canShare: boolean = typeof SharedArrayBuffer !== 'undefined'

/** Zeros that all threads share; in a runtime without shared memory, zeros for the only thread. */
export function sharedBytes(bytes: number): SharedArrayBuffer {
  return canShare ? new SharedArrayBuffer(bytes) : (new ArrayBuffer(bytes) as unknown as SharedArrayBuffer)
}

/** Whether other threads can use this memory. */
export function isShared(buffer: ArrayBufferLike): boolean {
  return canShare && buffer instanceof SharedArrayBuffer
}
