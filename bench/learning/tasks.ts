/** What is to be learnt, by the presets: each with the return that is asked for over fresh episodes, and with which seeds. */
import type { PolicyDefinition } from '../../src/index.ts'
import { mlp } from '../../src/index.ts'
import type { Wanted } from '../measure.ts'

/** An environment and the policy that is to learn it. */
export interface Task {
  readonly environment: string
  /** Settings beside the preset's. */
  readonly settings: Readonly<Record<string, string>>
  readonly wanted: Wanted
  readonly seeds: readonly number[]
  /** Fresh episodes by which it is judged. */
  readonly episodes: number
  /** A policy that cannot learn it, trained the same way, and what it stays within. */
  readonly control?: { readonly policy: PolicyDefinition; readonly wanted: Wanted }
}

/** A policy with a memory. */
export const recurrent = { policy: 'recurrent' }

export const tasks: readonly Task[] = [
  {
    environment: 'CartPole-P-v1',
    settings: recurrent,
    wanted: { atLeast: 475 },
    seeds: [1, 2, 3],
    episodes: 100,
    control: { policy: mlp(), wanted: { atMost: 100 } },
  },
  {
    environment: 'Recall-v0',
    settings: recurrent,
    wanted: { atLeast: 0.95 },
    seeds: [1, 2, 3],
    episodes: 100,
    control: { policy: mlp(), wanted: { atMost: 0.4 } }, // Chance is 0.25, and 0.4 more than three deviations above it.
  },
  {
    environment: 'Breakout-MinAtar',
    settings: { policy: 'convolutional' },
    wanted: { atLeast: 40 * 0.38 }, // Random play returns 0.38.
    seeds: [1, 2, 3],
    episodes: 200,
  },
  {
    environment: 'Breakout-MinAtar',
    settings: { policy: 'mlp' },
    wanted: { atLeast: 30 * 0.38 },
    seeds: [1, 2, 3],
    episodes: 200,
  },
  {
    environment: 'TicTacToe-v0',
    settings: recurrent,
    wanted: { atLeast: 0.92 }, // Wins less losses: at least 0.96 of the games are not lost. The best play returns 0.960.
    seeds: [1, 2, 3],
    episodes: 4000,
  },
]
