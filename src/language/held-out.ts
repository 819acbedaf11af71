/**
 * Questions that are held out: a training never asks them, and a model is judged by them afterwards. A question is the prompt of
 * an example, so examples with one prompt are on one side. A keyed hash puts the questions in an order, of which the first are
 * held out: the same ones in every training and evaluation of the same examples.
 */
import { createHash } from 'node:crypto'
import { checkCount, checkOptions, InputError, show, unknownWord } from '../base/errors.ts'
import type { Example } from '../environments/text.ts'

/** For what the examples are used. */
export const heldOutUses = ['training', 'evaluation'] as const

/** Which questions are held out, and on which side a cohort is. */
export interface HeldOut {
  /** Part of the different questions that is held out, above 0 and below 1: at least one question, and never all. */
  readonly fraction: number
  /** Keys which ones: a whole number from 0. */
  readonly seed: number
  /** `training` takes the questions that are not held out, `evaluation` those that are. */
  readonly use: (typeof heldOutUses)[number]
}

/**
 * Checks the option `heldOut` of a cohort.
 * @throws InputError that says which part of it is wrong.
 */
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

/** 48 bits of a hash of what an example asks; where it has no prompt, of what it teaches. */
export function questionHash({ prompt, answer }: Example, seed: number): number {
  const question = JSON.stringify([seed, prompt === '' ? (answer ?? '') : prompt])
  return createHash('sha256').update(question).digest().readUIntBE(0, 6)
}

/**
 * Tells of a question's hash whether it is held out, of all questions that there are.
 * @throws InputError where there are fewer than two.
 */
export function isHeldOut(subject: string, hashes: readonly number[], fraction: number): (hash: number) => boolean {
  const questions = [...new Set(hashes)].sort((a, b) => a - b)
  const { length } = questions
  if (length < 2) throw new InputError(`${subject}, heldOut`, `${length} question`, 'at least 2, to hold one out')
  const count = Math.min(length - 1, Math.max(1, Math.round(fraction * length)))
  const last = questions[count - 1]!
  return (hash) => hash <= last
}
