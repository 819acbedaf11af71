/**
 * The caller's side of a language model trainer's threads. Workers start when needed, and again after `close`. Thread 0
 * has environment, tokenizer and trajectories, and does the small ordered work alone. Workers have only the model, and
 * share weights and cache. Batches are messages, which they read after a meeting.
 */

import type { Together, TokenLearnerColumns } from '../../../algorithms/tokens/token-learner.ts'
import type { TokenWork } from '../../../algorithms/tokens/token-thread.ts'
import { Work } from '../../../base/clock.ts'
import { sharedBytes } from '../../../base/shared.ts'
import { sendColumns } from '../../../components/places.ts'
import type { DecodingWorkers } from '../../../engines/engine.ts'
import { optionsOf } from '../../../language/transformer/model.ts'
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'
import type { World } from '../../../world/world.ts'
import { Aborted, CONTROL_WORDS, type TextOrder } from '../../threads/orders.ts'
import { Team } from '../../threads/team.ts'

/** Values of a command's first number. */
export const TextCommand = {
  /** Decode a token in each lane of the share; the second number counts the lanes. */
  decode: 0,
  /** Do the posted `TokenWork`. */
  learn: 1,
} as const

export class TextTeam implements DecodingWorkers {
  readonly #world: World
  readonly #cohort: ConversationCohort
  readonly #traces: readonly Float64Array[]
  readonly #command = new Float64Array(sharedBytes(16))
  #team: Team | undefined
  #isClosed = true

  /** `traces` has room for each worker's intervals of work, if recorded. */
  constructor(world: World, cohort: ConversationCohort, traces: readonly Float64Array[]) {
    this.#world = world
    this.#cohort = cohort
    this.#traces = traces
  }

  /** Keeps the workers ready until `rest`: they hold the process, and decode if it pays off. */
  async wake(): Promise<void> {
    if (this.#isClosed) {
      this.#isClosed = false
      this.#team = await this.#start()
      if (this.#isClosed) this.#team.end() // Closed while the workers were starting.
    }
    this.#team!.hold(true)
    this.#ready(this)
  }

  rest(): void {
    this.#ready(null)
    this.#team?.hold(false)
  }

  /** Gives the cohort's engine its helping threads, if it supports them. */
  #ready(workers: DecodingWorkers | null): void {
    const { threads } = this.#cohort.engine
    if (threads !== null) threads.workers = workers
  }

  /** Sets the workers' work, after they have met. */
  post(work: TokenWork): void {
    this.#command[0] = TextCommand.learn
    this.#team!.post(sendColumns(work, this.#world.arena.apart))
  }

  check(): void {
    this.#team!.check()
  }

  /** Runs the steps that all threads do together. */
  async run<T>(steps: Together<T>): Promise<T> {
    try {
      for (;;) {
        const { done, value } = steps.next()
        if (done) return value
        await this.#team!.meet()
        this.#world.clock.charge(Work.waiting)
      }
    } catch (error) {
      if (error instanceof Aborted) await this.#team!.told()
      throw error
    }
  }

  async begin(numShares: number): Promise<void> {
    this.#command[0] = TextCommand.decode
    this.#command[1] = numShares
    await this.#team!.meet()
  }

  async finish(): Promise<void> {
    await this.#team!.meet()
  }

  /** Ends the workers after an error, which left them at different points. Returns its cause. */
  fail(error: unknown): unknown {
    const cause = error instanceof Aborted ? this.#team!.failure : error
    this.end()
    return cause
  }

  /** Ends the workers. Returns whether there were any. */
  end(): boolean {
    this.#isClosed = true
    return this.#team?.end() ?? false
  }

  #start(): Promise<Team> {
    const { seed, kernelBuild: kernels, arena, threads } = this.#world
    const { count } = threads
    const { memory, apart } = arena
    const cohort = this.#cohort
    const { model, adapter, context, sampling, explore, weights, quantized, engine } = cohort
    const control = new Int32Array(sharedBytes(4 * CONTROL_WORDS))
    // The local backend's columns, if it is the one that learns.
    const { packed, gradient, reference, passed } = cohort.learner as Partial<TokenLearnerColumns>
    const orders = Array.from({ length: count - 1 }, (_, i): TextOrder => {
      const index = i + 1
      return {
        kind: 'text',
        ...{ memory, control, command: this.#command, index, count, seed, kernels, trace: this.#traces[i] },
        config: model.config,
        options: optionsOf(model),
        lora: adapter?.lora.settings ?? null,
        ...{ context, sampling, explore, apart },
        columns: sendColumns(
          {
            ...(engine.threads === null ? {} : { decoding: engine.threads.columnsOf(index) }),
            ...(packed &&
              gradient &&
              reference &&
              passed && { learner: { packed: packed[index]!, gradient, reference, passed } }),
            weights: quantized ?? weights,
            adapter: adapter?.weights ?? new Float32Array(memory.buffer, 0, 0),
          },
          apart,
        ),
      }
    })
    return Team.start(orders, () => `${count} threads of ${cohort.name}`)
  }
}
