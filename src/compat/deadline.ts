import { InputError } from '../base/errors.ts'
import type { Time } from '../fleet/time.ts'

/** The answer of `call`, whose signal aborts after the deadline. @throws InputError if it is late */
export async function answerInTime<T>(
  subject: string,
  call: (signal: AbortSignal) => T | Promise<T>,
  seconds: number,
  time: Time,
): Promise<T> {
  const over = new AbortController()
  const answer = (async () => call(over.signal))()
  const late = time.sleep(seconds, over.signal).then(() => {
    throw new InputError(subject, `no answer in ${seconds} s`, 'an answer, or a longer time limit')
  })
  late.catch(() => {}) // A late failure has no receiver.
  answer.catch(() => {})
  try {
    return await Promise.race([answer, late])
  } finally {
    over.abort()
  }
}
