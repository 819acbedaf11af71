/**
 * A transformer's passes over packed rows as steps on a device (kernels/webgpu): those of `Forward` and `PackedTransformer`, for models
 * like Llama, Qwen2, Qwen3 and Mistral, and their adapters. Layers share shaders: a column has the place at which each layer's weights begin.
 */
import { attentionBackward, attentionForward } from '../../kernels/webgpu/attention.ts'
import {
  addRowSums,
  type DeviceNorm,
  type NormedRows,
  normBackward,
  normForward,
  normWeightGradient,
} from '../../kernels/webgpu/norm.ts'
import { addProduct, product } from '../../kernels/webgpu/product.ts'
import { type DeviceColumn, deviceColumn, floatOf, type Step } from '../../kernels/webgpu/step.ts'
import {
  evaluateVocabulary,
  gatherTokens,
  rotate,
  scatterTokens,
  sumVocabulary,
  swigluBackward,
  swigluForward,
  vocabularyBackward,
} from '../../kernels/webgpu/tokens.ts'
import type { Parameter } from '../../policies/policy.ts'
import type { activationColumns } from './device-plan.ts'
import type { LoraModel } from './lora.ts'
import type { TransformerModel } from './model.ts'
import { NORMS, PROJECTIONS, type ProjectionName, projectionSides, VALUE_HEAD } from './parameters.ts'

/** The columns of weights: the base model's, and those that are trained with their gradient. */
export interface WeightColumns {
  readonly weights: DeviceColumn
  /** The adapter's; null without one. */
  readonly adapter: DeviceColumn | null
}

export interface TransformerColumns extends WeightColumns {
  readonly gradient: DeviceColumn
  readonly numbers: DeviceColumn
  readonly rows: DeviceColumn
  readonly angles: DeviceColumn
  readonly evaluated: DeviceColumn
  readonly derivatives: DeviceColumn
}

/** A column with numbers that never change. */
export interface Constant {
  readonly column: DeviceColumn
  readonly values: Uint32Array
}

/** Where a layer's projection lies: places of its parts in the layer's column of places; null: it has no such part. */
interface Placed {
  readonly name: string
  readonly numOutputs: number
  readonly numInputs: number
  readonly weight: string
  readonly bias: string | null
  readonly a: string | null
  readonly b: string | null
}

/** The steps of the passes with these weights: `forward` leaves `evaluated`, `backward` adds the gradient from `derivatives`. */
export function transformerSteps(
  model: TransformerModel,
  lora: LoraModel | null,
  columns: TransformerColumns,
  activations: ReturnType<typeof activationColumns>,
  blockRows: number,
): { readonly forward: Step[]; readonly backward: Step[]; readonly constants: Constant[] } {
  const { shape } = model
  const { width, numHeads, numKeyHeads, headWidth, feedForwardWidth, queryKeyNorm, rotaryWidth, turnsNeighbors } = shape
  const { weights, adapter, gradient, numbers, rows, angles, evaluated, derivatives } = columns
  const { top, hidden, normed, inverse, activated, dx, dNormed, dActivated, dAttended, dqkv, low, dLow } = activations
  const { logits, running, scratch, chunk, layers } = activations
  const placesOf = (parameters: readonly Parameter[]) =>
    new Map(parameters.map((parameter) => [parameter.name, parameter.offset]))
  const [base, adapted] = [placesOf(model.parameters), placesOf(lora?.parameters ?? [])]
  const isTrained = lora === null
  const rank = lora?.settings.rank ?? 0
  const constants: Constant[] = []
  const forward: Step[] = []
  const backward: Step[] = [] // In the order of the forward pass by pieces; reversed at the end.
  const pieces: Step[][] = []

  /** Collects places of a layer's parameters in a column, so that layers with the same parts share shaders. */
  const placer = (name: string) => {
    const values: number[] = []
    const column = deviceColumn(`places of ${name}`, 32, 'u32')
    constants.push({
      column,
      get values() {
        return Uint32Array.from(values)
      },
    })
    return { column, of: (value: number) => `at[${values.push(value) - 1}u]` }
  }

  const normOf = (weight: string, at: DeviceColumn | null, each = 1, normWidth = width): DeviceNorm => ({
    ...{ width: normWidth, each, epsilon: shape.normEpsilon, offset: shape.normOffset },
    ...{ weight, weights, at, numbers, inverse },
  })
  const whole = (column: DeviceColumn, stride = width, at = 0): NormedRows => ({ column, stride, at })

  /** y[row × stride + at …] = projection of x (+ `plus`). */
  const project = (
    { numOutputs, numInputs, weight, bias, a, b, name }: Placed,
    at: DeviceColumn,
    x: DeviceColumn,
    y: NormedRows,
    plus: DeviceColumn | null,
  ): Step[] => {
    const place = `row * ${y.stride}u + ${y.at}u + column`
    const sum = `value${bias === null ? '' : ` + weights[${bias} + column]`}${plus === null ? '' : ` + plus[row * ${width}u + column]`}`
    const steps = [
      product({
        ...{ name, rows: blockRows, columns: numOutputs, depth: numInputs },
        counted: { dimension: 'rows', each: 1 },
        a: { element: `x[row * ${numInputs}u + k]`, alongDepth: true },
        b: { element: `weights[${weight} + column * ${numInputs}u + k]`, alongDepth: true },
        store: `y[${place}] = ${sum};`,
        bindings: { reads: { x, weights, numbers, at, ...(plus && { plus }) }, writes: { y: y.column } },
      }),
    ]
    if (a === null) return steps
    steps.push(
      projectLow(numInputs, a, at, x),
      product({
        ...{ name: `${name} adapted`, rows: blockRows, columns: numOutputs, depth: rank },
        counted: { dimension: 'rows', each: 1 },
        a: { element: `low[row * ${rank}u + k]`, alongDepth: true },
        b: { element: `adapter[${b} + column * ${rank}u + k]`, alongDepth: true },
        store: `y[${place}] += value;`,
        bindings: { reads: { low, adapter: adapter!, numbers, at }, writes: { y: y.column } },
      }),
    )
    return steps
  }
  const projectLow = (numInputs: number, a: string, at: DeviceColumn, x: DeviceColumn): Step =>
    product({
      ...{ name: 'low', rows: blockRows, columns: rank, depth: numInputs },
      counted: { dimension: 'rows', each: 1 },
      a: { element: `x[row * ${numInputs}u + k]`, alongDepth: true },
      b: { element: `adapter[${a} + column * ${numInputs}u + k]`, alongDepth: true },
      store: `low[row * ${rank}u + column] = value * ${floatOf(lora!.scale)};`,
      bindings: { reads: { x, adapter: adapter!, numbers, at }, writes: { low } },
    })

  /** Adds the gradients by a projection's trained weights, and sets or adds to dIn, from dy. */
  const projectBackward = (
    { numOutputs, numInputs, weight, bias, a, b, name }: Placed,
    at: DeviceColumn,
    x: DeviceColumn,
    dy: NormedRows,
    dIn: DeviceColumn,
    accumulate: boolean,
  ): Step[] => {
    const output = (row: string, k: string) => `dy[${row} * ${dy.stride}u + ${dy.at}u + ${k}]`
    const counted = { dimension: 'depth', each: 1 } as const
    const steps: Step[] = []
    if (isTrained) {
      steps.push(
        ...addProduct(
          {
            ...{ name: `gradient by ${name}`, rows: numOutputs, columns: numInputs, depth: blockRows, counted },
            a: { element: output('k', 'row'), alongDepth: false },
            b: { element: `x[k * ${numInputs}u + column]`, alongDepth: false },
            bindings: { dy: dy.column, x, numbers },
          },
          gradient,
          `${weight} + row * ${numInputs}u + column`,
          { at },
          scratch,
        ),
      )
      if (bias !== null)
        steps.push(
          ...addRowSums({
            ...{ name: 'gradient by biases', width: numOutputs, rows: blockRows, each: 1 },
            element: output('row', 'column'),
            bindings: { dy: dy.column },
            place: `${bias} + column`,
            ...{ at, numbers, gradient, scratch },
          }),
        )
    }
    steps.push(
      product({
        ...{ name: `gradient into ${name}`, rows: blockRows, columns: numInputs, depth: numOutputs },
        counted: { dimension: 'rows', each: 1 },
        a: { element: output('row', 'k'), alongDepth: true },
        b: { element: `weights[${weight} + k * ${numInputs}u + column]`, alongDepth: false },
        store: `dIn[row * ${numInputs}u + column] ${accumulate ? '+=' : '='} value;`,
        bindings: { reads: { dy: dy.column, weights, numbers, at }, writes: { dIn } },
      }),
    )
    if (a === null) return steps
    steps.push(
      projectLow(numInputs, a, at, x),
      product({
        ...{ name: 'gradient by low', rows: blockRows, columns: rank, depth: numOutputs },
        counted: { dimension: 'rows', each: 1 },
        a: { element: output('row', 'k'), alongDepth: true },
        b: { element: `adapter[${b} + k * ${rank}u + column]`, alongDepth: false },
        store: `dLow[row * ${rank}u + column] = value * ${floatOf(lora!.scale)};`,
        bindings: { reads: { dy: dy.column, adapter: adapter!, numbers, at }, writes: { dLow } },
      }),
      ...addProduct(
        {
          ...{ name: 'gradient by B', rows: numOutputs, columns: rank, depth: blockRows, counted },
          a: { element: output('k', 'row'), alongDepth: false },
          b: { element: `low[k * ${rank}u + column]`, alongDepth: false },
          bindings: { dy: dy.column, low, numbers },
        },
        gradient,
        `${b} + row * ${rank}u + column`,
        { at },
        scratch,
      ),
      ...addProduct(
        {
          ...{ name: 'gradient by A', rows: rank, columns: numInputs, depth: blockRows, counted },
          a: { element: `dLow[k * ${rank}u + row]`, alongDepth: false },
          b: { element: `x[k * ${numInputs}u + column]`, alongDepth: false },
          bindings: { dLow, x, numbers },
        },
        gradient,
        `${a} + row * ${numInputs}u + column`,
        { at },
        scratch,
      ),
      product({
        ...{ name: 'gradient through A', rows: blockRows, columns: numInputs, depth: rank },
        counted: { dimension: 'rows', each: 1 },
        a: { element: `dLow[row * ${rank}u + k]`, alongDepth: true },
        b: { element: `adapter[${a} + k * ${numInputs}u + column]`, alongDepth: false },
        store: `dIn[row * ${numInputs}u + column] += value;`,
        bindings: { reads: { dLow, adapter: adapter!, numbers, at }, writes: { dIn } },
      }),
    )
    return steps
  }
  const normGradient = (dy: NormedRows, x: NormedRows, norm: DeviceNorm) =>
    isTrained ? normWeightGradient(gradient, dy, x, norm, scratch, blockRows) : []

  const embedding = base.get('model.embed_tokens.weight')!
  forward.push(gatherTokens(layers[0]!.x, weights, rows, numbers, width, embedding))
  if (isTrained) pieces.push([scatterTokens(gradient, dx, rows, numbers, width, embedding)])

  const qkvStride = (numHeads + 2 * numKeyHeads) * headWidth
  const rawStride = (numHeads + numKeyHeads) * headWidth
  layers.forEach((layer, index) => {
    const prefix = `model.layers.${index}.`
    const places = placer(`layer ${index}`)
    const at = places.column
    const placed = (...names: ProjectionName[]): Placed => {
      const module = `${prefix}${PROJECTIONS[names[0]!]}`
      const sides = names.map((name) => projectionSides(shape, name))
      const part = (of: ReadonlyMap<string, number>, name: string) => {
        const place = of.get(`${module}.${name}`)
        return place === undefined ? null : places.of(place)
      }
      return {
        name: names.join(' and '),
        numOutputs: sides.reduce((sum, [outputs]) => sum + outputs, 0),
        numInputs: sides[0]![1],
        weight: part(base, 'weight')!,
        bias: part(base, 'bias'),
        a: part(adapted, 'lora_A.weight'),
        b: part(adapted, 'lora_B.weight'),
      }
    }
    /** Projections of one input with their places in a row; as one where their weights lie side by side. */
    const together = (into: DeviceColumn, stride: number, from: number, names: readonly ProjectionName[]) => {
      const has = (name: ProjectionName, part: string) =>
        base.has(`${prefix}${PROJECTIONS[name]}.${part}`) || adapted.has(`${prefix}${PROJECTIONS[name]}.${part}`)
      const offset = (name: ProjectionName) => base.get(`${prefix}${PROJECTIONS[name]}.weight`)!
      const isOne = names.every((name, i) => {
        if (has(name, 'bias') || has(name, 'lora_A.weight')) return false
        const [outputs, inputs] = projectionSides(shape, name)
        return i === names.length - 1 || offset(names[i + 1]!) === offset(name) + outputs * inputs
      })
      let place = from
      return (isOne ? [placed(...names)] : names.map((name) => placed(name))).map((projection) => {
        const y: NormedRows = { column: into, stride, at: place }
        place += projection.numOutputs
        return { projection, y }
      })
    }
    const offsetOf = (name: keyof typeof NORMS) => places.of(base.get(`${prefix}${NORMS[name]}.weight`)!)
    const inputNorm = normOf(offsetOf('inputNorm'), at)
    const middleNorm = normOf(offsetOf('feedForwardNorm'), at)
    const { x, raw, qkv, attended, stats, middle, fed } = layer
    const next = layers[index + 1]?.x ?? top
    const keyAt = numHeads * headWidth
    const valueAt = rawStride
    const hasRaw = queryKeyNorm === 'head'
    const inputs = hasRaw
      ? [...together(raw, rawStride, 0, ['q_proj', 'k_proj']), ...together(qkv, qkvStride, valueAt, ['v_proj'])]
      : together(qkv, qkvStride, 0, ['q_proj', 'k_proj', 'v_proj'])
    const parts = hasRaw
      ? ([
          ['queryNorm', 0, numHeads],
          ['keyNorm', keyAt, numKeyHeads],
        ] as const)
      : []
    const headNorms = parts.map(([name, place, heads]) => ({
      norm: normOf(offsetOf(name), at, heads, headWidth),
      from: whole(raw, rawStride, place),
      into: whole(qkv, qkvStride, place),
      dInto: whole(dqkv, qkvStride, place),
    }))
    const output = placed('o_proj')
    const feeds = together(fed, 2 * feedForwardWidth, 0, ['gate_proj', 'up_proj'])
    const down = placed('down_proj')
    const rotation = { heads: numHeads + numKeyHeads, headWidth, rotaryWidth, turnsNeighbors, stride: qkvStride }
    const isTurned = shape.turned[index]!
    const window = shape.windows[index]!
    const attention = { qkv, rows, numbers, attended, stats }
    forward.push(
      normForward(whole(normed), whole(x), inputNorm, blockRows),
      ...inputs.flatMap(({ projection, y }) => project(projection, at, normed, y, null)),
      ...headNorms.map(({ norm, from, into }) => normForward(into, from, norm, blockRows)),
      ...(isTurned ? [rotate(qkv, angles, rows, numbers, rotation, false, blockRows)] : []),
      attentionForward(attention, shape, window, blockRows),
      ...project(output, at, attended, whole(middle), x),
      normForward(whole(normed), whole(middle), middleNorm, blockRows),
      ...feeds.flatMap(({ projection, y }) => project(projection, at, normed, y, null)),
      swigluForward(activated, fed, numbers, feedForwardWidth, blockRows),
      ...project(down, at, activated, whole(next), middle),
    )
    pieces.push([
      swigluForward(activated, fed, numbers, feedForwardWidth, blockRows),
      ...projectBackward(down, at, activated, whole(dx), dActivated, false),
      swigluBackward(fed, dActivated, numbers, feedForwardWidth, blockRows),
      normForward(whole(normed), whole(middle), middleNorm, blockRows),
      ...feeds.flatMap(({ projection, y }, i) => projectBackward(projection, at, normed, y, dNormed, i > 0)),
      ...normGradient(whole(dNormed), whole(middle), middleNorm),
      normBackward(whole(dx), whole(dNormed), whole(middle), middleNorm, true, blockRows),
      ...projectBackward(output, at, attended, whole(dx), dAttended, false),
      ...attentionBackward(attention, dAttended, dqkv, shape, window, blockRows),
      ...(isTurned ? [rotate(dqkv, angles, rows, numbers, rotation, true, blockRows)] : []),
      ...headNorms.flatMap(({ norm, from, into, dInto }) => [
        normForward(into, from, norm, blockRows), // For its factors: queries and keys are no longer needed.
        ...normGradient(dInto, from, norm),
        normBackward(dInto, dInto, from, norm, false, blockRows),
      ]),
      normForward(whole(normed), whole(x), inputNorm, blockRows),
      ...inputs.flatMap(({ projection, y }, i) => {
        const dy = { column: dqkv, stride: qkvStride, at: y.at }
        return projectBackward(projection, at, normed, dy, dNormed, i > 0)
      }),
      ...normGradient(whole(dNormed), whole(x), inputNorm),
      normBackward(whole(dx), whole(dNormed), whole(x), inputNorm, true, blockRows),
    ])
  })

  const lastNorm = normOf(`${base.get('model.norm.weight')!}u`, null)
  const vocabulary = { logits, rows, numbers, running, evaluated, derivatives }
  const headAt = shape.tiedEmbeddings ? embedding : base.get('lm_head.weight')!
  const chunks = Array.from({ length: Math.ceil(shape.vocabularySize / chunk) }, (_, i) => {
    const first = i * chunk
    const tokens = Math.min(chunk, shape.vocabularySize - first)
    const places = placer(`tokens from ${first}`)
    const weight = places.of(headAt + first * width)
    places.of(first)
    const scores = project(
      { name: 'logits', numOutputs: tokens, numInputs: width, weight, bias: null, a: null, b: null },
      places.column,
      hidden,
      { column: logits, stride: tokens, at: 0 },
      null,
    )
    return { places: places.column, tokens, weight, scores, isFirst: i === 0 }
  })
  forward.push(normForward(whole(hidden), whole(top), lastNorm, blockRows))
  for (const { places, tokens, scores } of chunks)
    forward.push(...scores, sumVocabulary(vocabulary, places, tokens, blockRows))
  forward.push(evaluateVocabulary(vocabulary, blockRows))
  const ofHead: Step[] = []
  for (const { places, tokens, weight, scores, isFirst } of chunks) {
    // With one chunk, its logits are still there.
    if (chunks.length > 1) ofHead.push(...scores)
    ofHead.push(
      vocabularyBackward(vocabulary, places, tokens, blockRows),
      ...projectBackward(
        { name: 'logits', numOutputs: tokens, numInputs: width, weight, bias: null, a: null, b: null },
        places,
        hidden,
        { column: logits, stride: tokens, at: 0 },
        dNormed,
        !isFirst,
      ),
    )
  }
  if (model.hasValueHead) {
    const head = adapter === null ? { of: base, column: weights } : { of: adapted, column: adapter }
    const [weight, bias] = [head.of.get(VALUE_HEAD.weight)!, head.of.get(VALUE_HEAD.bias)!]
    forward.push(
      product({
        ...{ name: 'values', rows: blockRows, columns: 1, depth: width },
        counted: { dimension: 'rows', each: 1 },
        a: { element: `hidden[row * ${width}u + k]`, alongDepth: true },
        b: { element: `head[${weight}u + k]`, alongDepth: true },
        store: `evaluated[row * 3u + 2u] = value + head[${bias}u];`,
        bindings: { reads: { hidden, head: head.column, numbers }, writes: { evaluated } },
      }),
    )
    const sums = { rows: blockRows, each: 1, at: null, numbers, gradient, scratch }
    ofHead.push(
      ...addRowSums({
        ...{ name: 'gradient by the value head', width, ...sums },
        element: `derivatives[row * 3u + 2u] * hidden[row * ${width}u + column]`,
        bindings: { derivatives, hidden },
        place: `${weight}u + column`,
      }),
      ...addRowSums({
        ...{ name: 'gradient by the value bias', width: 1, ...sums },
        element: 'derivatives[row * 3u + 2u]',
        bindings: { derivatives },
        place: `${bias}u + column`,
      }),
      product({
        ...{ name: 'gradient of values', rows: blockRows, columns: width, depth: 1 },
        counted: { dimension: 'rows', each: 1 },
        a: { element: 'derivatives[row * 3u + 2u]', alongDepth: true },
        b: { element: `head[${weight}u + column]`, alongDepth: false },
        store: `dNormed[row * ${width}u + column] += value;`,
        bindings: { reads: { derivatives, head: head.column, numbers }, writes: { dNormed } },
      }),
    )
  }
  ofHead.push(
    normForward(whole(hidden), whole(top), lastNorm, blockRows),
    ...normGradient(whole(dNormed), whole(top), lastNorm),
    normBackward(whole(dx), whole(dNormed), whole(top), lastNorm, false, blockRows),
  )
  pieces.push(ofHead)
  for (const piece of pieces.toReversed()) backward.push(...piece)
  return { forward, backward, constants }
}
