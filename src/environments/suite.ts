/**
 * The environments of `colonnade/environments`, a line each: whoever adds one writes its file, and its line here. The registry
 * takes them from here; those of the first hour are in `colonnade` itself.
 */
export { acrobot } from './classic/acrobot.ts'
export { mountainCar } from './classic/mountain-car.ts'
export { mountainCarContinuous } from './classic/mountain-car-continuous.ts'
export { blackjack } from './games/blackjack.ts'
export { connectFour } from './games/connect-four.ts'
export { predatorPrey } from './games/predator-prey.ts'
export { ticTacToeDuel } from './games/tic-tac-toe-duel.ts'
export { cliffWalking } from './grids/cliff-walking.ts'
export { doorKey } from './grids/door-key.ts'
export { emptyRoom } from './grids/empty-room.ts'
export { fourRooms } from './grids/four-rooms.ts'
export { frozenLake, frozenLake8x8 } from './grids/frozen-lake.ts'
export { maze } from './grids/maze.ts'
export { snake } from './grids/snake.ts'
export { taxi } from './grids/taxi.ts'
export { asterix } from './minatar/asterix.ts'
export { freeway } from './minatar/freeway.ts'
export { seaquest } from './minatar/seaquest.ts'
export { spaceInvaders } from './minatar/space-invaders.ts'
