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
    run: { numLanes: 64, totalSteps: 204_800 },
    ppo: {
      numSteps: 128,
      numMinibatches: 64,
      updateEpochs: 2,
      learningRate: 3e-3,
      gamma: 0.95,
      gaeLambda: 0.95,
      valueCoef: 0.05, // Returns are in the hundreds: with more, gradients are clipped for the critic's sake.
    },
    mlp: { activation: 'relu' },
  },
}
