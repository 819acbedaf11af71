/**
 * The environments of `colonnade/environments`, a line each: whoever adds one writes its file, and its line here. The registry
 * takes them from here; those of the first hour are in `colonnade` itself.
 */
export { acrobot } from './acrobot.ts'
export { asterix } from './asterix.ts'
export { blackjack } from './blackjack.ts'
export { cliffWalking } from './cliff-walking.ts'
export { connectFour } from './connect-four.ts'
export { doorKey } from './door-key.ts'
export { emptyRoom } from './empty-room.ts'
export { fourRooms } from './four-rooms.ts'
export { freeway } from './freeway.ts'
export { frozenLake, frozenLake8x8 } from './frozen-lake.ts'
export { maze } from './maze.ts'
export { mountainCar } from './mountain-car.ts'
export { mountainCarContinuous } from './mountain-car-continuous.ts'
export { predatorPrey } from './predator-prey.ts'
export { seaquest } from './seaquest.ts'
export { snake } from './snake.ts'
export { spaceInvaders } from './space-invaders.ts'
export { taxi } from './taxi.ts'
export { ticTacToeDuel } from './tic-tac-toe-duel.ts'
