/** When a result of an actor is acknowledged, and its rows removed. */
export const acknowledgements = ['checkpoint', 'update'] as const
/** `checkpoint`: when a checkpoint contains the update that used the result; `update`: after that update. */
export type Acknowledgement = (typeof acknowledgements)[number]
