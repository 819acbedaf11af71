/** The minibatches of an on-policy algorithm whose policy updates on a device: the transfers to the device and back, and their times. */
import { InputError } from '../../base/errors.ts'
import type { DeviceLoss } from '../../kernels/webgpu/rows.ts'
import type { DeviceUpdate, MinibatchNumbers } from '../../policies/webgpu/contract.ts'
import type { LearnerContext } from '../algorithm.ts'
import type { OptimizerColumns, OptimizerSettings } from '../optimizers/optimizer.ts'

/** Makes the updates of a learner on the device of its policy. */
export async function onDevice(
  id: string,
  settings: OptimizerSettings & { readonly maxGradNorm: number; readonly numMinibatches?: number },
  shader: () => Promise<DeviceLoss>,
  cut: { readonly numUnits: number; readonly minibatchUnits: number },
  optimizer: OptimizerColumns,
  context: LearnerContext,
): Promise<OnDevice> {
  const { updateOnDevice, numParameters, normalizedInputs = 0 } = context.model
  const update = updateOnDevice!({
    numRows: cut.numUnits,
    minibatchRows: cut.minibatchUnits,
    numMinibatches: settings.numMinibatches ?? 1,
    hasMask: context.actionMaskWidth > 0,
    loss: await shader(),
    adam: settings,
    numTrained: numParameters - 2 * normalizedInputs,
  })
  return new OnDevice(id, settings, update, optimizer, context)
}

type OfLoss = Pick<MinibatchNumbers, 'weight' | 'advantageMean' | 'advantageScale'>

export class OnDevice {
  readonly #id: string
  readonly #settings: OptimizerSettings & { readonly maxGradNorm: number }
  readonly #update: DeviceUpdate
  readonly #optimizer: OptimizerColumns
  readonly #context: LearnerContext
  /** The number of rows of each minibatch of the pass, by its index. */
  readonly #numRows = new Map<number, number>()
  /** Powers of β₁ and β₂ after the minibatches so far. */
  readonly #powers = [1, 1]

  constructor(
    id: string,
    settings: OptimizerSettings & { readonly maxGradNorm: number },
    update: DeviceUpdate,
    optimizer: OptimizerColumns,
    context: LearnerContext,
  ) {
    this.#id = id
    this.#settings = settings
    this.#update = update
    this.#optimizer = optimizer
    this.#context = context
  }

  begin(): Promise<void> {
    const { weights, rollout } = this.#context
    this.#powers.splice(0, 2, ...this.#optimizer.betaPowers)
    return this.#update.begin({ ...this.#optimizer, weights, rollout })
  }

  order(order: Uint32Array, count: number): void {
    this.#update.order(order, count)
  }

  minibatch(index: number, first: number, count: number, numbers: OfLoss, learningRate: number): void {
    this.#numRows.set(index, count)
    const settings = this.#settings
    const powers = this.#powers
    powers[0]! *= settings.beta1
    powers[1]! *= settings.beta2
    const [correction1, correction2] = [1 - powers[0]!, 1 - powers[1]!]
    const { maxGradNorm: maxNorm } = settings
    this.#update.minibatch(index, first, count, { ...numbers, learningRate, correction1, correction2, maxNorm })
  }

  /**
   * Waits for the minibatches of a pass, and gives each one's gradient's norm, sums of the loss and number of rows to `account`.
   * @throws InputError for a gradient that is not finite. The arena's weights are then those before the update.
   */
  async endPass(account: (norm: number, sums: Float32Array, numRows: number) => void): Promise<void> {
    const results = await this.#update.results()
    const width = this.#update.resultWidth
    for (const [index, numRows] of this.#numRows) {
      const sums = results.subarray(index * width, (index + 1) * width)
      const norm = sums[width - 1]!
      if (!Number.isFinite(norm)) {
        const expected = 'a finite norm: try a smaller learningRate or smaller rewards'
        throw new InputError(this.#id, `a gradient of norm ${norm}`, expected)
      }
      account(norm, sums, numRows)
    }
    this.#numRows.clear()
  }

  async end(): Promise<void> {
    await this.#update.end({ ...this.#optimizer, weights: this.#context.weights })
    this.#optimizer.betaPowers.set(this.#powers)
  }
}
