/** When a result of an actor is acknowledged, and its rows removed. */
export const acknowledgements = ['checkpoint', 'update'] as const
/** `checkpoint`: when a checkpoint contains what was learned from the result; `update`: after its update. */
export type Acknowledgement = (typeof acknowledgements)[number]
