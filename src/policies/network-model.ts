/** The common part of networks over our own kernels, before they have memory. */
import { InputError, show } from '../base/errors.ts'
import type { Random } from '../base/random.ts'
import { actorWidth, type Space, spaceWidth } from '../base/space.ts'
import type { Columns, Plan } from '../components/column.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { InputShape } from './inputs.ts'
import type { ParameterViews, Policy, PolicyModel } from './policy.ts'
import type { ParameterList } from './stack/parameters.ts'
import { initializeStacks, type StackShape } from './stack/stack.ts'

export interface ModelShape extends InputShape {
  readonly parameters: ParameterList
  /** The network's stacks, in the order of their parameters. */
  readonly stacks: readonly StackShape[]
}

/** The numbers of an observation. @throws InputError for one that is no box, or has a part that only critics may see. */
export function numInputsOf(id: string, observationSpace: Space): number {
  const width = spaceWidth(observationSpace)
  if (actorWidth(observationSpace) < width) {
    const got = `with ${width - actorWidth(observationSpace)} elements for critics alone`
    throw new InputError(`${id} observation space`, got, 'mlp or recurrent, whose actor does not see them')
  }
  if (observationSpace.kind === 'box') return width
  throw new InputError(`${id} observation space`, show(observationSpace), 'a box')
}

/** The model of a network; `fill` writes the initial weights of parameters outside the stacks. */
export function modelOf<S extends ModelShape, W extends Plan>(
  shape: S,
  plan: (shape: S) => W,
  fill: (views: ParameterViews) => void,
  Network: new (shape: S, weights: Float32Array, workspace: Columns<W>, kernels: Kernels, random: Random) => Policy,
): PolicyModel {
  const { parameters, stacks, numInputs, inputs } = shape
  return {
    numParameters: parameters.size,
    parameters: parameters.list,
    normalizedInputs: inputs === null ? 0 : numInputs,
    workspace: () => plan(shape),
    initialize(weights, random, key) {
      weights.fill(0)
      const views = parameters.view(weights)
      initializeStacks(stacks, views, random, key)
      fill(views)
      if (inputs !== null) views[inputs.deviation]!.fill(1)
    },
    bind: (weights, workspace, kernels, random) =>
      new Network(shape, weights, workspace as unknown as Columns<W>, kernels, random),
  }
}
