/**
 * What engines of one's own stand on: slots, checks of turns, the columns that are polled, what ends a turn, versions and aborts are
 * kept here, so that an engine says only how tokens come about. There are two ways. Either `advance` generates some of all open
 * turns when it is called; or `begin` starts each turn, and tokens come by themselves, as from a server that streams them.
 */
import { InputError } from '../base/errors.ts'
import { StopStrings } from '../language/tokenizers/stop-strings.ts'
import type { Tokenizer } from '../language/tokenizers/tokenizer.ts'
import { Arrival } from './arrival.ts'
import {
  checkTurn,
  type EngineContext,
  type EngineDefinition,
  type LogprobKind,
  type TurnEnd,
  type TurnRequest,
  type WeightsDelivery,
} from './engine.ts'
import { PolledColumns } from './servers/polled.ts'

/** A turn under way, as the engine that generates it sees it. What is said of a turn that is over changes nothing. */
export interface OpenTurn {
  readonly request: TurnRequest
  /** All ids that stand by now: those of the request, and those that were added. */
  readonly ids: readonly number[]
  readonly isOpen: boolean
  /** Aborts when the turn is over, however it ends, and when the engine is closed: for `fetch` and timers. */
  readonly signal: AbortSignal
  /**
   * Adds a token with its log-probability in nats (NaN: there is none), the candidate set that it was drawn from, in rising order
   * (none: every token could be chosen), and the version of the weights that chose it (default: those that the engine has). The
   * turn ends with a token of the tokenizer's `endIds`, with one that completes a stop string, and with the last of `maxTokens`.
   */
  add(token: number, logprob: number, candidates?: readonly number[], version?: number): void
  /** Ends the turn where its tokens do not tell it: `stop`, or `aborted`, after which it can be submitted again. */
  end(reason: 'stop' | 'aborted'): void
  /** Ends the turn, which the engine could not generate. */
  fail(error: string): void
}

/** What an engine says of itself. */
export interface EngineParts {
  /** Of which distribution its log-probabilities are; candidate sets are kept only of `candidates`. */
  readonly logprobs: LogprobKind
  /** Whether it holds answers to `TurnRequest.constraint`; default false. */
  readonly constrains?: boolean
  /** Generates some of every open turn; a promise where others help. An engine without it generates by itself. */
  advance?(turns: Iterable<OpenTurn>): void | Promise<void>
  /** Begins to generate a turn. A promise that rejects is the turn's failure. */
  begin?(turn: OpenTurn): void | Promise<void>
  /** Takes weights, and returns the version that it then has; without it, the version that was delivered is confirmed. */
  setWeights?(delivery: WeightsDelivery): number | Promise<number>
  /** Holds what it chose to the weights that it was given, as `Engine.prove` says. */
  prove?(): Promise<boolean>
  /** Gives back connections and timers. */
  close?(): void
}

/**
 * An engine from what is its own: `create` is called once for each cohort.
 * @throws InputError from `create`, where there is neither `advance` nor `begin`.
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
      const { logprobs, constrains = false, advance } = parts
      if (advance === undefined && parts.begin === undefined) {
        throw new InputError(`engine ${id}`, 'neither advance nor begin', 'one of them')
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
        ...{ id, logprobs, constrains, threads: null },
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

/** Who is told what comes of a turn. */
interface TurnListener {
  add(token: number, logprob: number, candidates: readonly number[], version: number | undefined): void
  end(end: TurnEnd): void
}

class Turn implements OpenTurn {
  readonly request: TurnRequest
  readonly ids: number[]
  isOpen = true
  /** Tokens that it may still have. */
  #left: number
  readonly #tokenizer: Tokenizer
  readonly #stops: StopStrings
  readonly #listener: TurnListener
  /** Made when it is asked for: most engines need none. */
  #controller: AbortController | null = null

  constructor(request: TurnRequest, tokenizer: Tokenizer, listener: TurnListener) {
    this.request = request
    this.ids = Array.from(request.ids)
    this.#left = request.maxTokens
    this.#tokenizer = tokenizer
    this.#listener = listener
    this.#stops = new StopStrings(tokenizer, request.stopStrings)
    for (const id of this.ids.slice(this.ids.length - request.generated)) this.#stops.push(id)
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    if (!this.isOpen) this.#controller.abort()
    return this.#controller.signal
  }

  add(token: number, logprob: number, candidates: readonly number[] = [], version?: number): void {
    if (!this.isOpen) return
    this.#listener.add(token, logprob, candidates, version)
    this.ids.push(token)
    this.#left--
    const isStopped = this.#stops.push(token) !== null || this.#tokenizer.endIds.includes(token)
    if (isStopped) this.end('stop')
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

  /** Nothing more comes of it, and nobody is told. */
  close(): void {
    this.isOpen = false
    this.#controller?.abort()
  }
}
