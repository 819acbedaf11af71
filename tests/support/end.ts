/**
 * What a test file opens is closed at its end. Support modules cannot call `afterAll` themselves: files share a process and its
 * modules, so a hook of a module would belong to the first file that imports it.
 */
const open: (() => unknown)[] = []

/** Calls this at the end of the test file; of several the last one first. */
export function atEnd(close: () => unknown): void {
  open.push(close)
}

/** Closes all, also if one of them fails, and then throws the first error. For tests/support/process.ts. */
export async function closeAll(): Promise<void> {
  const errors: unknown[] = []
  while (open.length > 0)
    await Promise.resolve()
      .then(open.pop())
      .catch((error) => errors.push(error))
  if (errors.length > 0) throw errors[0]
}
