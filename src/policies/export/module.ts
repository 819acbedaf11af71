/**
 * Policies as one ES module without dependencies, for browsers and Node: base64 weights, and the arithmetic of the plain kernels (sums in
 * f64 over the inputs in ascending order, rounded once), so that results are bit-identical.
 */
import { base64Of, joined } from '../../base/bytes.ts'
import type { BoxSpace } from '../../base/space.ts'
import { VERSION } from '../../base/version.ts'
import { NORM_EPSILON } from '../stack/norm.ts'
import { headWidth, type Network, type WeightedLayer } from './network.ts'

export function moduleText(network: Network): string {
  const { environment, observationShape, actionSpace, logStd, masked } = network
  const data: Uint8Array[] = []
  let length = 0
  const place = (column: Float32Array): number => {
    const from = length
    data.push(new Uint8Array(column.buffer))
    length += column.length
    return from
  }
  const stack = (layers: readonly WeightedLayer[]): string => {
    const lines = layers.map(({ numInputs, numOutputs, activation, weight, bias, norm }) => {
      const places = [weight, bias, ...(norm === null ? [] : [norm.weight, norm.bias])].map(place)
      return `  ['${activation}', ${[numInputs, numOutputs, ...places].join(', ')}],\n`
    })
    return `[${lines.length > 0 ? '\n' : ''}${lines.join('')}]`
  }
  const stacks = { trunk: stack(network.trunk), actor: stack(network.actor), critic: stack(network.critic) }
  const deviations = logStd === null ? 0 : place(logStd)
  const inputs = network.inputs && [place(network.inputs.center), place(network.inputs.deviation), network.inputs.clip]
  const hasNorm = [network.trunk, network.actor, network.critic].some((layers) =>
    layers.some(({ norm }) => norm !== null),
  )
  const mask = masked ? ', actionMask' : ''
  const width = observationShape.reduce((product, side) => product * side, 1)
  const head = logStd === null ? 'logits' : 'mean'
  const seen = `checked('observation', observation, ${width})`
  const told = logStd === null ? head : `${head}, logStd`
  return `/**
 * The policy of ${oneLine(environment)}, exported by Colonnade ${VERSION}. No dependencies.
 *
 *     act(observation${mask})      the most probable action: ${describeAction(network)}
 *     evaluate(observation${mask}) { ${told}, value }
 *
 * An observation is ${width} numbers, row-major where its shape has several sides.${
   masked ? ` A mask is ${headWidth(network)} numbers,\n * 0 where a choice is illegal.` : ''
 }
 */
export const observationShape = ${JSON.stringify(observationShape)}
export const actionSpace = ${literal(actionSpace)}

/** The most probable action. */
export function act(observation${mask}) {
${ACT[actionSpace.kind](network)}
}

/** The outputs that determine the action, and the critic's value of the observation. */
export function evaluate(observation${mask}) {
  const below = run(trunk, ${inputs === null ? seen : `normalized(${seen})`})
  const ${head} = run(actor, below)
${masked ? maskLines(network) : ''}  const [value] = run(critic, below)
  return { ${head}, ${logStd === null ? '' : `logStd: weights.slice(${deviations}, ${deviations + logStd.length}), `}value }
}

/** Layers as [activation, inputs, outputs, place of the weight, place of the bias${hasNorm ? ', and places of a norm' : ''}]. */
const trunk = ${stacks.trunk}
const actor = ${stacks.actor}
const critic = ${stacks.critic}

${inputs === null ? '' : normalizedText(inputs)}function run(layers, x) {
  const active = (sum, activation) =>
    activation === 'tanh' ? Math.tanh(sum) : activation === 'relu' ? Math.max(0, sum) : sum
  for (const [activation, numInputs, numOutputs, weight, bias${hasNorm ? ', normWeight, normBias' : ''}] of layers) {
    const y = new Float32Array(numOutputs)
    for (let j = 0; j < numOutputs; j++) {
      let sum = weights[bias + j]
      for (let k = 0; k < numInputs; k++) sum += x[k] * weights[weight + k * numOutputs + j]
      y[j] = ${hasNorm ? 'normWeight === undefined ? active(sum, activation) : sum' : 'active(sum, activation)'}
    }
    x = ${hasNorm ? 'normWeight === undefined ? y : normed(y, normWeight, normBias).map((sum) => active(sum, activation))' : 'y'}
  }
  return x
}

${hasNorm ? NORMED : ''}function checked(name, numbers, length) {
  if (numbers?.length !== length) throw new RangeError(\`\${name}: got \${numbers?.length} numbers, expected ${'$'}{length}\`)
  const column = Float32Array.from(numbers)
  const wrong = column.findIndex((x) => !Number.isFinite(x))
  if (wrong >= 0) throw new RangeError(\`\${name}: got \${numbers[wrong]} in element \${wrong}, expected a finite number\`)
  return column
}
${actionSpace.kind === 'box' ? '' : LARGEST}
const weights = new Float32Array(
  Uint8Array.from(
    atob('${base64Of(joined(data))}'),
    (letter) => letter.charCodeAt(0),
  ).buffer,
)
`
}

/** Normalizes observations: positions of means and deviations among the weights, and the clip. */
function normalizedText([center, deviation, clip]: readonly number[]): string {
  return `function normalized(x) {
  return x.map((value, k) => {
    const y = Math.fround((value - weights[${center!} + k]) / weights[${deviation!} + k])
    return Math.min(Math.max(y, ${-clip!}), ${clip!})
  })
}

`
}

/** The body of \`act\`, by the kind of the action space. */
const ACT = {
  discrete: ({ masked, choices }: Network) =>
    `  return largest(evaluate(observation${masked ? ', actionMask' : ''}).logits, 0, ${choices[0]})`,
  'multi-discrete': ({ masked }: Network) => `  const { logits } = evaluate(observation${masked ? ', actionMask' : ''})
  let end = 0
  return actionSpace.sizes.map((size) => largest(logits, end, (end += size)))`,
  box: () => `  const { low, high } = actionSpace
  return Array.from(evaluate(observation).mean, (mean, k) => Math.min(Math.max(mean, low[k]), high[k]))`,
}

const NORMED = `/** LayerNorm, with the places of its weight and bias. */
function normed(x, weight, bias) {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length
  const squares = x.reduce((sum, value) => sum + (value - mean) ** 2, 0)
  const inverse = 1 / Math.sqrt(squares / x.length + ${NORM_EPSILON})
  return x.map((value, k) => (value - mean) * inverse * weights[weight + k] + weights[bias + k])
}

`

const LARGEST = `
/** The place of the largest logit of a segment, counted from its start; the first of equals. */
function largest(logits, start, end) {
  let best = start
  for (let j = start + 1; j < end; j++) if (logits[j] > logits[best]) best = j
  return best - start
}
`

function maskLines(network: Network): string {
  return `  const legal = checked('actionMask', actionMask, ${headWidth(network)})
  for (let j = 0; j < logits.length; j++) if (legal[j] === 0) logits[j] = -1e9
`
}

function describeAction({ actionSpace }: Network): string {
  if (actionSpace.kind === 'discrete') return `a number from 0 to ${actionSpace.n - 1}`
  if (actionSpace.kind === 'multi-discrete') return `a list of ${actionSpace.sizes.length}, each from 0 on`
  return `a list of ${actionSpace.low.length}, within bounds`
}

/** A space as JavaScript, with its bounds as the f32 values of training, infinite ones included. */
function literal(space: Network['actionSpace']): string {
  if (space.kind !== 'box') return JSON.stringify(space)
  const list = (bounds: readonly number[]) => `[${bounds.map((bound) => String(Math.fround(bound))).join(', ')}]`
  const { shape, low, high } = space as BoxSpace
  return `{ kind: 'box', shape: ${JSON.stringify(shape)}, low: ${list(low)}, high: ${list(high)} }`
}

/** Makes a name safe for a comment: removes line breaks and the comment's end. */
function oneLine(name: string): string {
  return name.replace(/[\n\r\u2028\u2029]/g, ' ').replaceAll('*/', '* /')
}
