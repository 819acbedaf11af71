/**
 * Settings with which each built-in environment is known to be learnt; what a run uses where the user says nothing. A
 * test and `npm run learning` hold the returns they reach.
 */
export interface Preset {
  readonly run: { readonly numLanes: number; readonly totalSteps: number }
  readonly ppo: Readonly<Record<string, number | boolean | null>>
  readonly mlp: Readonly<Record<string, number | boolean | string | readonly number[]>>
}

export const presets: Readonly<Record<string, Preset>> = {
  'CartPole-v1': {
    run: { numLanes: 16, totalSteps: 100_000 },
    ppo: { numSteps: 64, numMinibatches: 8, updateEpochs: 3, learningRate: 3e-3, gamma: 0.99, gaeLambda: 0.9 },
    mlp: {},
  },
  'Pendulum-v1': {
    run: { numLanes: 32, totalSteps: 290_000 },
    ppo: {
      ...{ numSteps: 256, numMinibatches: 32, updateEpochs: 4, learningRate: 3e-3 },
      ...{ gamma: 0.95, gaeLambda: 0.9, maxGradNorm: 5 },
    },
    mlp: {},
  },
}
