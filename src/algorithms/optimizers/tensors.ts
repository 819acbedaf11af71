/** The settings, state columns and step of optimizers for language models, including optimizers that take each parameter with its name and shape. */
import { column, type Plan, saved } from '../../components/column.ts'
import { sizeOf } from '../../language/transformer/parameters.ts'
import type { Parameter } from '../../policies/policy.ts'
import { adam8 } from './adam8.ts'
import { isOfTensors, type TensorOptimizer, type TensorStep } from './define-optimizer.ts'
import { muon } from './muon.ts'
import { admit, type OptimizerSettings, optimizerOf, optimizerPlan, optimizerSettings } from './optimizer.ts'

/** The optimizer settings of an algorithm over tokens. */
export function tokenOptimizerSettings(epsilon: number) {
  const builtIn = [muon, adam8]
  for (const part of builtIn) admit('tokens', part)
  const settings = optimizerSettings(epsilon)
  const { optimizer, momentum } = settings
  const words = [...optimizer.words, ...builtIn.map(({ id }) => id)]
  const of = 'muon updates the matrices in layers, and adam all other parameters; adam8 is adam with moments in 8 bits'
  return {
    ...settings,
    optimizer: { ...optimizer, words, description: `${optimizer.description}; ${of}` },
    momentum: { ...momentum, description: `${momentum.description}, and of muon, for which 0 means 0.95` },
  }
}

/** The state columns of an optimizer for these parameters. */
export function tensorsPlan({ optimizer: id }: Pick<OptimizerSettings, 'optimizer'>, parameters: readonly Parameter[]) {
  const optimizer = optimizerOf(id, undefined, true)
  const sumOf = (sizes: readonly number[]) => sizes.reduce((sum, size) => sum + size, 0)
  if (!isOfTensors(optimizer)) {
    const plan = optimizerPlan({ optimizer: id }, sumOf(parameters.map(sizeOf)))
    return { ...plan, workspace: column('f32', 0) } satisfies Plan
  }
  const moments = parameters.map((parameter) => optimizer.moments(parameter))
  return {
    moment: saved(column('f32', sumOf(moments.map(([first]) => first)))),
    squareMoment: saved(column('f32', sumOf(moments.map(([, second]) => second)))),
    betaPowers: saved(column('f64', optimizer.powersOf.length)),
    workspace: column('f32', Math.max(0, ...parameters.map((parameter) => optimizer.workspace(parameter)))),
  } satisfies Plan
}

/** Makes one step on each parameter. Only matrices decay. */
export function stepTensors(
  optimizer: TensorOptimizer,
  parameters: readonly Parameter[],
  given: Omit<TensorStep, 'parameter' | 'length'>,
): void {
  let [first, second] = [0, 0]
  for (const parameter of parameters) {
    const [numFirst, numSecond] = optimizer.moments(parameter)
    const { offset, shape, isFrozen } = parameter
    const length = sizeOf(parameter)
    optimizer.step({
      ...given,
      parameter,
      length,
      weights: given.weights.subarray(offset, offset + length),
      gradient: given.gradient.subarray(offset, offset + length),
      moment: given.moment.subarray(first, first + numFirst),
      squareMoment: given.squareMoment.subarray(second, second + numSecond),
      settings: shape.length > 1 && isFrozen !== true ? given.settings : { ...given.settings, weightDecay: 0 },
    })
    first += numFirst
    second += numSecond
  }
}
