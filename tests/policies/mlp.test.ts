import { describe, expect, test } from 'vitest'
import { Random, Stream } from '../../src/base/random.ts'
import { box, choiceSizes, discrete, multiDiscrete, type Space, spaceType, spaceWidth } from '../../src/base/space.ts'
import type { Action } from '../../src/components/action.ts'
import { takeArena } from '../../src/components/arena.ts'
import { type Columns, column, type Plan } from '../../src/components/column.ts'
import type { Episode } from '../../src/components/episode.ts'
import { createKernels } from '../../src/kernels/bind.ts'
import { mlp } from '../../src/policies/mlp.ts'
import { BLOCK_ROWS, type Evaluated, type LossOf, type Rows } from '../../src/policies/policy.ts'

const INFINITY = Number.POSITIVE_INFINITY
type Settings = NonNullable<Parameters<typeof mlp>[0]>

const spaces: Record<string, Space> = {
  discrete: discrete(3),
  'multi-discrete': multiDiscrete([3, 2]),
  box: box({ low: -INFINITY, high: INFINITY, shape: [2] }),
}
const observationSpace = (width: number) => box({ low: -INFINITY, high: INFINITY, shape: [width] })
/** Every pair of a head and of whether the layers are shared. */
const heads = Object.keys(spaces).flatMap((head) => [false, true].map((sharedTrunk) => [head, sharedTrunk] as const))

/** A network over columns of one arena, its weights drawn so large that every head has something to say. */
function makePolicy(settings: Settings, width: number, actionSpace: Space, seed = 4) {
  const model = mlp(settings).build(observationSpace(width), actionSpace)
  const size = model.numParameters
  const plan = { weights: column('f32', size), gradient: column('f32', size), workspace: model.workspace() }
  const { arena, columns } = takeArena(plan)
  const random = new Random(seed)
  for (let i = 0; i < size; i++) {
    random.draw(Stream.initialize, 999, 0, i)
    columns.weights[i] = 0.4 * random.normal(0, 0)
  }
  const kernels = createKernels(arena.memory, 'plain')
  const policy = model.bind(columns.weights, columns.workspace as Columns<Plan>, kernels, random)
  return { model, policy, weights: columns.weights, gradient: columns.gradient }
}

/** What lanes see and where they stand: `numLanes` of them, row n for lane `order[n]`. */
function makeLanes(order: readonly number[], width: number, actionSpace: Space) {
  const numLanes = order.length
  const random = new Random(8)
  const current = new Float32Array(numLanes * width)
  for (const [n, lane] of order.entries()) {
    for (let k = 0; k < width; k++) {
      random.draw(Stream.reset, lane, 0, k)
      current[n * width + k] = random.normal(0, 0)
    }
  }
  const length = numLanes * spaceWidth(actionSpace)
  const chosen = spaceType(actionSpace) === 'f32' ? new Float32Array(length) : new Int32Array(length)
  const action: Action = {
    chosen,
    applied: chosen,
    logprob: new Float32Array(numLanes).fill(Number.NaN),
    value: new Float32Array(numLanes).fill(Number.NaN),
  }
  const episode: Episode = {
    lane: Uint32Array.from(order),
    episode: Uint32Array.from(order, (lane) => lane % 5),
    step: Int32Array.from(order, (lane) => (lane * 7) % 11),
    episodeReturn: new Float64Array(numLanes),
    phase: new Uint8Array(numLanes),
  }
  return {
    observation: { current, next: new Float32Array(current.length) },
    actionMask: { current: new Uint8Array(0), next: new Uint8Array(0) },
    memory: { current: new Float32Array(0), next: new Float32Array(0) },
    action,
    episode,
    numLanes,
  }
}

/** What lanes saw and did, as a minibatch's rows. */
function rowsOf({ observation, actionMask, memory, action }: ReturnType<typeof makeLanes>): Rows {
  return {
    observation: observation.current,
    action: action.chosen,
    actionMask: actionMask.current,
    memory: memory.current,
    continues: new Uint8Array(0),
  }
}

const range = (length: number) => Array.from({ length }, (_, i) => i)
const sum = (x: readonly number[]) => x.reduce((total, value) => total + value, 0)

/** The whole network by its definition, in f64: logprob, entropy and value of one row. */
function networkTwin(
  weights: ArrayLike<number>,
  settings: Settings,
  actionSpace: Space,
  observation: number[],
  action: number[],
): { logprob: number; entropy: number; value: number } {
  let at = 0
  const take = (length: number) => {
    at += length
    return Array.from({ length }, (_, i) => weights[at - length + i]!)
  }
  const layer = (x: number[], numOutputs: number, f: (sum: number) => number) => {
    const weight = take(x.length * numOutputs)
    return take(numOutputs).map((bias, j) => f(bias + sum(x.map((input, k) => input * weight[k * numOutputs + j]!))))
  }
  const linear = (x: number) => x
  const activation = settings.activation === 'relu' ? (x: number) => Math.max(0, x) : Math.tanh
  const normed = (x: number[]) => {
    const mean = sum(x) / x.length
    const deviation = Math.sqrt(sum(x.map((value) => (value - mean) ** 2)) / x.length + 1e-5)
    const [weight, bias] = [take(x.length), take(x.length)]
    return x.map((value, k) => activation(((value - mean) / deviation) * weight[k]! + bias[k]!))
  }
  const hidden = (x: number[], width: number) =>
    settings.layerNorm === true ? normed(layer(x, width, linear)) : layer(x, width, activation)
  const trunk = () => settings.hidden!.reduce<number[]>(hidden, observation)

  const actorTop = trunk()
  let logprob = 0
  let entropy = 0
  if (actionSpace.kind === 'box') {
    const mean = layer(actorTop, spaceWidth(actionSpace), linear)
    for (const [k, logStd] of take(mean.length).entries()) {
      const z = (action[k]! - mean[k]!) / Math.exp(logStd)
      logprob += -0.5 * z * z - logStd - 0.5 * Math.log(2 * Math.PI)
      entropy += 0.5 + 0.5 * Math.log(2 * Math.PI) + logStd
    }
  } else {
    const sizes = actionSpace.kind === 'discrete' ? [actionSpace.n] : actionSpace.sizes
    const logits = layer(actorTop, sum(sizes), linear)
    let start = 0
    for (const [c, size] of sizes.entries()) {
      const segment = logits.slice(start, start + size)
      const total = sum(segment.map(Math.exp))
      logprob += segment[action[c]!]! - Math.log(total)
      entropy -= sum(segment.map((z) => (Math.exp(z) / total) * (z - Math.log(total))))
      start += size
    }
  }
  const [value] = layer(settings.sharedTrunk ? actorTop : trunk(), 1, linear)
  expect(at).toBe(weights.length)
  return { logprob, entropy, value: value! }
}

describe('parameters', () => {
  test('are laid out by layer, actor first, without gaps', () => {
    const model = mlp({ hidden: [64, 64] }).build(observationSpace(4), discrete(2))
    expect(model.parameters).toEqual([
      { name: 'actor.0.weight', offset: 0, shape: [4, 64] },
      { name: 'actor.0.bias', offset: 256, shape: [64] },
      { name: 'actor.1.weight', offset: 320, shape: [64, 64] },
      { name: 'actor.1.bias', offset: 4416, shape: [64] },
      { name: 'actor.head.weight', offset: 4480, shape: [64, 2] },
      { name: 'actor.head.bias', offset: 4608, shape: [2] },
      { name: 'critic.0.weight', offset: 4610, shape: [4, 64] },
      { name: 'critic.0.bias', offset: 4866, shape: [64] },
      { name: 'critic.1.weight', offset: 4930, shape: [64, 64] },
      { name: 'critic.1.bias', offset: 9026, shape: [64] },
      { name: 'critic.head.weight', offset: 9090, shape: [64, 1] },
      { name: 'critic.head.bias', offset: 9154, shape: [1] },
    ])
    expect(model.numParameters).toBe(9155)
  })

  test('of a shared trunk are there once', () => {
    const model = mlp({ hidden: [8], sharedTrunk: true }).build(observationSpace(3), multiDiscrete([3, 2]))
    expect(model.parameters.map(({ name, shape }) => [name, ...shape])).toEqual([
      ['trunk.0.weight', 3, 8],
      ['trunk.0.bias', 8],
      ['actor.head.weight', 8, 5],
      ['actor.head.bias', 5],
      ['critic.head.weight', 8, 1],
      ['critic.head.bias', 1],
    ])
    expect(model.numParameters).toBe(24 + 8 + 40 + 5 + 8 + 1)
  })

  test('of a box have log standard deviations after the actor’s head', () => {
    const names = mlp({ hidden: [] })
      .build(observationSpace(3), spaces.box!)
      .parameters.map(({ name }) => name)
    expect(names).toEqual([
      'actor.head.weight',
      'actor.head.bias',
      'actor.logStd',
      'critic.head.weight',
      'critic.head.bias',
    ])
  })

  test('are seen through views that cover the column, each element once', () => {
    for (const [head, sharedTrunk] of heads) {
      const { model, policy, weights } = makePolicy({ hidden: [5, 3], sharedTrunk }, 4, spaces[head]!)
      const views = policy.view(weights)
      expect(views.map((view) => view.length)).toEqual(
        model.parameters.map(({ shape }) => shape.reduce((product, side) => product * side, 1)),
      )
      for (const [i, view] of views.entries()) view.fill(i + 1)
      expect(weights.every((weight) => weight > 0)).toBe(true)
      expect(sum(views.map((view) => view.length))).toBe(model.numParameters)
    }
  })
})

describe('starting weights', () => {
  const settings = { hidden: [16, 5], logStd: -0.5 }
  const start = (seed: number, key: number, more: Settings = {}) => {
    const model = mlp({ ...settings, ...more }).build(observationSpace(7), spaces.box!)
    const weights = new Float32Array(model.numParameters).fill(9)
    model.initialize(weights, new Random(seed), key)
    return { model, weights }
  }
  const gains: Record<string, number> = { 'actor.head': 0.01, 'critic.head': 1 }

  test('are orthogonal with the gain of their layer; biases are 0; log deviations as set', () => {
    for (const sharedTrunk of [false, true]) {
      const { model, weights } = start(3, 0, { sharedTrunk })
      for (const { name, offset, shape } of model.parameters) {
        const [rows, columns] = [shape[0]!, shape[1]!]
        const view = weights.subarray(offset, offset + shape.reduce((product, side) => product * side, 1))
        if (name.endsWith('.bias')) expect(view.every((x) => x === 0)).toBe(true)
        else if (name === 'actor.logStd') expect([...view]).toEqual([-0.5, -0.5])
        else {
          const gain = gains[name.replace('.weight', '')] ?? Math.SQRT2
          // Along the longer side the vectors are orthonormal: WᵀW or WWᵀ is gain² · I.
          const tall = rows >= columns
          const entry = (vector: number, i: number) => view[tall ? i * columns + vector : vector * columns + i]!
          for (let a = 0; a < Math.min(rows, columns); a++) {
            for (let b = 0; b <= a; b++) {
              const product = sum(range(Math.max(rows, columns)).map((i) => entry(a, i) * entry(b, i)))
              expect(Math.abs(product / gain ** 2 - (a === b ? 1 : 0))).toBeLessThan(1e-6)
            }
          }
        }
      }
    }
  })

  test('are the same for the same seed and key, and differ with the seed, the key and the layer', () => {
    const { model, weights } = start(3, 0)
    expect(start(3, 0).weights).toEqual(weights)
    expect(start(4, 0).weights).not.toEqual(weights)
    expect(start(3, 1).weights).not.toEqual(weights)
    const part = (wanted: string) => {
      const { offset, shape } = model.parameters.find(({ name }) => name === wanted)!
      return [...weights.subarray(offset, offset + shape[0]! * shape[1]!)]
    }
    expect(part('actor.0.weight')).not.toEqual(part('critic.0.weight'))
  })

  test('point in all directions: the mean over many keys is 0', () => {
    const n = 300
    const means = new Float64Array(7 * 16)
    for (let key = 0; key < n; key++) {
      const { weights } = start(3, key)
      for (let i = 0; i < means.length; i++) means[i]! += weights[i]! / n
    }
    // Each is at most √2 in size and has a mean square of 2 / 16: five standard errors.
    expect(Math.max(...means.map(Math.abs))).toBeLessThan(5 * Math.sqrt(2 / 16 / n))
  })
})

describe.each([[[]], [[1]], [[64, 64]], [[33, 7]]])('a network with hidden layers %j', (hidden) => {
  test.each(heads)('for a %s action (shared: %j) evaluates to what it inferred, bit for bit', (head, sharedTrunk) => {
    const space = spaces[head]!
    const { policy } = makePolicy({ hidden, sharedTrunk }, 5, space)
    const lanes = makeLanes(range(BLOCK_ROWS + 45), 5, space)
    const rows = rowsOf(lanes)
    for (const explore of [true, false]) {
      policy.infer(lanes, explore, 0, lanes.numLanes)
      for (const [from, count] of [
        [0, BLOCK_ROWS],
        [BLOCK_ROWS, 45],
        [17, 100],
        [200, 1],
      ] as const) {
        const { logprob, value } = policy.evaluate(rows, from, count) as Evaluated
        expect([...logprob.subarray(0, count)]).toEqual([...lanes.action.logprob.subarray(from, from + count)])
        expect([...value.subarray(0, count)]).toEqual([...lanes.action.value.subarray(from, from + count)])
      }
      const values = new Float32Array(lanes.numLanes)
      policy.values(values, rowsOf(lanes), lanes.numLanes)
      expect([...values]).toEqual([...lanes.action.value])
    }
    expect(new Set(lanes.action.value).size).toBeGreaterThan(hidden[0] === 1 ? 100 : 290)
  })

  test.each(['discrete', 'multi-discrete'])('for a %s action never chooses what the mask forbids', (head) => {
    const space = spaces[head]!
    const sizes = choiceSizes(space)
    const { policy, gradient, weights } = makePolicy({ hidden }, 5, space)
    const lanes = makeLanes(range(300), 5, space)
    // Of each dimension the choice that the lane's number names is legal, and of every third lane one more.
    const masks = range(300).map((n) =>
      sizes.map((size) => range(size).map((j) => +(j === n % size || (n % 3 === 0 && j === 1)))),
    )
    const actionMask = Uint8Array.from(masks.flat(2))
    const masked = { ...lanes, actionMask: { current: actionMask, next: actionMask } }
    for (const explore of [true, false]) {
      policy.infer(masked, explore, 0, 300)
      for (const [n, mask] of masks.entries()) {
        for (const [k, legal] of mask.entries()) expect(legal[lanes.action.chosen[n * sizes.length + k]!]).toBe(1)
        const only = mask.every((legal) => sum(legal) === 1)
        if (only)
          expect(lanes.action.logprob[n]).toBe(0) // The only choice is certain.
        else expect(lanes.action.logprob[n]).toBeLessThan(0)
      }
      const { logprob } = policy.evaluate(rowsOf(masked), 17, 100) as Evaluated
      expect([...logprob.subarray(0, 100)]).toEqual([...lanes.action.logprob.subarray(17, 117)])
    }
    // Where a head's choice is always masked, no gradient reaches it.
    const never = Uint8Array.from(masks.flatMap(() => sizes.flatMap((size) => range(size).map((j) => +(j !== 0)))))
    const without = { ...lanes, actionMask: { current: never, next: never } }
    policy.infer(without, true, 0, 100)
    const lossOf: LossOf = (_, { dLogprob, dEntropy, dValue }, __, count) => {
      dLogprob.fill(1, 0, count)
      dEntropy.fill(-0.3, 0, count)
      dValue.fill(0, 0, count)
    }
    policy.differentiate(rowsOf(without), 0, 100, lossOf, policy.view(gradient))
    const bias = policy.view(gradient)[2 * hidden.length + 1]! // Of the actor's head, which stands after its hidden layers.
    expect(bias).toHaveLength(sum([...sizes]))
    // A choice that is the only one left has no gradient either.
    const still = sizes.flatMap((size) => range(size).map((j) => j === 0 || size === 2))
    expect([...bias].map((d) => d === 0)).toEqual(still)
    expect(weights.every(Number.isFinite)).toBe(true)
  })

  test.each(heads)('for a %s action (shared: %j) treats a row alike in any company and place', (head, sharedTrunk) => {
    const space = spaces[head]!
    const width = spaceWidth(space)
    const { policy } = makePolicy({ hidden, sharedTrunk }, 5, space)
    const together = makeLanes(range(40), 5, space)
    policy.infer(together, true, 0, 40)
    const at = ({ action }: typeof together, n: number) => [
      ...action.chosen.subarray(n * width, (n + 1) * width),
      action.logprob[n],
      action.value[n],
    ]
    // Every third lane in falling order, in two calls, with lanes around them that were not there before.
    const order = [101, ...range(40).filter((lane) => lane % 3 === 0), 102, 103].toReversed()
    const apart = makeLanes(order, 5, space)
    policy.infer(apart, true, 0, 6)
    policy.infer(apart, true, 6, order.length)
    for (const [n, lane] of order.entries()) if (lane < 40) expect(at(apart, n)).toEqual(at(together, lane))
  })
})

describe('inference', () => {
  test.each(heads)('of a %s action (shared: %j) agrees with the network in f64', (head, sharedTrunk) => {
    const space = spaces[head]!
    for (const activation of ['tanh', 'relu'] as const) {
      const settings = { hidden: [7, 6], activation, sharedTrunk }
      const { policy, weights } = makePolicy(settings, 5, space)
      const lanes = makeLanes(range(30), 5, space)
      policy.infer(lanes, true, 0, 30)
      const { entropy } = policy.evaluate(rowsOf(lanes), 0, 30) as Evaluated
      const width = spaceWidth(space)
      for (let n = 0; n < 30; n++) {
        const observation = [...lanes.observation.current.subarray(5 * n, 5 * n + 5)]
        const action = [...lanes.action.chosen.subarray(width * n, width * (n + 1))]
        const twin = networkTwin(weights, settings, space, observation, action)
        // Three layers round their outputs to f32.
        expect(Math.abs(lanes.action.logprob[n]! - twin.logprob)).toBeLessThan(
          2e-6 * Math.max(1, Math.abs(twin.logprob)),
        )
        expect(Math.abs(lanes.action.value[n]! - twin.value)).toBeLessThan(2e-6 * Math.max(1, Math.abs(twin.value)))
        expect(Math.abs(entropy[n]! - twin.entropy)).toBeLessThan(2e-6 * Math.max(1, Math.abs(twin.entropy)))
      }
    }
  })

  test.each(Object.keys(spaces))(
    'of a %s action draws anew at each step if it explores, and repeats itself if not',
    (head) => {
      const space = spaces[head]!
      const { policy } = makePolicy({ hidden: [6] }, 5, space)
      const lanes = makeLanes(range(60), 5, space)
      const infer = (explore: boolean) => {
        policy.infer(lanes, explore, 0, 60)
        return [...lanes.action.chosen]
      }
      const [sampled, mode] = [infer(true), infer(false)]
      expect(infer(true)).toEqual(sampled)
      expect(mode).not.toEqual(sampled)
      lanes.episode.step.forEach((step, n) => {
        lanes.episode.step[n] = step + 1
      })
      expect(infer(true)).not.toEqual(sampled)
      expect(infer(false)).toEqual(mode)
    },
  )

  test('writes the lanes of its range and no others', () => {
    const space = spaces.discrete!
    const { policy } = makePolicy({ hidden: [6] }, 5, space)
    const lanes = makeLanes(range(9), 5, space)
    policy.infer(lanes, true, 3, 7)
    const written = [...lanes.action.value].map((value) => !Number.isNaN(value))
    expect(written).toEqual(range(9).map((n) => n >= 3 && n < 7))
    expect([...lanes.action.logprob].map((logprob) => !Number.isNaN(logprob))).toEqual(written)
  })
})

describe('differentiate', () => {
  test.each([
    // Parameters in mlp's order, w[i] = float32(0.5 * sin(i + 1)); five observations of three, float32(cos(i));
    // a discrete and a binary choice; separate trunks of one tanh layer of 4.
    // (logprob.exp() - 0.1 * entropy + 0.5 * (value - 1)**2).sum().backward()
    // logprob; entropy; value; w.grad
    {
      head: 'multi-discrete',
      settings: { hidden: [4], activation: 'tanh', sharedTrunk: false } as Settings,
      frequency: 1,
      action: Int32Array.of(0, 1, 1, 0, 2, 1, 1, 1, 0, 0),
      logprob: [-1.74810408, -1.69153054, -1.67696334, -2.06468725, -1.85794598],
      entropy: [1.78804814, 1.69859007, 1.78926715, 1.71804228, 1.78882551],
      value: [-0.873686446, -0.555164754, -0.799044643, -0.659196148, -0.712241746],
      gradient: [
        0.0287049458, 0.090348077, 0.0249866822, -0.115420046, 0.0235838905, 0.0547572279, 0.00910394447, -0.073179038,
        -0.00322008578, -0.0311771634, -0.015148917, 0.0363424399, -0.0592426016, 0.0104784994, 0.0708609144,
        -0.0135085758, 0.0191448938, 0.00215875047, -0.0213036443, -0.0328617358, 0.0328617358, 0.0993789228,
        -0.0926914557, -0.00668746709, -0.0888740896, 0.0888740896, 0.101282125, -0.115681663, 0.0143995377,
        -0.0767528672, 0.0767528672, -0.000181020446, -0.0219774782, 0.0221584987, 0.0169249264, -0.0169249264,
        0.074952883, 0.0388018531, -0.113754736, -0.0818431243, 0.0818431243, -0.737991433, 0.172717295, 0.0802773758,
        0.876850229, -0.580707916, 0.117481856, 0.0630960413, 0.67920439, 0.110475813, -0.0457658439, -0.0120955111,
        -0.142898865, -3.87761797, -1.85386468, 1.06548808, 3.94263992, 2.49010197, 4.15372298, 2.62974264, -1.89445258,
        -8.59933374,
      ],
    },
    // The same with w[i] = float32(0.5 * sin(0.7 * (i + 1))), a shared trunk of relu layers of 3 and 2, and box actions
    // float32(sin(2 * i)).
    {
      head: 'box',
      settings: { hidden: [3, 2], activation: 'relu', sharedTrunk: true } as Settings,
      frequency: 0.7,
      action: Float32Array.from(range(10), (i) => Math.sin(2 * i)),
      logprob: [-2.68839109, -2.25032325, -3.25619687, -2.73959802, -2.27157801],
      entropy: Array(5).fill(3.20407022),
      value: [0.143526331, 0.461571807, 0.143526331, 0.377606099, 0.161109391],
      gradient: [
        -0.00212063011, -0.18117972, -0.0595004354, -0.00228044084, -0.0614031676, -0.0178354989, -0.000343624688,
        0.114827159, 0.040227308, -0.00251302979, 0.852373531, 0.292035214, -0.28193896, -0.236091911, -0.357602889,
        -0.304557423, -0.363973001, -0.313838973, -0.991152777, -0.850544432, -0.00637904355, 0.00832788016,
        -0.0133570608, 0.0239729684, 0.076394362, 0.0725035062, -0.77273606, -0.746730455, -0.212713206, -0.540479191,
        -3.71266004,
      ],
    },
    // The same two with a LayerNorm before each activation (torch.nn.functional.layer_norm, in f64): its weight and bias follow a layer's.
    {
      head: 'multi-discrete',
      settings: { hidden: [4], activation: 'tanh', sharedTrunk: false, layerNorm: true } as Settings,
      frequency: 1,
      action: Int32Array.of(0, 1, 1, 0, 2, 1, 1, 1, 0, 0),
      logprob: [-2.55515513, -1.40847792, -2.23442413, -1.83823925, -1.85156851],
      entropy: [1.7014078, 1.75926372, 1.6988845, 1.74950494, 1.6963944],
      value: [-0.297618286, -0.0457276358, -0.297610952, -0.202292063, -0.297498534],
      gradient: [
        0.089127558, -0.100041891, -0.0168506721, 0.0277650048, 0.0568603754, -0.063402684, -0.00849019543, 0.015032504,
        -0.0276839739, 0.0315286576, 0.00767612805, -0.0115208117, -0.050519515, 0.126905941, -0.0315313698,
        -0.0448550566, 0.0976260757, -0.0631323733, 0.0639438043, -0.028652762, 0.00295725508, -0.0578304011,
        -0.0144108535, 0.0176885361, 0.0972648278, -0.111409139, 0.014144311, -0.030008929, 0.030008929, -0.0212059176,
        -0.0140406277, 0.0352465454, 0.0156742847, -0.0156742847, 0.00973460142, -0.0690097678, 0.0592751664,
        -0.00134050441, 0.00134050441, -0.00244118153, -0.10556216, 0.108003341, 0.00982914402, -0.00982914402,
        0.00243639327, 0.136273138, -0.138709531, -0.00509735168, 0.00509735168, 0.443164912, 1.62423611, -2.00843655,
        -0.0589644718, 0.327729906, 1.3110014, -1.51044724, -0.128284059, -0.0890184661, -0.207561941, 0.37624028,
        -0.0796598723, -0.082987636, -2.50652875, 2.89432304, -0.304806645, -3.01531155, 0.247382136, -1.30347961,
        -0.470287232, 2.58310933, 0.959192764, -1.62582239, -2.7138776, -2.34611495, -2.26901222, 1.41721943,
        2.06258499, -6.14074747,
      ],
    },
    {
      head: 'box',
      settings: { hidden: [3, 5], activation: 'relu', sharedTrunk: true, layerNorm: true } as Settings,
      frequency: 0.7,
      action: Float32Array.from(range(10), (i) => Math.sin(2 * i)),
      logprob: [-2.71278763, -1.38706559, -3.20499047, -2.82144494, -1.17960726],
      entropy: [2.08356908, 2.08356908, 2.08356908, 2.08356908, 2.08356908],
      value: [-0.0670734101, -0.0169032961, -0.0681620257, -0.0169032961, -0.0686135234],
      gradient: [
        0.102134122, -0.086830623, -0.0153034988, 0.0741566232, -0.0639881484, -0.0101684748, -0.0220001331,
        0.0176847352, 0.00431539796, 0.107261982, -0.0914825075, -0.0157794743, 0, 0, -0.778165717, 0, 0, 0.554789132,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.145794177, -0.373919192, 0.478639532, 1.02415631, -1.27467082, 0.174725718,
        -0.739092856, 0.948463711, 2.16834873, -2.5524453, 0, 0, -0.613055109, -1.9573482, 0, 0, 0, -2.55940489,
        -2.07216771, 0, 0, 0, 0, 0, -0.0699803174, 0.0567723015, -0.025434774, 0.0175222474, 0, 0, -0.16958747,
        0.157206402, -0.882646391, -0.758787637, 0, 0, -1.60166372, -0.372183482, 0, -5.23765555,
      ],
    },
  ])('gives the gradient that torch gives for a $head action, $settings', (golden) => {
    const { policy, weights, gradient } = makePolicy(golden.settings, 3, spaces[golden.head]!)
    weights.set(range(weights.length).map((i) => 0.5 * Math.sin(golden.frequency * (i + 1))))
    const observation = Float32Array.from(range(15), Math.cos)
    const lossOf: LossOf = ({ logprob, entropy, value }, { dLogprob, dEntropy, dValue }, _, count) => {
      for (let row = 0; row < count; row++) {
        expect(logprob[row]).toBeCloseTo(golden.logprob[row]!, 5)
        expect(entropy[row]).toBeCloseTo(golden.entropy[row]!, 5)
        expect(value[row]).toBeCloseTo(golden.value[row]!, 5)
        dLogprob[row] = Math.exp(logprob[row]!)
        dEntropy[row] = -0.1
        dValue[row] = value[row]! - 1
      }
    }
    const rows: Rows = {
      observation,
      action: golden.action,
      actionMask: new Uint8Array(0),
      memory: new Float32Array(0),
      continues: new Uint8Array(0),
    }
    policy.differentiate(rows, 0, 5, lossOf, policy.view(gradient))
    expect(gradient).toHaveLength(golden.gradient.length)
    for (const [i, d] of golden.gradient.entries()) {
      expect(Math.abs(gradient[i]! - d), `${i}`).toBeLessThan(1e-6 * Math.max(1, Math.abs(d)))
    }
  })

  const cases = heads.flatMap(([head, sharedTrunk]) =>
    (['tanh', 'relu'] as const).flatMap((activation) => [
      ...[[], [4], [5, 3], [3, 4, 2]].map((hidden) => [head, { hidden, activation, sharedTrunk }] as const),
      [head, { hidden: [7, 5], activation, sharedTrunk, layerNorm: true }] as const,
    ]),
  )
  test.each(cases)('equals the differences of the whole loss in f64: %s, %j', (head, settings) => {
    const space = spaces[head]!
    const width = spaceWidth(space)
    const [from, count] = [3, 6]
    const { policy, weights, gradient } = makePolicy(settings, 3, space, 12)
    const lanes = makeLanes(range(from + count), 3, space)
    policy.infer(lanes, true, 0, from + count)
    const rows = rowsOf(lanes)
    // A loss that is not linear in anything and not the same for two rows.
    const lossOf: LossOf = ({ logprob, entropy, value }, { dLogprob, dEntropy, dValue }, first, length) => {
      expect([first, length]).toEqual([from, count])
      for (let row = 0; row < length; row++) {
        dLogprob[row] = (row + 1) * Math.exp(logprob[row]! + 1)
        dEntropy[row] = 2 * entropy[row]! - row
        dValue[row] = value[row]! - row
      }
    }
    const loss = (w: Float64Array) =>
      sum(
        range(count).map((row) => {
          const n = from + row
          const observation = [...rows.observation.subarray(3 * n, 3 * n + 3)]
          const action = [...rows.action.subarray(width * n, width * (n + 1))]
          const { logprob, entropy, value } = networkTwin(w, settings, space, observation, action)
          return (row + 1) * Math.exp(logprob + 1) + entropy ** 2 - row * entropy + 0.5 * (value - row) ** 2
        }),
      )
    policy.differentiate(rows, from, count, lossOf, policy.view(gradient))
    const wide = Float64Array.from(weights)
    const size = Math.sqrt(sum(Array.from(gradient, (d) => d * d)))
    const H = 1e-6
    let nonzero = 0
    for (let i = 0; i < wide.length; i++) {
      const at = wide[i]!
      wide[i] = at + H
      const above = loss(wide)
      wide[i] = at - H
      const below = loss(wide)
      wide[i] = at
      // f32 in every layer, and differences good to about 1e-8: 2e-6 of the length of the gradient.
      expect(Math.abs(gradient[i]! - (above - below) / (2 * H))).toBeLessThan(2e-6 * Math.max(1, size))
      if (gradient[i] !== 0) nonzero++
    }
    expect(nonzero).toBeGreaterThan(wide.length / 4)
  })

  test.each(heads)(
    'asks for the loss of a %s action (shared: %j) once, with what evaluate says',
    (head, sharedTrunk) => {
      const space = spaces[head]!
      const { policy, gradient } = makePolicy({ hidden: [4], sharedTrunk }, 3, space)
      const lanes = makeLanes(range(20), 3, space)
      policy.infer(lanes, true, 0, 20)
      const rows = rowsOf(lanes)
      const calls: number[][] = []
      const lossOf: LossOf = (evaluated, derivatives, from, count) => {
        calls.push([from, count])
        expect([...evaluated.logprob.subarray(0, count)]).toEqual([
          ...lanes.action.logprob.subarray(from, from + count),
        ])
        expect([...evaluated.value.subarray(0, count)]).toEqual([...lanes.action.value.subarray(from, from + count)])
        for (const column of pick(derivatives)) expect(column).toHaveLength(BLOCK_ROWS)
        for (const column of pick(derivatives)) column.fill(0, 0, count)
      }
      policy.differentiate(rows, 7, 11, lossOf, policy.view(gradient))
      expect(calls).toEqual([[7, 11]])
      expect(gradient.every((d) => d === 0)).toBe(true)
    },
  )

  test.each(heads)('adds to the gradient of a %s action (shared: %j), so that blocks add up', (head, sharedTrunk) => {
    const space = spaces[head]!
    const { policy, gradient } = makePolicy({ hidden: [6, 5], sharedTrunk }, 3, space)
    const lanes = makeLanes(range(20), 3, space)
    policy.infer(lanes, true, 0, 20)
    const rows = rowsOf(lanes)
    const lossOf: LossOf = ({ logprob, value }, { dLogprob, dEntropy, dValue }, _, count) => {
      for (let row = 0; row < count; row++) {
        dLogprob[row] = logprob[row]!
        dEntropy[row] = 0.5
        dValue[row] = value[row]! - 1
      }
    }
    policy.differentiate(rows, 0, 20, lossOf, policy.view(gradient))
    const whole = gradient.slice()
    gradient.fill(0)
    for (const [from, count] of [
      [0, 13],
      [13, 7],
    ] as const) {
      policy.differentiate(rows, from, count, lossOf, policy.view(gradient))
    }
    const size = Math.sqrt(sum(Array.from(whole, (d) => d * d)))
    expect(size).toBeGreaterThan(1)
    for (const [i, d] of whole.entries()) expect(Math.abs(gradient[i]! - d)).toBeLessThan(1e-6 * size)
  })
})

/** The three columns of derivatives. */
function pick({ dLogprob, dEntropy, dValue }: Parameters<LossOf>[1]): Float32Array[] {
  return [dLogprob, dEntropy, dValue]
}

test('a space that is no box cannot be observed', () => {
  expect(() => mlp().build(discrete(3), discrete(2))).toThrow(/^mlp observation space: got .+, expected a box$/)
})
