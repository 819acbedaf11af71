/** When a result of an actor is acknowledged, and its rows removed. */
export const acknowledgements = ['checkpoint', 'update'] as const
/** When a checkpoint contains what was learned from a result of an actor, or after its update. */
export type Acknowledgement = (typeof acknowledgements)[number]
