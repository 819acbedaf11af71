import { fromPettingZoo } from '../../dist/src/entries/environments.js'

const python = process.env.COLONNADE_TEST_PYTHON

export const countdown = fromPettingZoo({
  ...{ id: 'petting_zoo_countdown', module: import.meta.url, python, maxEpisodeSteps: 9, kwargs: {} },
})
export const ticTacToe = fromPettingZoo({
  ...{ id: 'pettingzoo.classic.tictactoe_v3', module: import.meta.url, python, maxEpisodeSteps: 9 },
})
