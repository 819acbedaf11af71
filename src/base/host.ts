/** The parts of the process that a program uses. A page has another body (`host.page.ts`). */

/** The runtime and its version, as checkpoints record it. */
export const runtime: string = process.version
/** Identifies this process among others that write in the same folder. */
export const processNumber: number = process.pid

/** Writes a message for people; in a process, to standard error. */
export function tell(message: string): void {
  process.stderr.write(`colonnade: ${message}\n`)
}

/** Emits a warning of the process; users can filter it by its code. */
export function warn(message: string, told?: { readonly code: string; readonly detail: string }): void {
  if (told === undefined) process.emitWarning(message)
  else process.emitWarning(message, told)
}

/** Whether two ranges of memory of one length hold the same bytes. */
export function haveSameBytes(a: ArrayBufferView, b: ArrayBufferView): boolean {
  const [ours, theirs] = [a, b].map((each) => Buffer.from(each.buffer, each.byteOffset, each.byteLength))
  return ours!.equals(theirs!)
}

/** Lets any number of listeners wait for a signal without a warning. */
export function allowListeners(signal: AbortSignal): void {
  process.getBuiltinModule('node:events').setMaxListeners(0, signal)
}

/** Bytes of the heap in use, of typed arrays, and of the whole process. */
export function memoryInUse(): { readonly heap: number; readonly arrayBuffers: number; readonly resident: number } {
  const { heapUsed, arrayBuffers, rss } = process.memoryUsage()
  return { heap: heapUsed, arrayBuffers, resident: rss }
}
