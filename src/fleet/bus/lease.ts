/** A lease: one process at a time holds a key among values that expire. */
import { setTimeout as sleep } from 'node:timers/promises'
import { InputError } from '../../base/errors.ts'
import type { Values } from './bus.ts'

export interface Lease {
  /** Gives the lease up, so that another process may take it at once. */
  end(): Promise<void>
}

export interface LeaseOptions {
  /** Values that expire after `seconds`. */
  readonly values: Values
  readonly key: string
  /** The holder's name, for the errors of others. */
  readonly owner: string
  readonly seconds: number
  /** Called once if another process has taken the lease because this one did not renew it in time. */
  onLost(error: Error): void
}

/**
 * Takes a lease and renews it until its end. If the holder was killed, waits until its lease expires.
 * @throws InputError if another process holds and renews it.
 */
export async function holdLease({ values, key, owner, seconds, onLost }: LeaseOptions): Promise<Lease> {
  const own = { owner }
  let revision = await values.exchange(key, own, null)
  const former = revision === null ? await values.get(key) : null
  const end = performance.now() + 1000 * (seconds + 2)
  while (revision === null) {
    await sleep(200)
    const holder = await values.get(key)
    if (holder === null) revision = await values.exchange(key, own, null)
    else if (holder.revision !== former?.revision || performance.now() > end) throw taken(key, holder.value.owner)
  }
  let held: number = revision
  let isOver = false
  const renew = async () => {
    const renewed = (await values.exchange(key, own, held)) ?? (await values.exchange(key, own, null))
    if (renewed !== null) held = renewed
    else if (!isOver) {
      clearInterval(timer)
      onLost(taken(key, (await values.get(key))?.value.owner))
    }
  }
  let renewing = Promise.resolve()
  const timer = setInterval(
    () => {
      renewing = renewing.then(renew).catch(onLost)
    },
    (1000 * seconds) / 3,
  )
  timer.unref()
  return {
    async end() {
      isOver = true
      clearInterval(timer)
      await renewing
      if ((await values.get(key))?.revision === held) await values.remove(key)
    },
  }
}

function taken(key: string, owner: unknown): InputError {
  return new InputError(key, `a name that ${String(owner)} already holds`, 'another name, or the end of that process')
}
