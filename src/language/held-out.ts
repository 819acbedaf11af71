/**
 * Held-out questions: training never uses them; evaluation uses only them. A question is an example's prompt, so
 * examples with one prompt are on the same side. A keyed hash orders the questions, and the first are held out, so all
 * trainings and evaluations of the same examples agree.
 */

import { checkCount, checkOptions, InputError, show, unknownWord } from '../base/errors.ts'
import { sha256 } from '../base/files/digest.ts'
import type { Example } from '../environments/text.ts'

export const heldOutUses = ['training', 'evaluation'] as const

/** Which questions are held out, and which side a cohort uses. */
export interface HeldOut {
  /** Fraction of the different questions that is held out, above 0 and below 1: at least one, never all. */
  readonly fraction: number
  /** Keys the choice: a whole number ≥ 0. */
  readonly seed: number
  /** `training` uses the questions that are not held out, `evaluation` those that are. */
  readonly use: (typeof heldOutUses)[number]
}

/** Checks the option `heldOut` of a cohort. @throws InputError that names the wrong part. */
export function checkHeldOut(heldOut: HeldOut): void {
  if (typeof heldOut !== 'object' || heldOut === null) {
    throw new InputError('heldOut', show(heldOut), "an object, like { fraction: 0.2, seed: 0, use: 'training' }")
  }
  checkOptions('heldOut', heldOut, ['fraction', 'seed', 'use'])
  const { fraction, seed, use } = heldOut
  if (!(fraction > 0 && fraction < 1)) throw new InputError('heldOut.fraction', show(fraction), 'above 0 and below 1')
  checkCount('heldOut.seed', seed, 0)
  if (!heldOutUses.includes(use)) throw unknownWord('heldOut.use', use, heldOutUses)
}

/** 48 bits of a hash of an example's prompt, or of its answer if the prompt is empty. */
export function questionHash({ prompt, answer }: Example, seed: number): number {
  const question = JSON.stringify([seed, prompt === '' ? (answer ?? '') : prompt])
  return Number.parseInt(sha256().update(question).hex().slice(0, 12), 16)
}

/** Returns whether each question's hash is held out. @throws InputError for fewer than two different questions. */
export function isHeldOut(subject: string, hashes: readonly number[], fraction: number): (hash: number) => boolean {
  const questions = [...new Set(hashes)].sort((a, b) => a - b)
  const { length } = questions
  if (length < 2) throw new InputError(`${subject}, heldOut`, `${length} question`, 'at least 2, to hold one out')
  const count = Math.min(length - 1, Math.max(1, Math.round(fraction * length)))
  const last = questions[count - 1]!
  return (hash) => hash <= last
}
