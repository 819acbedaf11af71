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

/** Whether this thread can sleep until another wakes it: the thread of a page's window cannot. */
export const canSleep: boolean = canShare && sleeps()

function sleeps(): boolean {
  try {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 1) // The word is 0, so it returns at once.
    return true
  } catch {
    return false
  }
}
