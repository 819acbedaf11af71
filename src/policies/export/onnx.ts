/**
 * Policies as ONNX models (onnx/onnx.proto; operators of opset 17). Input `observation` (batch × shape, f32) and, for environments with
 * masks, `actionMask` (batch × logits, bool); outputs `action`, `logits` or `mean` and `logStd`, and `value` (batch).
 */
import { bytesField, type Field, messageOf, numberField } from '../../base/files/protobuf.ts'
import { type BoxSpace, spaceToJson } from '../../base/space.ts'
import { VERSION } from '../../base/version.ts'
import { headWidth, type Network, type WeightedLayer } from './network.ts'

const OPSET = 17
/** The file format version of that opset. */
const IR_VERSION = 8

/** TensorProto.DataType. */
const Type = { float: 1, int64: 7, bool: 9 } as const
/** AttributeProto.AttributeType. */
const INT_ATTRIBUTE = 2

/** Value of a masked logit, as in the kernels: its probability is exactly 0. */
const MASKED = -1e9

export function onnxModel(network: Network): Uint8Array {
  const { environment, observationShape, actionSpace } = network
  const graph = new Graph()
  graph.input('observation', Type.float, observationShape)
  const top = normalized(graph, network, graph.flatten('observation', observationShape))
  const trunk = graph.stack(network.trunk, top)
  actorOutputs(graph, network, graph.stack(network.actor, trunk))
  const value = graph.node('Squeeze', [graph.stack(network.critic, trunk), graph.wholes('squeezed axis', [1])], 'value')
  graph.output(value, Type.float, ['batch'])
  const metadata = {
    environment,
    observationShape: JSON.stringify(observationShape),
    actionSpace: spaceToJson(actionSpace),
  }
  return messageOf([
    numberField(1, IR_VERSION),
    bytesField(2, 'Colonnade'),
    bytesField(3, VERSION),
    bytesField(7, graph.fields('policy')),
    bytesField(8, [bytesField(1, ''), numberField(2, OPSET)]),
    ...Object.entries(metadata).map(([key, text]) => bytesField(14, [bytesField(1, key), bytesField(2, text)])),
  ])
}

/** Adds the normalization of observations, if the network has one. */
function normalized(graph: Graph, { inputs }: Network, observation: string): string {
  if (inputs === null) return observation
  const { center, deviation, clip } = inputs
  const width = center.length
  const centered = graph.node('Sub', [observation, graph.floats('observation.center', [width], center)], 'centered')
  const scaled = graph.node('Div', [centered, graph.floats('observation.deviation', [width], deviation)], 'scaled')
  const raised = graph.node('Max', [scaled, graph.floats('least input', [], [-clip])], 'raised input')
  return graph.node('Min', [raised, graph.floats('greatest input', [], [clip])], 'normalized')
}

/** Adds the outputs of the actor's head: the mode and the distribution's parameters. */
function actorOutputs(graph: Graph, network: Network, head: string): void {
  const { actionSpace, choices, logStd, masked } = network
  const width = headWidth(network)
  if (logStd !== null) {
    const { shape, low, high } = actionSpace as BoxSpace
    graph.output(graph.node('Identity', [head], 'mean'), Type.float, ['batch', width])
    graph.output(graph.node('Identity', [graph.floats('logStd weights', [width], logStd)], 'logStd'), Type.float, [
      width,
    ])
    const raised = graph.node('Max', ['mean', graph.floats('low', [width], low)], 'raised')
    const clipped = graph.node('Min', [raised, graph.floats('high', [width], high)], 'clipped')
    graph.node('Reshape', [clipped, graph.wholes('action shape', [-1, ...shape])], 'action')
    graph.output('action', Type.float, ['batch', ...shape])
    return
  }
  if (masked) {
    graph.input('actionMask', Type.bool, [width])
    graph.node('Where', ['actionMask', head, graph.floats('masked', [], [MASKED])], 'logits')
  } else graph.node('Identity', [head], 'logits')
  graph.output('logits', Type.float, ['batch', width])
  if (actionSpace.kind === 'discrete') {
    graph.node('ArgMax', ['logits'], 'action', { axis: 1, keepdims: 0 })
    graph.output('action', Type.int64, ['batch'])
    return
  }
  const segments = choices.map((_, c) => `logits of choice ${c}`)
  graph.split(['logits', graph.wholes('choices', choices)], segments)
  const chosen = segments.map((segment, c) => graph.node('ArgMax', [segment], `choice ${c}`, { axis: 1, keepdims: 1 }))
  graph.node('Concat', chosen, 'action', { axis: 1 })
  graph.output('action', Type.int64, ['batch', choices.length])
}

/** A growing GraphProto. Values are referred to by name. */
class Graph {
  readonly #nodes: Field[] = []
  readonly #initializers: Field[] = []
  readonly #inputs: Field[] = []
  readonly #outputs: Field[] = []

  fields(name: string): Field[] {
    return [...this.#nodes, bytesField(2, name), ...this.#initializers, ...this.#inputs, ...this.#outputs]
  }

  /** Adds an input of `shape` per row of the batch. */
  input(name: string, type: number, shape: readonly number[]): void {
    this.#inputs.push(bytesField(11, valueInfo(name, type, ['batch', ...shape])))
  }

  output(name: string, type: number, shape: readonly (number | string)[]): void {
    this.#outputs.push(bytesField(12, valueInfo(name, type, shape)))
  }

  /** Adds a node with one output and returns the output's name. */
  node(
    operator: string,
    inputs: readonly string[],
    output: string,
    whole: Readonly<Record<string, number>> = {},
  ): string {
    this.#add(operator, inputs, [output], whole)
    return output
  }

  split(inputs: readonly string[], outputs: readonly string[]): void {
    this.#add('Split', inputs, outputs, { axis: 1 })
  }

  #add(
    operator: string,
    inputs: readonly string[],
    outputs: readonly string[],
    whole: Readonly<Record<string, number>>,
  ): void {
    const attributes = Object.entries(whole).map(([name, value]) =>
      bytesField(5, [bytesField(1, name), numberField(3, value), numberField(20, INT_ATTRIBUTE)]),
    )
    const node = [
      ...inputs.map((name) => bytesField(1, name)),
      ...outputs.map((name) => bytesField(2, name)),
      bytesField(3, outputs[0]!),
      bytesField(4, operator),
      ...attributes,
    ]
    this.#nodes.push(bytesField(1, node))
  }

  flatten(name: string, shape: readonly number[]): string {
    return shape.length === 1 ? name : this.node('Flatten', [name], `${name} in a row`, { axis: 1 })
  }

  /** Adds layers after `below` and returns the name of the last output. */
  stack(layers: readonly WeightedLayer[], below: string): string {
    return layers.reduce((x, { name, numInputs, numOutputs, activation, weight, bias, norm }) => {
      const w = this.floats(`${name}.weight`, [numInputs, numOutputs], weight)
      const product = this.node('Gemm', [x, w, this.floats(`${name}.bias`, [numOutputs], bias)], `${name} product`)
      const sum = norm === null ? product : this.norm(name, norm, product)
      return activation === 'linear' ? sum : this.node(activation === 'tanh' ? 'Tanh' : 'Relu', [sum], name)
    }, below)
  }

  /** A LayerNorm over the last axis, whose epsilon is the operator's default. */
  norm(name: string, { weight, bias }: NonNullable<WeightedLayer['norm']>, x: string): string {
    const w = this.floats(`${name}.norm.weight`, [weight.length], weight)
    const b = this.floats(`${name}.norm.bias`, [bias.length], bias)
    return this.node('LayerNormalization', [x, w, b], `${name} norm`)
  }

  floats(name: string, shape: readonly number[], values: Iterable<number>): string {
    return this.#constant(name, Type.float, shape, Float32Array.from(values))
  }

  wholes(name: string, values: readonly number[]): string {
    return this.#constant(name, Type.int64, [values.length], BigInt64Array.from(values, BigInt))
  }

  /** Adds a TensorProto with raw little-endian data. */
  #constant(name: string, type: number, shape: readonly number[], { buffer }: Float32Array | BigInt64Array): string {
    const sides = shape.map((side) => numberField(1, side))
    const tensor = [...sides, numberField(2, type), bytesField(8, name), bytesField(9, new Uint8Array(buffer))]
    this.#initializers.push(bytesField(5, tensor))
    return name
  }
}

/** A ValueInfoProto; a dimension given as a name is variable. */
function valueInfo(name: string, type: number, shape: readonly (number | string)[]): Field[] {
  const sides = shape.map((side) =>
    bytesField(1, [typeof side === 'number' ? numberField(1, side) : bytesField(2, side)]),
  )
  return [bytesField(1, name), bytesField(2, [bytesField(1, [numberField(1, type), bytesField(2, sides)])])]
}
