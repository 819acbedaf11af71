/** Errors that no call of Colonnade's hears of: thrown in a timer of a user's module, or in a promise that nobody awaits. */
import { relative } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Where our own code lies. */
const OURS = fileURLToPath(new URL('..', import.meta.url))

/** Ends the process at such an error, with one line that says where it comes from. Call it once. */
export function tellStrayErrors(): void {
  process.on('uncaughtException', (error: unknown, origin) => {
    console.error(`colonnade: ${describeStray(error, origin)}`)
    process.exit(1)
  })
}

/** The error in one line, with the line of the user's that it comes from; the whole stack where it comes from none. */
export function describeStray(error: unknown, origin: NodeJS.UncaughtExceptionOrigin): string {
  const { stack = '' } = error instanceof Error ? error : {}
  const place = placeOf(stack)
  if (place === null && stack !== '') return stack
  const what = error instanceof Error ? `${error.name}: ${error.message.split('\n')[0]}` : String(error)
  const how =
    origin === 'unhandledRejection'
      ? 'a promise that nobody awaits was rejected'
      : 'an error that nobody catches was thrown'
  return `${how}${place === null ? '' : ` at ${place}`}: ${what}`
}

/** The first line of a stack that is neither ours nor Node's. */
function placeOf(stack: string): string | null {
  for (const line of stack.split('\n').slice(1)) {
    const [, where, at] = /\(?((?:file:\/\/)?\/[^()]*?)(:\d+:\d+)\)?$/.exec(line.trim()) ?? []
    if (where === undefined) continue
    const path = where.startsWith('file:') ? fileURLToPath(where) : where
    if (!path.startsWith(OURS)) return relative(process.cwd(), path) + at
  }
  return null
}
