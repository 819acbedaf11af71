/** The checks of an environment by name, in order, each with its requirement. A failed check skips those that it would mislead. */
export const environmentChecks = {
  runs: 'reset and step throw nothing, are done when they return, and write what they have to say',
  values: 'observations within their space, finite rewards, flags that are 0 or 1, masks that leave a choice',
  rows: 'every row that is asked for is written, and no other',
  inputs: 'actions, lane numbers, episodes and steps stay as they were handed over',
  aliasing: 'nothing is written to the columns of an earlier step',
  games: 'all players of a game end together',
  determinism: 'the same seed gives the same episodes',
  split: 'lanes that are asked for one by one, or in ranges, do what all do at once',
  lanes: 'a lane alone does what it does among others',
  state: 'whoever puts the columns back gets the same steps again',
  reset: 'an episode begins the same whatever was before it',
  allocation: 'a step allocates nothing for each lane',
} as const

/** The name of a check. */
export type EnvironmentCheck = keyof typeof environmentChecks
