/**
 * Settings with which each built-in environment is known to be learnt; what a run uses where the user says nothing.
 * `tests/learning` holds the returns they reach.
 */
export interface Preset {
  readonly run: { readonly numLanes: number; readonly totalSteps: number }
  readonly ppo: Readonly<Record<string, number | boolean | null>>
  readonly mlp: Readonly<Record<string, number | boolean | string | readonly number[]>>
}

export const presets: Readonly<Record<string, Preset>> = {
  'CartPole-v1': {
    run: { numLanes: 16, totalSteps: 100_000 },
    ppo: { numSteps: 64, numMinibatches: 16, updateEpochs: 3, learningRate: 2e-3, gamma: 0.98, gaeLambda: 0.95 },
    mlp: {},
  },
  'Pendulum-v1': {
    run: { numLanes: 64, totalSteps: 290_000 },
    ppo: { numSteps: 128, numMinibatches: 32, updateEpochs: 3, learningRate: 3e-3, gamma: 0.95, gaeLambda: 0.95 },
    mlp: {},
  },
  'Breakout-MinAtar': {
    run: { numLanes: 64, totalSteps: 1_000_000 },
    ppo: { numSteps: 32, numMinibatches: 8, updateEpochs: 4, learningRate: 5e-3, entropyCoef: 0.01 },
    mlp: { activation: 'relu' },
  },
  'TicTacToe-v0': {
    run: { numLanes: 64, totalSteps: 500_000 },
    ppo: { numSteps: 32, numMinibatches: 8, updateEpochs: 4, learningRate: 2e-3, gamma: 1, entropyCoef: 0.02 },
    mlp: { activation: 'relu' },
  },
}
