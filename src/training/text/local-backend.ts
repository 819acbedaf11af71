/**
 * The backend that computes here: the learner of tokens over the world's memory, with the threads of a team where there are
 * several. A checkpoint of a trainer has what it keeps among the world's columns; `save` and `load` keep the same in a file.
 */
import type { OptimizerSettings } from '../../algorithms/optimizer.ts'
import type { TokenBatch } from '../../algorithms/token-batch.ts'
import { alone, type Together, type TokenLearner, type TokenLossSums } from '../../algorithms/token-learner.ts'
import type { TokensSaid } from '../../algorithms/token-thread.ts'
import type { WeightsDelivery } from '../../engines/engine.ts'
import { InputError } from '../../errors.ts'
import { readSafetensors, tensorOf, tensorValues, writeSafetensors } from '../../safetensors.ts'
import type { BackwardOptions, LossDerivatives, PreparedBatchLoss, TrainingBackend } from '../backend.ts'

/** What a local backend is made of. */
export interface LocalBackendParts {
  readonly learner: TokenLearner
  /** What it trains: the numbers of the adapter, or of the whole model. */
  readonly trained: Float32Array
  /** Goes through what all threads do together; default this thread alone. */
  run?<T>(steps: Together<T>): T | Promise<T>
}

/** A learner in this process. */
export class LocalBackend implements TrainingBackend {
  readonly id = 'local'
  readonly #learner: TokenLearner
  readonly #trained: Float32Array
  readonly #run: NonNullable<LocalBackendParts['run']>
  /** The last call: the next one begins when it is done. */
  #last: Promise<unknown> = Promise.resolve()
  /** How many micro-batches threads have taken. */
  readonly #counts = { taken: new Int32Array(new SharedArrayBuffer(4)) }
  /** Whether a gradient waits for its step. */
  #hasGradient = false

  constructor({ learner, trained, run = alone }: LocalBackendParts) {
    this.#learner = learner
    this.#trained = trained
    this.#run = run
  }

  /** Does it when all that was asked for before is done, whatever came of that. */
  #inTurn<T>(action: () => T | Promise<T>): Promise<T> {
    const done = this.#last.then(action)
    this.#last = done.catch(() => {})
    return done
  }

  /** The same for what leaves a gradient. */
  #gradientInTurn<T>(action: () => T | Promise<T>): Promise<T> {
    return this.#inTurn(async () => {
      if (this.#hasGradient)
        throw new InputError('backend local', 'a gradient before the step of the last', 'optimStep()')
      const made = await action()
      this.#hasGradient = true
      return made
    })
  }

  start(): Promise<void> {
    return this.#inTurn(() => {
      this.#hasGradient = false
      this.#learner.start()
    })
  }

  forward(batch: TokenBatch, whose: 'policy' | 'reference', temperature: number, said: TokensSaid): Promise<void> {
    return this.#inTurn(() => this.#run(this.#learner.evaluate(batch, temperature, whose, said, this.#counts)))
  }

  forwardBackward(
    batch: TokenBatch,
    { loss, totals, given, update }: PreparedBatchLoss,
    { temperature, step }: BackwardOptions,
  ): Promise<TokenLossSums> {
    return this.#gradientInTurn(() =>
      this.#run(this.#learner.differentiate(batch, loss, totals, given, update, temperature, step)),
    )
  }

  backward(batch: TokenBatch, derivatives: LossDerivatives, { temperature, step }: BackwardOptions): Promise<void> {
    return this.#gradientInTurn(() => this.#learner.backward(batch, derivatives, this.#counts, temperature, step))
  }

  optimStep(settings: OptimizerSettings, learningRate: number, maxNorm: number): Promise<number> {
    return this.#inTurn(() => {
      if (!this.#hasGradient)
        throw new InputError('backend local', 'optimStep without a gradient', 'forwardBackward() first')
      this.#hasGradient = false
      return this.#learner.descend(settings, learningRate, maxNorm)
    })
  }

  /** `name` is the path of a safetensors file. */
  save(name: string): Promise<string> {
    return this.#inTurn(async () => {
      await writeSafetensors(
        name,
        Object.entries(this.#kept()).map(([key, column]) => tensorOf(key, column)),
      )
      return name
    })
  }

  load(name: string): Promise<void> {
    return this.#inTurn(async () => {
      const { tensors } = await readSafetensors(name)
      const kept = Object.entries(this.#kept())
      const read = kept.map(([key, column]) => {
        const tensor = tensors.get(key)
        const values = tensor === undefined ? null : tensorValues(tensor)
        if (values?.length === column.length && values.constructor === column.constructor) return values
        const got = tensor === undefined ? `no tensor ${key}` : `${tensor.type} ${key} of ${values!.length} numbers`
        throw new InputError(`backend local, ${name}`, got, `${column.length} numbers, as of this model and optimizer`)
      })
      for (const [i, [, column]] of kept.entries()) column.set(read[i] as Float64Array)
      this.#hasGradient = false
    })
  }

  /** The columns that go on from one step to the next. */
  #kept(): Record<string, Float32Array | Float64Array> {
    const { reference, optimizer } = this.#learner.columns
    const columns = { trained: this.#trained, reference, ...optimizer }
    return Object.fromEntries(Object.entries(columns).filter(([, { length }]) => length > 0))
  }

  weights(version: number): Promise<WeightsDelivery> {
    return this.#inTurn(() => ({ version, weights: this.#trained }))
  }
}
