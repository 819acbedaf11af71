/** The settings that runs of both kinds have. */
import { boolean, choice, integer, type Settings, strings } from '../../base/settings.ts'
import { judgeSettings } from '../evaluate/judge.ts'
import { watchSettings } from '../watch/watchdog.ts'

/** What runs of both kinds are told, beside their environment, policy and algorithms. */
export const sharedRunSettings = {
  seed: integer(1, 'keys every random number', { min: 0 }),
  checkpointEvery: integer(50, 'updates between checkpoints; one is always written at the end', { min: 1 }),
  checkpointsKept: integer(3, 'how many checkpoints stay', { min: 1 }),
  kernels: choice(
    'best',
    ['best', 'native', 'relaxed', 'simd', 'plain'],
    'which kernel bodies; best: the fastest that can be run here; native: in C, where they are built, with the bits of relaxed',
  ),
  profile: boolean(
    false,
    "write trace.json, for Chrome's tracing view and Perfetto: what threads do when, and the memory",
  ),
  loggers: strings(
    [],
    'who else is told of each update: tensorboard, csv, jsonl, prometheus, trackio:URL, mlflow:URL, or the path of a module that exports one',
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
