import { box, discrete } from '../../base/space.ts'
import { type GridLanes, gridKernels, SEA } from '../../kernels/grids/bind.ts'
import { defineEnvironment, withSettings } from '../environment.ts'
import { SIDE, smallGridSettings } from '../grids/small-grid.ts'

/**
 * Seaquest on a 10 × 10 grid with the dynamics of MinAtar 1.0.15 (Young and Tian, 2019), under gymnax's id. A boat under water shoots
 * fish and submarines and picks up divers; for oxygen it must come up with a diver aboard. Each time it comes up, enemies become more
 * frequent and faster. It differs from MinAtar as `Breakout-MinAtar` does: no action for a sticky first step to repeat, and a time limit.
 *
 * - **Action space**: Discrete(6): 0 does nothing, 1 moves left, 2 up, 3 right, 4 down, 5 fires, at most every fifth step. With
 *   `stickyActionProbability` (0.1, as in MinAtar) the lane repeats the previous step's action.
 * - **Observation space**: Box of 10 × 10 × 10 (row from the top, column, channel), each 0 or 1: the boat's front, its back, its shots,
 *   the trails of moving things, torpedoes, fish, submarines, a bar for the oxygen, one for the divers aboard, divers.
 * - **Rewards**: 1 for every fish and submarine shot. Coming up with six divers pays the remaining oxygen in tenths. As in MinAtar, each
 *   time the boat comes up one diver fewer is aboard; after six divers the count becomes −1. Random actions return 0.10 on average.
 * - **Starting state**: The boat at the surface in column 5, facing left, alone.
 * - **Episode end**: Terminated when an enemy or a torpedo meets the boat's front, when there is no oxygen, or when the boat comes up
 *   without a diver. Truncated after `maxEpisodeSteps` (1000) steps.
 */
export const seaquest = defineEnvironment({
  id: 'Seaquest-MinAtar',
  module: import.meta.url,
  settings: smallGridSettings,
  presets: [
    {
      run: { numLanes: 64, totalSteps: 6_000_000 },
      algorithm: withSettings('ppo', {
        numSteps: 128,
        numMinibatches: 8,
        updateEpochs: 4,
        learningRate: 6e-3, // With 1e-3 it reaches 3.7 after half of the steps, with 4e-3 6.0.
        gamma: 0.98,
        entropyCoef: 0.01,
      }),
      policy: withSettings('mlp', { activation: 'relu' }),
    },
  ],
  observationType: 'u8',
  state: () => ({
    x: 'u8',
    y: 'u8',
    isRightward: 'u8',
    /** 1 while the boat has been at the surface since it last came up. */
    isSurfaced: 'u8',
    oxygen: 'i32',
    /** Divers aboard; below 0 after six were brought up. */
    aboard: 'i32',
    /** Steps between two arrivals of enemies, and between two moves of one; how often the boat came up before both were at their minimum. */
    spawnSteps: 'u8',
    moveSteps: 'u8',
    ramps: 'u8',
    /** Steps until the next enemy, until the next diver, and until the boat can fire. */
    spawnTimer: 'u8',
    diverTimer: 'u8',
    shotTimer: 'u8',
    /** Fish and submarines, and their number. */
    enemy: ['u8', SEA.enemies * SEA.fields],
    numEnemies: 'u8',
    diver: ['u8', SEA.divers * SEA.fields],
    numDivers: 'u8',
    /** Shots of the boat, and torpedoes of submarines. */
    shot: ['u8', SEA.shots * SEA.fields],
    numShots: 'u8',
    torpedo: ['u8', SEA.torpedoes * SEA.fields],
    numTorpedoes: 'u8',
    lastAction: 'u8',
    isOver: 'u8',
  }),
  make: ({ maxEpisodeSteps, stickyActionProbability }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [SIDE, SIDE, 10] }),
    actionSpace: discrete(6),
    maxEpisodeSteps,
    returnThreshold: null,
    reset(lanes, rows, count) {
      gridKernels(lanes.kernels).seaquestReset(lanes.state, lanes, rows, count)
    },
    step(lanes, from, to) {
      const { seaquestStep } = gridKernels(lanes.kernels)
      seaquestStep(lanes.state, lanes as GridLanes, lanes.random, stickyActionProbability, from, to)
    },
  }),
})
