import { type Columns, column, type Plan } from '../../components/column.ts'
import { Activation, gruScratch, lstmScratch } from '../../kernels/bind.ts'
import type { ParameterViews } from '../policy.ts'
import type { Cell, CellShape, LayerParts, Steps } from './layer.ts'
import type { ParameterList } from './parameters.ts'
import { denseShape, type MakeCell } from './stack.ts'

/** Kinds of cells: gates, each with one output per unit of the layer below, and numbers per unit that the gradient needs. */
const kinds = {
  gru: { gates: 3, kept: 4, states: 1, scratch: gruScratch, forward: 'gruForward', backward: 'gruBackward' },
  lstm: { gates: 4, kept: 5, states: 2, scratch: lstmScratch, forward: 'lstmForward', backward: 'lstmBackward' },
} as const

/** A GRU or an LSTM, above a linear layer that gives its gates their inputs. */
export function recurrentLayers(kind: keyof typeof kinds, units: number): MakeCell {
  return (parameters, name, numInputs, memoryAt) => {
    const gates = kinds[kind].gates * units
    const input = denseShape(parameters, `${name}.${kind}.input`, numInputs, gates, Activation.linear, 1)
    return [input, cellShape(parameters, `${name}.${kind}.hidden`, kind, units, memoryAt)]
  }
}

/** The cell itself, over the steps of each lane (kernels/recurrent). */
function cellShape(
  parameters: ParameterList,
  name: string,
  kind: keyof typeof kinds,
  units: number,
  memoryAt: number,
): CellShape {
  const { gates, kept, states, scratch } = kinds[kind]
  const weight = parameters.add(`${name}.weight`, [units, gates * units])
  const bias = parameters.add(`${name}.bias`, [gates * units])
  const memoryWidth = states * units
  return {
    numInputs: gates * units,
    numOutputs: units,
    activation: Activation.linear,
    matrices: [{ weight, numInputs: units, numOutputs: gates * units, gain: 1 }],
    ...{ memoryWidth, memoryAt },
    scratch: (blockRows) => scratch(blockRows, 1, units), // The most for so many rows.
    plan: (blockRows) => cellPlan(blockRows, units, kept, memoryWidth),
    bind: (parts) => new GatedCell(kind, units, memoryAt, weight, bias, parts),
  }
}

function cellPlan(blockRows: number, units: number, kept: number, memoryWidth: number) {
  const rows = (width: number) => column('f32', blockRows, width)
  const isWide = memoryWidth > units
  return {
    gates: rows(kept * units),
    recorded: rows(memoryWidth),
    continues: rows(1),
    carried: rows(memoryWidth),
    /** States, and the gradient by them, where they are more than the outputs. */
    after: rows(isWide ? memoryWidth : 0),
    dAfter: rows(isWide ? memoryWidth : 0),
    none: column('f32', 0),
  } satisfies Plan
}

class GatedCell implements Cell {
  readonly #kind: keyof typeof kinds
  readonly #units: number
  readonly #memoryWidth: number
  readonly #memoryAt: number
  readonly #weight: number
  readonly #bias: number
  readonly #parts: LayerParts
  readonly #columns: Columns<ReturnType<typeof cellPlan>>
  /** Initial states of the steps: of single steps, of sequences, and of sequences that may continue a carried state. */
  readonly #single: { recorded: Float32Array; continues: Float32Array; carried: Float32Array }
  readonly #sequence: { recorded: Float32Array; continues: Float32Array; carried: Float32Array }
  readonly #carried: { recorded: Float32Array; continues: Float32Array; carried: Float32Array }
  /** Of the last `forward`. */
  #starts: { recorded: Float32Array; continues: Float32Array; carried: Float32Array }
  #after: Float32Array
  #numLanes = 0
  #length = 0

  constructor(
    kind: keyof typeof kinds,
    units: number,
    memoryAt: number,
    weight: number,
    bias: number,
    parts: LayerParts,
  ) {
    this.#kind = kind
    this.#units = units
    this.#memoryWidth = kinds[kind].states * units
    this.#memoryAt = memoryAt
    this.#weight = weight
    this.#bias = bias
    this.#parts = parts
    this.#columns = parts.columns as unknown as Columns<ReturnType<typeof cellPlan>>
    const { recorded, continues, carried, none } = this.#columns
    this.#single = { recorded, continues: none, carried: none }
    this.#sequence = { recorded, continues, carried: none }
    this.#carried = { recorded, continues, carried }
    this.#starts = this.#single
    this.#after = none
  }

  forward(y: Float32Array, x: Float32Array, count: number, _yFrom: number, _xFrom: number, steps: Steps | null): void {
    const { numLanes, length, memory, memoryWidth, memoryFrom, continues, isCarried } = steps!
    const { kernels, weights, scratch } = this.#parts
    const columns = this.#columns
    const [units, width] = [this.#units, this.#memoryWidth]
    const from = memoryFrom * memoryWidth + this.#memoryAt
    kernels.copyRows(columns.recorded, memory, count, width, width, memoryWidth, 0, from)
    if (continues.length > 0) kernels.flagsToFloats(columns.continues, continues, count)
    this.#starts = isCarried ? this.#carried : continues.length > 0 ? this.#sequence : this.#single
    this.#numLanes = numLanes
    this.#length = length
    this.#after = width > units ? columns.after : y
    const weight = weights[this.#weight]!
    const bias = weights[this.#bias]!
    const { forward } = kinds[this.#kind]
    kernels[forward](this.#after, columns.gates, x, weight, bias, this.#starts, scratch, numLanes, length, units)
    if (width > units) kernels.copyRows(y, columns.after, count, units, units, width, 0, 0)
  }

  backward(
    dy: Float32Array,
    _x: Float32Array,
    count: number,
    _xFrom: number,
    gradient: ParameterViews | null,
    dx: Float32Array | null,
  ): void {
    const { kernels, weights, scratch } = this.#parts
    const { gates, dAfter } = this.#columns
    const [units, width] = [this.#units, this.#memoryWidth]
    // The state beyond the outputs has no gradient from above: it stays 0.
    if (width > units) kernels.copyRows(dAfter, dy, count, units, width, units, 0, 0)
    const dStates = width > units ? dAfter : dy
    const [dWeight, dBias] = [gradient![this.#weight]!, gradient![this.#bias]!]
    const weight = weights[this.#weight]!
    const { backward } = kinds[this.#kind]
    kernels[backward](
      dx!,
      dWeight,
      dBias,
      dStates,
      this.#after,
      gates,
      weight,
      this.#starts,
      scratch,
      this.#numLanes,
      this.#length,
      units,
    )
  }

  remember(memory: Float32Array, memoryWidth: number, from: number): void {
    const width = this.#memoryWidth
    const at = from * memoryWidth + this.#memoryAt
    this.#parts.kernels.copyRows(memory, this.#after, this.#numLanes, width, memoryWidth, width, at, 0)
  }

  carry(): void {
    const [width, length] = [this.#memoryWidth, this.#length]
    const [row, last] = [length * width, (length - 1) * width]
    this.#parts.kernels.copyRows(this.#columns.carried, this.#after, this.#numLanes, width, width, row, 0, last)
  }
}
