/** The settings of both kinds of run. */
import { boolean, choice, integer, type Settings, strings } from '../../base/settings.ts'
import { judgeSettings } from '../evaluate/judge.ts'
import { watchSettings } from '../watch/watch-settings.ts'

export const sharedRunSettings = {
  seed: integer(1, 'seed of all random numbers', { min: 0 }),
  checkpointEvery: integer(50, 'updates between checkpoints; one is always written at the end', { min: 1 }),
  checkpointsKept: integer(3, 'number of checkpoints to keep', { min: 1 }),
  kernels: choice(
    'best',
    ['best', 'native', 'relaxed', 'simd', 'plain'],
    'kernel build; best: the fastest that runs here; native: compiled from C, if built, with the same bits as relaxed',
  ),
  profile: boolean(
    false,
    "write trace.json for Chrome's tracing view and Perfetto: the threads' work over time, and memory",
  ),
  loggers: strings(
    [],
    'loggers: tensorboard, csv, jsonl, prometheus, trackio:URL, mlflow:URL, or the path of a module that exports one',
  ),
  ...judgeSettings,
  ...watchSettings,
} satisfies Settings

/** Settings that may change on resuming, since the run so far does not depend on them (only bits on `kernels`). */
export const SHARED_RESUMED = [
  'checkpointEvery',
  'checkpointsKept',
  'kernels',
  'threads',
  'profile',
  'loggers',
  'evaluateEvery',
  'evaluateEpisodes',
  'stopAt',
  'stop',
  'patience',
  'stallSeconds',
  'onStall',
] as const
