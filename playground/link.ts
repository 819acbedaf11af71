/** The state of the page in the part of its address after #, from which a link restores it. */
import type { Tuning } from './messages.ts'

export interface Shared {
  readonly environment: string
  readonly seed: number
  readonly tuning: Tuning | null
  readonly code: string | null
}

export function write({ environment, seed, tuning, code }: Shared): string {
  const words = new URLSearchParams({ environment, seed: String(seed) })
  if (tuning !== null) {
    words.set('learningRate', String(tuning.learningRate))
    words.set('entropyCoef', String(tuning.entropyCoef))
  }
  if (code !== null) words.set('code', code)
  return `#${words}`
}

/** What an address says; numbers that are none, or out of range, are left out. */
export function read(hash: string): Partial<Shared> {
  const words = new URLSearchParams(hash.slice(1))
  const number = (name: string, low: number, high: number) => {
    const value = Number(words.get(name) ?? Number.NaN)
    return value >= low && value <= high ? value : undefined
  }
  const environment = words.get('environment')
  const [seed, learningRate, entropyCoef] = [
    number('seed', 0, 999_999),
    number('learningRate', 1e-5, 0.1),
    number('entropyCoef', 0, 0.2),
  ]
  return {
    ...(environment === null ? {} : { environment }),
    ...(seed === undefined ? {} : { seed: Math.floor(seed) }),
    ...(learningRate === undefined || entropyCoef === undefined ? {} : { tuning: { learningRate, entropyCoef } }),
    code: words.get('code'),
  }
}
