/** Games of Python's PettingZoo. */
import { checkOptions, InputError, show, unknownWord } from '../../base/errors.ts'
import type { EnvironmentFactory } from '../environment.ts'
import { scriptOf } from './python-process.ts'
import { defineServed, type ServedOptions, servedOptions } from './served.ts'

const APIS = ['parallel', 'aec'] as const

/**
 * Options of `fromPettingZoo`. `id` is the Python module of the game: `mpe2.simple_spread_v3`. `maxEpisodeSteps`: by default the game's
 * `max_cycles`, in turns times its players.
 */
export interface FromPettingZooOptions<I extends string = string> extends ServedOptions<I> {
  /**
   * How it is played: `parallel` (all players act at once, `parallel_env` of its module) or `aec` (one after another, `env`). Default:
   * `parallel` if the module has it.
   */
  readonly api?: (typeof APIS)[number]
  /** Whether critics also see the game's `state()`, which actors do not (Yu et al. 2022). Default false. */
  readonly state?: boolean
}

const script = scriptOf('colonnade_pettingzoo.py', 'numpy, gymnasium and pettingzoo')

/**
 * A game of PettingZoo, stepped by Python: lane i of a game is the i-th of `possible_agents`. All agents need the same spaces.
 * Observations that are not a box are flattened as in Gymnasium, without `action_mask`, which is the mask. In turns, a tick is one
 * action, and the players that wait have masks of one choice, without effect. An agent that is done before the others, or not there, sees
 * zeros, has one choice and gets no rewards until the game is over for all; if it was truncated, it thus counts like one that terminated.
 * @throws InputError if Python cannot run or lacks the game, if the spaces of its agents differ (on creation), and for wrong options.
 * Faults are reported as those of `fromGymnasium`.
 * @example
 * export const spread = fromPettingZoo({ id: 'mpe2.simple_spread_v3', module: import.meta.url, python: '.venv/bin/python' })
 */
export function fromPettingZoo<const I extends string>(
  options: FromPettingZooOptions<I>,
): EnvironmentFactory<Record<never, never>, I> {
  checkOptions('fromPettingZoo', options, [...servedOptions, 'api', 'state'])
  const { id, kwargs = {}, api, state = false } = options
  if (typeof id !== 'string' || id === '')
    throw new InputError('fromPettingZoo id', show(id), 'the name of a Python module, like mpe2.simple_spread_v3')
  if (api !== undefined && !APIS.includes(api)) throw unknownWord(`${id} api`, String(api), APIS)
  if (typeof state !== 'boolean') throw new InputError(`${id} state`, show(state), 'true or false')
  return defineServed(options, script, { id, kwargs, ...(api && { api }), ...(state && { state }) })
}
