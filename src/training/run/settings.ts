/** The settings that runs of both kinds have. */
import { boolean, choice, integer, type Settings, strings } from '../../base/settings.ts'
import { judgeSettings } from '../evaluate/judge.ts'
import { watchSettings } from '../watch/watchdog.ts'

/** The settings of runs of both kinds, beside their environment, policy and algorithms. */
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

/**
 * What a run of either kind may be given anew when it is resumed: what it did so far does not depend on it. What it does from
 * there on depends on the kernels alone, which is told.
 */
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
  'patience',
  'stallSeconds',
  'onStall',
] as const
