/** The checks of an environment by name, in order, each with its requirement. A failed check skips those that it would mislead. */
export const environmentChecks = {
  runs: 'reset and step throw nothing, are done when they return, and write all outputs',
  values: 'observations are within their space, rewards finite, flags 0 or 1, and masks leave a choice',
  rows: 'every row of a call is written, and no other',
  inputs: 'actions, lane numbers, episodes and steps do not change',
  aliasing: 'nothing is written to the columns of an earlier step',
  games: 'all players of a game end together',
  determinism: 'the same seed gives the same episodes',
  split: 'lanes behave the same when called one by one, in ranges or all at once',
  lanes: 'a lane behaves the same alone and among others',
  state: 'restored columns give the same steps again',
  reset: 'an episode begins the same after any other',
  allocation: 'a step allocates nothing per lane',
} as const

/** The name of a check. */
export type EnvironmentCheck = keyof typeof environmentChecks
