/** The kernels of grid games, by name: a registry beside that of all the others (`kernels/plain.ts`), whose module only these games load. */
export { asterixReset, asterixStep } from './asterix.ts'
export { breakoutReset, breakoutStep } from './breakout.ts'
export { freewayReset, freewayStep } from './freeway.ts'
export { seaquestReset, seaquestStep } from './seaquest.ts'
export { spaceInvadersReset, spaceInvadersStep } from './space-invaders.ts'
