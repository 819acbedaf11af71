import { join } from 'node:path'
import { type Ended, start } from './command.ts'
import { temporaryFolder } from './temporary.ts'

/**
 * Runs a shell script in a mount namespace of its own, in which it may mount what it likes (as root, or where users have
 * namespaces), and whose mounts go with it. Its arguments are `$1`, `$2`, …
 */
export function inOwnMounts(script: string, words: readonly string[], cwd?: string): Promise<Ended> {
  return start('unshare', ['--map-root-user', '--mount', 'sh', '-c', script, 'sh', ...words], { cwd }).ended
}

/** Null if scripts can mount here, else why not. */
export async function whyNoMounts(): Promise<string | null> {
  const folder = await temporaryFolder()
  const probe = 'mount -t tmpfs -o size=64k tmpfs "$1" && touch "$1/inside"'
  const ended = await inOwnMounts(probe, [join(folder)]).catch((cause: Error) => ({ code: 1, stderr: cause.message }))
  return ended.code === 0 ? null : `no mounts here (${ended.stderr.trim()})`
}
