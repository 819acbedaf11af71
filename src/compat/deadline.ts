/** Waits for what somebody else's function answers, for so long and no longer. */
import { InputError } from '../base/errors.ts'
import type { Time } from '../fleet/time.ts'

/**
 * What `call` answers. It is told by a signal when nobody waits any longer.
 * @throws InputError where it has not answered after so many seconds; what it throws.
 */
export async function answerInTime<T>(
  subject: string,
  call: (signal: AbortSignal) => T | Promise<T>,
  seconds: number,
  time: Time,
): Promise<T> {
  const over = new AbortController()
  const answer = (async () => call(over.signal))()
  const late = time.sleep(seconds, over.signal).then(() => {
    throw new InputError(subject, `no answer in ${seconds} s`, 'one, or a longer time limit')
  })
  late.catch(() => {}) // What comes after the first is nobody's.
  answer.catch(() => {})
  try {
    return await Promise.race([answer, late])
  } finally {
    over.abort()
  }
}
