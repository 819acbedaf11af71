/** A trainer that was made for a run: the metrics of its lines, and its end if the run cannot begin. */
import type { Cohort } from '../../world/cohort.ts'
import { judgeMetrics } from '../evaluate/judge.ts'
import type { MadeTrainer, RunParts } from './kind.ts'

/** The names of the metrics that a run's lines may have. */
export function metricNames({ definition, trainer }: Pick<MadeTrainer<RunParts, Cohort>, 'definition' | 'trainer'>) {
  return Object.keys({ ...trainer.metrics, ...(definition.settings.evaluateEvery > 0 ? judgeMetrics : {}) })
}

type Opened = { readonly trainer: { close(): void }; readonly close?: () => Promise<void> }

/** Ends what was opened for a trainer if its run cannot begin. */
export async function unlessFails<T>({ trainer, close }: Opened, begin: () => Promise<T>): Promise<T> {
  try {
    return await begin()
  } catch (error) {
    trainer.close()
    await close?.()
    throw error
  }
}
