/**
 * `npm run bench -- asynchrony`: what it brings, and what it costs, to sample while weights change.
 *
 * - Answers of log-normal lengths by an engine that generates by itself at a fixed rate each: trained tokens a second by
 *   maxStaleness, beside what `simulate` says from the same figures.
 * - The same with the local engine, which shares the thread and the weights with the learner.
 * - What a model has learned after so many updates, by maxStaleness, with log-probabilities of who sampled (naive) or of the weights
 *   before the update (decoupled); docs/staleness.svg.
 *
 * `PARTS` (lengths,local,sweep), `STALENESS`, `SEEDS` and `UPDATES` in the environment name fewer.
 */
import type { Figure } from '../measure.ts'
import { reportRoom } from '../report.ts'
import { benchLengths } from './lengths.ts'
import { benchLocal } from './local.ts'
import { benchSweep } from './sweep.ts'

const parts = (process.env.PARTS ?? 'lengths,local,sweep').split(',')
const figures: Figure[] = []
if (parts.includes('lengths')) figures.push(...(await benchLengths()))
if (parts.includes('local')) figures.push(...(await benchLocal()))
if (parts.includes('sweep')) figures.push(...(await benchSweep()))
reportRoom('asynchrony', figures)
