/** The processes that this one started, by Linux's /proc. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'

/** Numbers of the processes that this one started, and that they did, called so; none where there is no /proc. */
export function startedHere(called: (command: string) => boolean): number[] {
  const all = new Map<number, { parent: number; command: string }>()
  for (const id of existsSync('/proc/self/stat') ? readdirSync('/proc').map(Number).filter(Boolean) : []) {
    try {
      const command = readFileSync(`/proc/${id}/cmdline`, 'utf8')
      all.set(id, { parent: Number(fieldsOf(id)[1]), command })
    } catch {} // It has ended.
  }
  const isOurs = (id: number): boolean => id === process.pid || (all.has(id) && isOurs(all.get(id)!.parent))
  return [...all].flatMap(([id, { command }]) => (id !== process.pid && isOurs(id) && called(command) ? [id] : []))
}

/** Seconds for which a process was on a processor, all its threads together. */
export function processorSeconds(id: number): number {
  const [user, system] = fieldsOf(id).slice(11, 13).map(Number)
  return (user! + system!) / 100
}

/** What follows the name in /proc/id/stat: its state, its parent and so on. */
function fieldsOf(id: number): string[] {
  const text = readFileSync(`/proc/${id}/stat`, 'utf8')
  return text.slice(text.lastIndexOf(')') + 2).split(' ')
}
