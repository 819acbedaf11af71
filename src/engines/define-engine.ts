/**
 * The base of custom engines. It manages slots, turn checks, polled columns, turn ends, versions and aborts, so that an engine only
 * produces tokens. Either `advance` generates part of every open turn when called, or `begin` starts a turn whose tokens arrive by
 * themselves, as from a streaming server.
 */
import { InputError } from '../base/errors.ts'
import { StopStrings } from '../language/tokenizers/stop-strings.ts'
import type { Tokenizer } from '../language/tokenizers/tokenizer.ts'
import { Arrival } from './arrival.ts'
import {
  checkTurn,
  type Engine,
  type EngineContext,
  type EngineDefinition,
  type LogprobKind,
  type TurnEnd,
  type TurnRequest,
  type WeightsDelivery,
} from './engine.ts'
import { PolledColumns } from './servers/polled.ts'

/** A turn in progress, as the generating engine sees it. Calls after the end of the turn do nothing. */
export interface OpenTurn {
  readonly request: TurnRequest
  /** All current ids: the ids of the request and the ids added since. */
  readonly ids: readonly number[]
  readonly isOpen: boolean
  /** Aborts when the turn ends for any reason and when the engine closes. Pass it to `fetch` and timers. */
  readonly signal: AbortSignal
  /**
   * Adds a token with its log-probability in nats (NaN if unknown), its candidate set in ascending order (empty: every token was
   * possible) and the version of the weights that chose it (default: the engine's current version). The turn ends at a token of the
   * tokenizer's `endIds`, at a token that completes a stop string, and after `maxTokens` tokens.
   */
  add(token: number, logprob: number, candidates?: readonly number[], version?: number): void
  /** Ends the turn before its tokens do. A turn with reason `aborted` can be submitted again. */
  end(reason: 'stop' | 'aborted'): void
  /** Ends the turn with an error: the engine could not generate it. */
  fail(error: string): void
}

/** The parts of a custom engine. */
export interface EngineParts {
  /** The distribution of its log-probabilities. Candidate sets are kept only for `candidates`. */
  readonly logprobs: LogprobKind
  /** Whether it enforces `TurnRequest.constraint`; default false. */
  readonly constrains?: boolean
  /** The changes of logits (`TurnRequest.changes`) that the engine makes; default: none. */
  readonly changes?: Engine['changes']
  /** Generates part of every open turn. Returns a promise if other threads help. Omit it if the engine generates by itself. */
  advance?(turns: Iterable<OpenTurn>): void | Promise<void>
  /** Starts to generate a turn. If the promise rejects, the turn fails. */
  begin?(turn: OpenTurn): void | Promise<void>
  /** Loads weights and returns the resulting version. Without it, the delivered version is confirmed. */
  setWeights?(delivery: WeightsDelivery): number | Promise<number>
  /** Verifies that its tokens came from the delivered weights; see `Engine.prove`. */
  prove?(): Promise<boolean>
  /** Releases connections and timers. */
  close?(): void
}

/**
 * Defines an engine by its parts. `create` is called once per cohort.
 * @throws InputError from `create` if it returns neither `advance` nor `begin`.
 * @example
 * defineEngine('coin', () => ({
 *   logprobs: 'candidates',
 *   advance(turns) {
 *     for (const turn of turns) turn.add(turn.ids.length % 2, Math.log(0.5), [0, 1])
 *   },
 * }))
 */
export function defineEngine(id: string, create: (context: EngineContext) => EngineParts): EngineDefinition {
  return {
    id,
    create(context) {
      const { numSlots, tokenizer } = context
      const parts = create(context)
      const { logprobs, constrains = false, changes = [], advance } = parts
      if (advance === undefined && parts.begin === undefined) {
        throw new InputError(`engine ${id}`, 'neither advance nor begin', 'advance or begin')
      }
      const turns = new Map<number, Turn>()
      const polled = new PolledColumns(logprobs === 'candidates')
      let version = -1
      let arrival = advance === undefined ? new Arrival() : null
      const confirm = (confirmed: number): number => {
        version = confirmed
        return confirmed
      }
      const open = (request: TurnRequest): Turn => {
        const { slot } = request
        return new Turn(request, tokenizer, {
          add(token, logprob, candidates, chosenBy = version) {
            polled.add(slot, token, logprob, chosenBy, candidates)
            arrival?.settle()
          },
          end(end) {
            turns.delete(slot)
            polled.end(end)
            arrival?.settle()
          },
        })
      }
      return {
        ...{ id, logprobs, constrains, changes, threads: null },
        get version() {
          return version
        },
        get arrival() {
          return arrival?.promise ?? null
        },
        submit(request) {
          checkTurn(id, request, numSlots, context.context, turns.has(request.slot))
          const turn = open(request)
          turns.set(request.slot, turn)
          const begun = parts.begin?.(turn)
          begun?.catch((error: unknown) => turn.fail(error instanceof Error ? error.message : String(error)))
        },
        advance: () => parts.advance?.(turns.values()),
        poll() {
          if (arrival?.isSettled) arrival = new Arrival()
          return polled.take()
        },
        abort: (slot) => turns.get(slot)?.end('aborted'),
        setWeights(delivery) {
          const confirmed = parts.setWeights?.(delivery) ?? delivery.version
          return typeof confirmed === 'number' ? confirm(confirmed) : confirmed.then(confirm)
        },
        ...(parts.prove && { prove: () => parts.prove!() }),
        close() {
          for (const turn of turns.values()) turn.close()
          turns.clear()
          parts.close?.()
        },
      }
    },
  }
}

/** A loop, since to spread a typed array takes twenty times as long. */
function listOf(first: Int32Array, then: readonly number[]): number[] {
  const list = new Array<number>(first.length + then.length)
  for (let i = 0; i < first.length; i++) list[i] = first[i]!
  for (let i = 0; i < then.length; i++) list[first.length + i] = then[i]!
  return list
}

/** The receiver of a turn's tokens and end. */
interface TurnListener {
  add(token: number, logprob: number, candidates: readonly number[], version: number | undefined): void
  end(end: TurnEnd): void
}

class Turn implements OpenTurn {
  readonly request: TurnRequest
  isOpen = true
  /** The ids of the request and those added since; made on first use, since most engines read the request's. */
  #ids: number[] | null = null
  readonly #added: number[] = []
  /** Tokens that the turn may still generate. */
  #left: number
  readonly #tokenizer: Tokenizer
  readonly #stops: StopStrings
  readonly #listener: TurnListener
  /** Created on first use: most engines do not need one. */
  #controller: AbortController | null = null

  constructor(request: TurnRequest, tokenizer: Tokenizer, listener: TurnListener) {
    this.request = request
    this.#left = request.maxTokens
    this.#tokenizer = tokenizer
    this.#listener = listener
    this.#stops = new StopStrings(tokenizer, request.stopStrings)
    for (const id of request.ids.subarray(request.ids.length - request.generated)) this.#stops.push(id)
  }

  get ids(): readonly number[] {
    this.#ids ??= listOf(this.request.ids, this.#added)
    return this.#ids
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    if (!this.isOpen) this.#controller.abort()
    return this.#controller.signal
  }

  add(token: number, logprob: number, candidates: readonly number[] = [], version?: number): void {
    if (!this.isOpen) return
    this.#listener.add(token, logprob, candidates, version)
    this.#added.push(token)
    this.#ids?.push(token)
    this.#left--
    const { generated, changes } = this.request
    const isEnd = this.#stops.push(token) !== null || this.#tokenizer.endIds.includes(token)
    const isEarly = generated + this.#added.length < (changes?.minTokens ?? 0)
    if (isEnd && !isEarly) this.end('stop')
    else if (this.#left === 0) this.#conclude({ slot: this.request.slot, reason: 'length' })
  }

  end(reason: 'stop' | 'aborted'): void {
    this.#conclude({ slot: this.request.slot, reason })
  }

  fail(error: string): void {
    this.#conclude({ slot: this.request.slot, reason: 'failed', error })
  }

  #conclude(end: TurnEnd): void {
    if (!this.isOpen) return
    this.close()
    this.#listener.end(end)
  }

  /** Ends the turn without a notification. */
  close(): void {
    this.isOpen = false
    this.#controller?.abort()
  }
}
