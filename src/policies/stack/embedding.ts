import { assert, InputError, show } from '../../base/errors.ts'
import { integer } from '../../base/settings.ts'
import { type BoxSpace, choiceSizes, type Space } from '../../base/space.ts'
import { type Columns, column, type Plan } from '../../components/column.ts'
import { Activation } from '../../kernels/bind.ts'
import type { LayerShape } from './layer.ts'
import type { ParameterList } from './parameters.ts'
import type { MakeLayers } from './stack.ts'

/** The setting that adds embeddings. */
export const embedding = integer(
  0,
  'learned numbers that stand for each choice in an observation; 0: choices stay one-hot',
  { min: 0 },
)

/** Elements of an observation: `size` one-hot ones of a choice with a table, or others. */
interface Segment {
  readonly from: number
  readonly size: number
  readonly into: number
  /** Index of the table (size × units) in the list of parameters; null for elements that stay. */
  readonly table: number | null
}

/**
 * The first layer of a network that embeds choices: of each one-hot choice in an observation (`dict`) the row of a learned table, of
 * other elements the numbers themselves. @throws InputError for observations without choices.
 */
export function embeddings(id: string, units: number, space: Space): MakeLayers {
  const parts = space.kind === 'box' ? (space.parts ?? []) : []
  if (!parts.some((part) => part.space.kind !== 'box')) {
    const expected = '0, or observations with choices, of dict'
    throw new InputError(`${id} embedding`, `${units}, and observations ${show(space)}`, expected)
  }
  return (parameters, name) => [embeddingShape(parameters, name, parts, units)]
}

function embeddingShape(
  parameters: ParameterList,
  name: string,
  parts: NonNullable<BoxSpace['parts']>,
  units: number,
): LayerShape {
  const segments: Segment[] = []
  let [from, into] = [0, 0]
  for (const part of parts) {
    const sizes = choiceSizes(part.space)
    for (const [k, size] of (sizes.length > 0 ? sizes : [part.width]).entries()) {
      const label = sizes.length > 1 ? `${part.name}.${k}` : part.name
      const table = sizes.length > 0 ? parameters.add(`${name}.embedding.${label}`, [size, units]) : null
      segments.push({ from, size, into, table })
      from += size
      into += table === null ? size : units
    }
  }
  const tables = segments.flatMap(({ table, size }) => (table === null ? [] : { weight: table, size }))
  const [numInputs, numOutputs] = [from, into]
  const widest = Math.max(units, ...tables.map(({ size }) => size))
  return {
    ...{ numInputs, numOutputs, activation: Activation.linear },
    matrices: tables.map(({ weight, size }) => ({ weight, numInputs: size, numOutputs: units, gain: 1 })),
    scratch: () => 0,
    plan: (blockRows) => embeddingPlan(blockRows, widest, units),
    bind({ weights, columns, kernels }) {
      const { given, looked, zero, unread } = columns as unknown as Columns<ReturnType<typeof embeddingPlan>>
      const { linear } = Activation
      return {
        forward(y, x, count, yFrom, xFrom) {
          for (const { from, size, into, table } of segments) {
            const [at, to] = [xFrom * numInputs + from, yFrom * numOutputs + into]
            if (table === null) kernels.copyRows(y, x, count, size, numOutputs, numInputs, to, at)
            else {
              kernels.copyRows(given, x, count, size, size, numInputs, 0, at)
              kernels.denseForward(looked, given, weights[table]!, zero, count, size, units, linear, 0, 0)
              kernels.copyRows(y, looked, count, units, numOutputs, units, to, 0)
            }
          }
        },
        backward(dy, x, count, xFrom, gradient, dx) {
          assert(dx === null, 'an embedding is the first layer')
          for (const { from, size, into, table } of segments) {
            if (table === null || gradient === null) continue
            kernels.copyRows(given, x, count, size, size, numInputs, 0, xFrom * numInputs + from)
            kernels.copyRows(looked, dy, count, units, units, numOutputs, 0, into)
            kernels.denseBackwardWeights(gradient[table]!, unread, looked, given, count, size, units, 0)
          }
        },
      }
    },
  }
}

/** `given`: a choice's elements; `looked`: its rows of the table; `zero` and `unread`: in place of a bias and of its gradient. */
function embeddingPlan(blockRows: number, widest: number, units: number) {
  return {
    given: column('f32', blockRows, widest),
    looked: column('f32', blockRows, units),
    zero: column('f32', units),
    unread: column('f32', units),
  } satisfies Plan
}
