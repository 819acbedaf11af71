/** What every policy on a device does, whichever device it is: one suite, called by a test file for each process. */
import type { Tensor2D } from '@tensorflow/tfjs-core'
import type { SymbolicTensor } from '@tensorflow/tfjs-layers'
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type NetworkFunction, network } from '../../src/entries/devices.ts'
import {
  breakout,
  cartPole,
  cartPolePosition,
  collect,
  convolutional,
  createTrainer,
  createWorld,
  dense,
  evaluate,
  InputError,
  mlp,
  pendulum,
  ppo,
  recurrent,
} from '../../src/index.ts'
import { type Device, type DeviceName, startDevice, startDeviceFrom } from '../../src/policies/devices/device.ts'
import type { Layers, Tf } from '../../src/policies/devices/tfjs.ts'
import type { Evaluated, LossOf, PolicyDefinition, Rows } from '../../src/policies/policy.ts'
import type { EpisodeCohort } from '../../src/world/episodes/cohort.ts'
import type { World } from '../../src/world/world.ts'
import type { Made } from '../support/cache.ts'
import { skipLoudly } from '../support/command.ts'
import { doors } from '../support/doors.ts'
import { isThorough, rowsOf } from '../support/tiers.ts'

/** A world after some ticks, its rollout full; plain kernels take rows that lie anywhere. */
export async function played(policy: PolicyDefinition, environment = cartPole(), numLanes = 12, numSteps = 16) {
  const world = await createWorld({ environment, policy, numLanes, seed: 3, kernels: 'plain' })
  world.reserve(world.draft(), { numSteps, learner: {} })
  try {
    await collect(world, numSteps)
  } catch (error) {
    world.close()
    throw error
  }
  return { world, cohort: world.cohorts[0]! }
}

/** The rows of lanes one after another: what a policy that is trained on sequences of whole rollouts is handed. */
export function sequencesOf({ rollout, numLanes, numSteps, model }: EpisodeCohort): Rows {
  const order = Array.from({ length: numLanes }, (_, n) =>
    Array.from({ length: numSteps }, (__, t) => t * numLanes + n),
  ).flat()
  const numRows = order.length
  const gather = <C extends Float32Array | Int32Array | Uint8Array>(column: C): C => {
    const width = column.length / numRows
    const gathered = column.slice() as C
    for (const [i, row] of order.entries()) gathered.set(column.subarray(row * width, (row + 1) * width), i * width)
    return gathered
  }
  const step = gather(rollout.step)
  return {
    observation: gather(rollout.observation),
    action: gather(rollout.action),
    actionMask: gather(rollout.actionMask),
    memory: model.memoryWidth ? gather(rollout.memory) : new Float32Array(0),
    continues: Uint8Array.from(order, (_, i) => (i % numSteps !== 0 && step[i] !== 0 ? 1 : 0)),
  }
}

/** A loss with something to say about everything: its derivatives depend on what the network says. */
const lossOf: LossOf = ({ logprob, entropy, value }, { dLogprob, dEntropy, dValue }, _, count) => {
  for (let row = 0; row < count; row++) {
    dLogprob[row] = Math.sin(row) + 0.5 * logprob[row]!
    dEntropy[row] = Math.cos(row) * entropy[row]!
    dValue[row] = value[row]! - 1
  }
}
/** What that loss is the derivative of. */
function loss({ logprob, entropy, value }: Evaluated, count: number): number {
  let sum = 0
  for (let row = 0; row < count; row++) {
    sum += Math.sin(row) * logprob[row]! + 0.25 * logprob[row]! ** 2
    sum += 0.5 * Math.cos(row) * entropy[row]! ** 2 + 0.5 * (value[row]! - 1) ** 2
  }
  return sum
}

export async function gradientOf({ policy, weights }: EpisodeCohort, rows: Rows, count: number) {
  const gradient = new Float32Array(weights.length)
  await policy.differentiate(rows, 0, count, lossOf, policy.view(gradient))
  return gradient
}

/** Largest difference over the largest number. */
export function relativeError(a: Float32Array, b: Float32Array): number {
  const largest = b.reduce((max, x) => Math.max(max, Math.abs(x)), 0)
  return a.reduce((max, x, i) => Math.max(max, Math.abs(x - b[i]!)), 0) / largest
}

/** Gives the weights some size, so that every part has a say. */
export function enlarge({ weights, policy }: EpisodeCohort): void {
  for (let i = 0; i < weights.length; i++) weights[i] = weights[i]! + 0.1 * Math.sin(i)
  policy.refresh?.()
}

/**
 * Expects of each parameter's middle weight, in the thorough tier also of the first and the last, the gradient that finite
 * differences give.
 */
export async function expectSlopes(cohort: EpisodeCohort, rows: Rows, count: number): Promise<void> {
  const nudge = 0.002 // Small: a relu has kinks.
  const gradient = await gradientOf(cohort, rows, count)
  const at = async () => loss(await cohort.policy.evaluate(rows, 0, count), count)
  const largest = gradient.reduce((max, x) => Math.max(max, Math.abs(x)), 0)
  for (const { offset, shape, name } of cohort.model.parameters) {
    const size = shape.reduce((product, side) => product * side, 1)
    for (const place of new Set(rowsOf([offset + (size >> 1), offset, offset + size - 1]))) {
      const weight = cohort.weights[place]!
      const sides: number[] = []
      for (const step of [nudge, -nudge]) {
        cohort.weights[place] = weight + step
        cohort.policy.refresh?.()
        sides.push(await at())
      }
      cohort.weights[place] = weight
      const slope = (sides[0]! - sides[1]!) / (2 * nudge)
      expect(Math.abs(gradient[place]! - slope), `${name} ${place}`).toBeLessThan(0.02 * largest)
    }
  }
  cohort.policy.refresh?.()
}

const environments = { discrete: cartPole(), 'multi-discrete with masks': doors(), box: pendulum() }

/** The suite on one device; `find` says in which folder its packages are, or why they are not here. */
export function networkSuite(device: DeviceName, find?: () => Promise<Made>): void {
  describe(`on ${device}`, () => suite(device, find))
}

function suite(device: DeviceName, find?: () => Promise<Made>): void {
  /**
   * Each operation of WebGPU takes 0.5 ms and more without a GPU, and one whose product has at most 128 elements takes that for
   * each of them. So there are fewer steps of more lanes there, and fewer updates, and gradients are held against wasm's. What is ours and
   * the same on every device, like where a memory begins, is asked of the quick ones alone.
   */
  const isSlow = device === 'webgpu'
  const [numLanes, numSteps] = isSlow ? [24, 4] : [12, 16]
  const numRows = numLanes * numSteps
  let tf: Tf
  let tfLayers: Layers
  let backend: string
  let skipped: string | undefined
  let before = 0
  beforeAll(async () => {
    const found = await find?.()
    if (found !== undefined && 'why' in found) {
      skipped = `device ${device} (${found.why})`
      return
    }
    // A device that has started is found again by its name, from wherever it came.
    const started: Device = await startDeviceFrom([`${found?.folder ?? ''}/`], device)
    tf = started.tf
    backend = started.backend
    tfLayers = await started.layers()
  })
  beforeEach(async (context) => {
    if (skipped !== undefined) skipLoudly(context, skipped)
    await startDevice(device)
    before = tf.memory().numTensors
  })
  let open: World[] = []
  afterEach(() => {
    for (const world of open) world.close()
    open = []
    if (skipped !== undefined) return
    expect(tf.memory().numTensors, 'tensors that were left behind').toBe(before)
  })
  const play = async (policy: PolicyDefinition, environment = cartPole(), lanes = numLanes, steps = numSteps) => {
    const { world, cohort } = await played(policy, environment, lanes, steps)
    open.push(world)
    return cohort
  }

  test.each(
    Object.entries(environments)
      .flatMap(([name, environment]) => [[name, false, environment] as const, [name, true, environment] as const])
      .filter(([name, sharedTrunk]) => !isSlow || sharedTrunk === (name === 'discrete')),
  )('dense is mlp for %s actions (shared: %j): logprob, value and gradient', async (_, sharedTrunk, environment) => {
    const settings = { hidden: [16, 12], sharedTrunk }
    const fused = await play(mlp(settings), environment)
    const here = await play(dense({ ...settings, device }), environment)
    expect(here.model.parameters).toEqual(fused.model.parameters)
    expect(here.weights).toEqual(fused.weights)
    const rows = sequencesOf(fused)
    const theirs = (await fused.policy.evaluate(rows, 0, numRows)) as unknown as Record<string, Float32Array>
    const ours = (await here.policy.evaluate(rows, 0, numRows)) as unknown as Record<string, Float32Array>
    for (const name of ['logprob', 'entropy', 'value']) {
      for (let row = 0; row < numRows; row++)
        expect(Math.abs(ours[name]![row]! - theirs[name]![row]!)).toBeLessThan(1e-5)
    }
    expect(relativeError(await gradientOf(here, rows, numRows), await gradientOf(fused, rows, numRows))).toBeLessThan(
      1e-4,
    )
  })

  test('dense learns as mlp does', async () => {
    // An episode has to end within the steps.
    const [numLanes, numSteps, updates, maxEpisodeSteps] = isSlow ? [48, 4, 1, 3] : [8, 64, 8, 500]
    const curve = async (policy: PolicyDefinition) => {
      const world = await createWorld({ environment: cartPole({ maxEpisodeSteps }), policy, numLanes, seed: 1 })
      open.push(world)
      const trainer = createTrainer(world, ppo({ numSteps, numMinibatches: 2, updateEpochs: 2, learningRate: 1e-3 }))
      const returns: number[] = []
      for await (const { episodeReturn } of trainer.updates({ totalSteps: updates * numLanes * numSteps })) {
        returns.push(episodeReturn)
      }
      return { returns, weights: world.cohorts[0]!.weights }
    }
    const fused = await curve(mlp({ hidden: [16] }))
    const here = await curve(dense({ hidden: [16], device }))
    expect(relativeError(here.weights, fused.weights)).toBeLessThan(0.05)
    for (const [i, episodeReturn] of here.returns.entries()) {
      expect(Math.abs(episodeReturn / fused.returns[i]! - 1)).toBeLessThan(0.1)
    }
  })

  const sequenceLength = numSteps
  // Episodes end within every sequence.
  const position = cartPolePosition({ maxEpisodeSteps: 3 })
  const networksOn = (device: DeviceName): [string, PolicyDefinition, typeof environments.discrete][] => [
    ['dense, relu', dense({ hidden: [9], activation: 'relu', device }), environments.discrete],
    ['convolutional', convolutional({ filters: [3], hidden: [5], activation: 'tanh', device }), breakout()],
    ['GRU', recurrent({ units: 7, hidden: [5], sharedTrunk: true, sequenceLength, device }), position],
    ['GRU, two trunks, masks', recurrent({ units: 5, hidden: [], sequenceLength, device }), doors()],
    ['LSTM', recurrent({ cell: 'lstm', units: 6, hidden: [], sharedTrunk: true, sequenceLength, device }), position],
    [
      'GRU, box',
      recurrent({ units: 6, hidden: [4], sharedTrunk: true, sequenceLength, device }),
      pendulum({ maxEpisodeSteps: 3 }),
    ],
  ]
  // In software: one with each kind of cell; images have shaders of our own there (webgpu.test.ts).
  const chosen = (made: ReturnType<typeof networksOn>) =>
    made.filter(([name]) => !isSlow || /^(GRU, two trunks, masks|LSTM)$/.test(name))
  const networks = chosen(networksOn(device))
  // What a device's kernels compute is asked of these; how tensors are handed about, in software, of fewer.
  const some = (names: RegExp) => networks.filter(([name]) => !isSlow || names.test(name))

  test.each(networks)('%s evaluates to what it inferred', async (_, policy, environment) => {
    const cohort = await play(policy, environment)
    const rows = sequencesOf(cohort)
    const { logprob, value } = await cohort.policy.evaluate(rows, 0, numRows)
    const { rollout, numLanes, numSteps } = cohort
    for (let n = 0; n < numLanes; n++) {
      for (let t = 0; t < numSteps; t++) {
        const [i, row] = [n * numSteps + t, t * numLanes + n]
        expect(Math.abs(logprob[i]! - rollout.logprob[row]!)).toBeLessThan(2e-5 * Math.max(1, Math.abs(logprob[i]!)))
        expect(Math.abs(value[i]! - rollout.value[row]!)).toBeLessThan(2e-5)
      }
    }
    expect(new Set(rollout.value).size).toBeGreaterThan(isSlow ? 10 : 20)
  })

  test.runIf(isSlow).each(networks.map((given, i) => [...given, chosen(networksOn('wasm'))[i]![1]] as const))(
    '%s has the gradient that wasm gives',
    async (_, policy, environment, onWasm) => {
      const cohort = await play(policy, environment)
      enlarge(cohort)
      const rows = sequencesOf(cohort)
      const gradient = await gradientOf(cohort, rows, numRows)
      const reference = await play(onWasm, environment)
      enlarge(reference)
      expect(relativeError(gradient, await gradientOf(reference, rows, numRows))).toBeLessThan(1e-4)
      await startDevice(device)
    },
  )

  test.skipIf(isSlow).each(networks)(
    '%s has the gradient that finite differences give',
    async (_, policy, environment) => {
      const cohort = await play(policy, environment)
      enlarge(cohort)
      await expectSlopes(cohort, sequencesOf(cohort), numRows)
    },
  )

  /** What a policy says of rows, and the gradient. */
  const saidBy = async (cohort: EpisodeCohort, rows: Rows) => {
    const { logprob, entropy, value } = await cohort.policy.evaluate(rows, 0, numRows)
    const all = [logprob, entropy, value].map((column) => column.slice(0, numRows))
    return [...all, await gradientOf(cohort, rows, numRows)]
  }

  test.runIf(device === 'wasm').each(networks)(
    '%s: a layer as one operation has the bits of its single operations, in value and gradient',
    async (_, policy, environment) => {
      const cohort = await play(policy, environment)
      enlarge(cohort)
      const rows = sequencesOf(cohort)
      const said = () => saidBy(cohort, rows)
      const kernels = ['DenseLayer', 'DenseLayerGrad', 'BiasLayer', 'BiasLayerGrad'].map((name) =>
        tf.getKernel(name, backend),
      )
      const whole = await said()
      for (const { kernelName } of kernels) tf.unregisterKernel(kernelName, backend)
      try {
        expect(await said()).toEqual(whole)
      } finally {
        for (const kernel of kernels) tf.registerKernel(kernel)
      }
    },
  )

  test.runIf(isSlow)('has no cells as one operation: they go step by step', () => {
    expect(['Gru', 'GruGrad', 'Lstm', 'LstmGrad'].filter((name) => tf.getKernel(name, backend))).toEqual([])
  })

  test.skipIf(isSlow).each(networks.slice(2))(
    '%s: the cell as one operation is the cell step by step, in value and gradient',
    async (_, policy, environment) => {
      const cohort = await play(policy, environment)
      enlarge(cohort)
      const rows = sequencesOf(cohort)
      const said = () => saidBy(cohort, rows)
      const atOnce = await said()
      const kernels = ['Gru', 'GruGrad', 'Lstm', 'LstmGrad'].map((name) => tf.getKernel(name, backend))
      for (const { kernelName } of kernels) tf.unregisterKernel(kernelName, backend)
      try {
        const byStep = await said()
        for (const [i, column] of byStep.entries()) expect(relativeError(atOnce[i]!, column)).toBeLessThan(1e-5)
        expect(atOnce.at(-1), 'the last digits of another order of sums').not.toEqual(byStep.at(-1))
      } finally {
        for (const kernel of kernels) tf.registerKernel(kernel)
      }
    },
  )

  test.each(some(/masks$/))('%s leaves no tensors behind where the loss throws', async (_, policy, environment) => {
    const { policy: network, weights, ...cohort } = await play(policy, environment)
    const rows = sequencesOf(cohort as EpisodeCohort)
    await gradientOf({ policy: network, weights } as EpisodeCohort, rows, numRows)
    const { numTensors, numBytes } = tf.memory()
    const pass = async () =>
      network.differentiate(
        rows,
        0,
        numRows,
        () => {
          throw new Error('out of order')
        },
        network.view(new Float32Array(weights.length)),
      )
    await expect(pass()).rejects.toThrow('out of order')
    expect(tf.memory()).toMatchObject({ numTensors, numBytes })
  })

  test.skipIf(isSlow)(
    'what happened before an episode has no part in it: the memory is empty where one begins',
    async () => {
      const policy = recurrent({ units: 2, hidden: [], sequenceLength: 16, device })
      const { rollout, numLanes } = await play(policy, cartPolePosition({ maxEpisodeSteps: 5 }), 12, 16)
      let begun = 0
      for (let row = 0; row < rollout.step.length; row++) {
        const memory = rollout.memory.subarray(4 * row, 4 * row + 4)
        expect(memory.every((x) => x === 0)).toBe(rollout.step[row] === 0)
        if (rollout.step[row] === 0 && row >= numLanes) begun++
      }
      expect(begun).toBeGreaterThan(10)
    },
  )

  test.skipIf(isSlow)(
    'a burn-in brings the memory up to date: with the weights that played, it changes nothing',
    async () => {
      const whole = recurrent({ units: 4, hidden: [], sequenceLength: 16, device })
      const burned = recurrent({ units: 4, hidden: [], sequenceLength: 10, burnIn: 6, device })
      const cohort = await play(whole, cartPolePosition(), 12, 16)
      const { model, policy } = await play(burned, cartPolePosition(), 12, 16)
      expect(model.sequence).toEqual({ length: 10, burnIn: 6 })
      const rows = sequencesOf(cohort)
      const all = await cohort.policy.evaluate(rows, 0, 192)
      const expected = Array.from({ length: 120 }, (_, i) => all.logprob[Math.floor(i / 10) * 16 + 6 + (i % 10)]!)
      const late = (column: Int32Array) => column.filter((_, i) => i % 16 >= 6)
      const { logprob } = await policy.evaluate({ ...rows, action: late(rows.action as Int32Array) }, 0, 120)
      for (const [i, x] of expected.entries()) expect(Math.abs(logprob[i]! - x)).toBeLessThan(1e-5)
    },
  )

  test.each(some(/^convolutional|masks$/))(
    '%s is trained by ppo, and leaves no tensors behind',
    async (_, policy, environment) => {
      const [numMinibatches, updateEpochs, updates] = isSlow || !isThorough ? [1, 1, 2] : [2, 2, 5]
      const world = await createWorld({ environment, policy, numLanes, seed: 1 })
      open.push(world)
      const trainer = createTrainer(world, ppo({ numSteps, numMinibatches, updateEpochs }))
      let tensors: number | undefined
      for await (const { policyLoss, gradNorm, update } of trainer.updates({ totalSteps: updates * numRows })) {
        expect(policyLoss).not.toBeNaN()
        expect(gradNorm).toBeGreaterThan(0)
        if (update === 1) tensors = tf.memory().numTensors
        expect(tf.memory().numTensors).toBe(tensors)
      }
    },
  )

  test('evaluate plays with it', async () => {
    const environment = cartPole({ maxEpisodeSteps: 30 })
    const policies = [mlp({ hidden: [8] }), dense({ hidden: [8], device })]
    const { numParameters } = policies[0]!.build(environment.observationSpace, environment.actionSpace)
    const weights = Float32Array.from({ length: numParameters }, (_, i) => Math.sin(3 * i))
    const [fused, here] = await Promise.all(policies.map((policy) => evaluate({ environment, policy, weights })))
    expect(here).toEqual(fused)
  })

  describe('network', () => {
    const model = (outputs: (features: SymbolicTensor) => SymbolicTensor[], inputShape = [4]) => {
      const input = tfLayers.input({ shape: inputShape })
      const hidden = tfLayers.layers.dense({ units: 8, activation: 'tanh' }).apply(input) as SymbolicTensor
      const made = tfLayers.model({ inputs: input, outputs: outputs(hidden) })
      before = tf.memory().numTensors // A model keeps its weights.
      return made
    }
    const apply = (units: number) => (x: SymbolicTensor) => tfLayers.layers.dense({ units }).apply(x) as SymbolicTensor

    test('takes a layers model for a trunk, and puts heads on it', async () => {
      const cohort = await play(
        network(
          model((x) => [x]),
          { device },
        ),
      )
      expect(cohort.model.parameters.map(({ shape }) => shape)).toEqual([[4, 8], [8], [8, 2], [2], [8, 1], [1]])
    })

    test('takes a layers model with logits and values, and learns its weights', async () => {
      const layers = model((x) => [apply(2)(x), apply(1)(x)])
      const start = await Promise.all(layers.getWeights().map(async (weight) => [...(await weight.data())]))
      before = tf.memory().numTensors
      const policy = network(layers, { device })
      const cohort = await play(policy)
      expect([...cohort.weights]).toEqual(start.flat())
      const world = await createWorld({ environment: cartPole(), policy, numLanes })
      open.push(world)
      const trainer = createTrainer(world, ppo({ numSteps, numMinibatches: isSlow ? 1 : 2, updateEpochs: 2 }))
      for await (const _ of trainer.updates({ totalSteps: 2 * numRows }));
      expect([...world.cohorts[0]!.weights]).not.toEqual(start.flat())
      // Two worlds share the model's variables: each acts by its own weights.
      const { value } = await cohort.policy.evaluate({ ...sequencesOf(cohort) }, 0, numRows)
      expect(Math.abs(value[0]! - cohort.rollout.value[0]!)).toBeLessThan(1e-5)
    })

    const functional = (forward: NetworkFunction['forward']): NetworkFunction => ({
      parameters: [
        {
          name: 'w',
          shape: [4, 3],
          initialize: (values) =>
            values.forEach((_, i) => {
              values[i] = Math.sin(i)
            }),
        },
      ],
      forward,
    })

    test('takes a function of tensors', async () => {
      const policy = network(
        functional((tf, weights, x) => {
          const y: Tensor2D = tf.matMul(x, weights('w') as Tensor2D)
          return [tf.slice(y, [0, 0], [-1, 2]), tf.slice(y, [0, 2], [-1, 1])]
        }),
        { device },
      )
      const { rollout } = await play(policy)
      const [a, b, c, d] = rollout.observation
      const value = a! * Math.sin(2) + b! * Math.sin(5) + c! * Math.sin(8) + d! * Math.sin(11)
      expect(rollout.value[0]).toBeCloseTo(value, 5)
    })

    test('that throws in the middle of a pass leaves no tensors behind', async () => {
      let calls = 0
      const policy = network(
        functional((tf, weights, x) => {
          const y: Tensor2D = tf.matMul(x, weights('w') as Tensor2D)
          if (++calls === 20) throw new Error('out of order')
          return [tf.slice(y, [0, 0], [-1, 2]), tf.slice(y, [0, 2], [-1, 1])]
        }),
        { device },
      )
      for (const at of [1, 12, 20]) {
        calls = at - 1
        const world = await createWorld({ environment: cartPole(), policy, numLanes: 4 })
        const trainer = createTrainer(world, ppo({ numSteps: 16, numMinibatches: 2 }))
        const training = (async () => {
          for await (const _ of trainer.updates({ totalSteps: 640 }));
        })()
        await expect(training).rejects.toThrow('out of order')
        world.close()
        expect(tf.memory().numTensors).toBe(before)
      }
    })

    test.each([
      [
        'outputs that do not fit the action space',
        () =>
          network(
            model((x) => [apply(3)(x), apply(1)(x)]),
            { device },
          ),
        /network network, outputs: got \[\[null,3\],\[null,1\]\], expected outputs of 2 .+ and 1/,
      ],
      [
        'values of the wrong width',
        () =>
          network(
            model((x) => [apply(2)(x), apply(2)(x)]),
            { device },
          ),
        /outputs: got/,
      ],
      [
        'an input of another width',
        () =>
          network(
            model((x) => [x], [5]),
            { device },
          ),
        /inputs: got \[\[null,5\]\], expected one input of 4 numbers/,
      ],
      [
        'a function whose outputs have other shapes',
        () =>
          network(
            functional((tf, w, x) => [tf.matMul(x, w('w') as Tensor2D), x]),
            { device },
          ),
        /network network, output: got \[4,3\], expected a tensor of shape \[4,2\]/,
      ],
      [
        'an observation that is no image',
        () => convolutional({ device }),
        /convolutional observation space: got .+, expected a box of shape height × width × channels/,
      ],
    ])('refuses %s, before training starts', async (_, make, message) => {
      const starting = played(make(), cartPole(), 4, 4)
      await expect(starting).rejects.toThrow(InputError)
      await expect(starting).rejects.toThrow(message)
    })

    test('refuses weights that are not finite', async () => {
      const layers = model((x) => [x])
      layers.layers[1]!.setWeights([tf.fill([4, 8], Number.NaN), tf.zeros([8])])
      before = tf.memory().numTensors
      await expect(played(network(layers, { device }))).rejects.toThrow(
        /network network, weight .+: got NaN at 0, expected finite numbers/,
      )
    })

    test('refuses what is no network', () => {
      expect(() => network({} as never)).toThrow(
        'network(model): got {}, expected a tfjs layers model, or { parameters, forward }',
      )
    })
  })
}
