/**
 * Optimizers of language models, which know the parameters by name and shape: they step one parameter after another, in one thread. Those
 * of `optimizer.ts` serve language models too.
 */
import type { Parts } from '../../base/definition.ts'
import { type Columns, column, type Plan, saved } from '../../components/column.ts'
import type { Parameter } from '../../policies/policy.ts'
import { adam8 } from './adam8.ts'
import { muon } from './muon.ts'
import {
  checkOptimizer,
  checkTaken,
  type OptimizerSettings,
  optimizerPlan,
  optimizerSettings,
  powersAfter,
  powersOfSteps,
} from './optimizer.ts'
import type { TensorOptimizer, TensorStep } from './tensor-optimizer.ts'

const known = new Map<string, TensorOptimizer>([muon, adam8].map((optimizer) => [optimizer.id, optimizer]))

/** The optimizer of that id, if it is one of these. */
export function tensorOptimizerOf(id: string): TensorOptimizer | undefined {
  return known.get(id)
}

/** The optimizer settings of an algorithm over tokens. */
export function tensorOptimizerSettings(epsilon: number) {
  const settings = optimizerSettings(epsilon)
  const { optimizer, momentum } = settings
  const words = [...optimizer.words, ...known.keys()]
  const of = `muon: of the matrices in layers, and adam of the rest; adam8: adam with moments in 8 bits`
  return {
    ...settings,
    optimizer: { ...optimizer, words, description: `${optimizer.description}; ${of}` },
    momentum: { ...momentum, description: `${momentum.description}; of muon, which has 0.95 for 0` },
  }
}

/** As `checkOptimizer`, for an algorithm over tokens. */
export function checkTensorOptimizer(subject: string, given: OptimizerSettings, parts: Parts = {}): void {
  const optimizer = known.get(given.optimizer)
  if (optimizer === undefined || parts.optimizer !== undefined) checkOptimizer(subject, given, parts, [...known.keys()])
  else checkTaken(subject, given, optimizer.takes)
}

/** The state columns of an optimizer for these parameters. */
export function tensorOptimizerPlan(given: Pick<OptimizerSettings, 'optimizer'>, parameters: readonly Parameter[]) {
  const optimizer = known.get(given.optimizer)
  if (optimizer === undefined) {
    const numParameters = parameters.reduce((sum, parameter) => sum + elementsOf(parameter), 0)
    return { ...optimizerPlan(given, numParameters), workspace: column('f32', 0) } satisfies Plan
  }
  const sizes = parameters.map((parameter) => optimizer.moments(parameter))
  return {
    moment: saved(
      column(
        'f32',
        sizes.reduce((sum, [first]) => sum + first, 0),
      ),
    ),
    squareMoment: saved(
      column(
        'f32',
        sizes.reduce((sum, [, second]) => sum + second, 0),
      ),
    ),
    betaPowers: saved(column('f64', optimizer.powersOf.length)),
    workspace: column('f32', Math.max(0, ...parameters.map((parameter) => optimizer.workspace(parameter)))),
  } satisfies Plan
}

export type TensorOptimizerColumns = Columns<ReturnType<typeof tensorOptimizerPlan>>

/** The settings of `powersOf` raised to the number of steps, the next one included. */
export function tensorPowersAfter(
  settings: OptimizerSettings,
  columns: Pick<TensorOptimizerColumns, 'betaPowers'>,
): number[] {
  const powers: number[] = []
  const optimizer = known.get(settings.optimizer)
  if (optimizer === undefined) powersAfter(powers, settings, columns as TensorOptimizerColumns)
  else powersOfSteps(powers, settings, optimizer.powersOf, columns.betaPowers)
  return powers
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
    const { offset, shape } = parameter
    const length = elementsOf(parameter)
    optimizer.step({
      ...given,
      parameter,
      length,
      weights: given.weights.subarray(offset, offset + length),
      gradient: given.gradient.subarray(offset, offset + length),
      moment: given.moment.subarray(first, first + numFirst),
      squareMoment: given.squareMoment.subarray(second, second + numSecond),
      settings: shape.length > 1 ? given.settings : { ...given.settings, weightDecay: 0 },
    })
    first += numFirst
    second += numSecond
  }
}

function elementsOf({ shape }: Parameter): number {
  return shape.reduce((product, side) => product * side, 1)
}
