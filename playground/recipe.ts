/** How an environment is trained here: by its preset of PPO, or by usual settings where it has none. */
import { type EnvironmentDefinition, mlp, ppo } from 'colonnade'

/** Where a preset says nothing: settings with which small tasks of one's own learn in seconds. */
const USUAL = { learningRate: 2.5e-3, numSteps: 128, gamma: 0.99, entropyCoef: 0.01 }

export function recipeOf(environment: EnvironmentDefinition) {
  const preset = environment.presets.find(({ algorithm }) => algorithm.id === 'ppo')
  const { parameters } = ppo((preset?.algorithm.parameters ?? USUAL) as Parameters<typeof ppo>[0])
  return {
    policy: mlp(preset?.policy.parameters ?? { hidden: [32, 32] }),
    parameters,
    numLanes: Number(preset?.run.numLanes ?? 32),
    tuning: { learningRate: Number(parameters.learningRate), entropyCoef: Number(parameters.entropyCoef) },
  }
}
