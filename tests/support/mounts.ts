import { join } from 'node:path'
import { type Ended, start } from './command.ts'
import { temporaryFolder } from './temporary.ts'

/**
 * Runs a shell script in its own mount namespace (as root, or with user namespaces), whose mounts end with it. Its
 * arguments are `$1`, `$2`, …
 */
export function inOwnMounts(script: string, words: readonly string[], cwd?: string): Promise<Ended> {
  return start('unshare', ['--map-root-user', '--mount', 'sh', '-c', script, 'sh', ...words], { cwd }).ended
}

/** Null if scripts can mount here, otherwise why not. */
export async function whyNoMounts(): Promise<string | null> {
  const folder = await temporaryFolder()
  const probe = 'mount -t tmpfs -o size=64k tmpfs "$1" && touch "$1/inside"'
  const ended = await inOwnMounts(probe, [join(folder)]).catch((cause: Error) => ({ code: 1, stderr: cause.message }))
  return ended.code === 0 ? null : `no mounts here (${ended.stderr.trim()})`
}
