/**
 * An engine without a model, for tests of whatever stands on an engine: a function says what comes of each turn, one step after
 * another, so that delays and faults come by schedule and not by chance.
 */
import { defineEngine, type OpenTurn } from './define-engine.ts'
import type { EngineDefinition, LogprobKind, TurnRequest } from './engine.ts'

/**
 * What a turn comes to in one step: a token with its log-probability in nats, `wait` for nothing yet, or that the engine breaks it
 * off or cannot generate it.
 */
export type ScriptStep =
  | { readonly token: number; readonly logprob: number; readonly candidates?: readonly number[] }
  | { readonly failed: string }
  | 'wait'
  | 'aborted'

/**
 * An engine that does what `script` says: it is called once for each turn and each `advance`, with the ids that the turn has by
 * then and the number of calls for it before. A token that the tokenizer ends turns with ends the turn, and so does one that
 * completes a stop string.
 * @example scriptedEngine((turn, ids, step) => (step < 2 ? 'wait' : { token: 65, logprob: Math.log(0.5) }))
 */
export function scriptedEngine(
  script: (turn: TurnRequest, ids: readonly number[], step: number) => ScriptStep,
  {
    logprobs = 'candidates',
    constrains = false,
  }: { readonly logprobs?: LogprobKind; readonly constrains?: boolean } = {},
): EngineDefinition {
  return defineEngine('scripted', () => {
    const steps = new WeakMap<OpenTurn, number>()
    return {
      ...{ logprobs, constrains },
      advance(turns) {
        for (const turn of turns) {
          const step = steps.get(turn) ?? 0
          steps.set(turn, step + 1)
          const said = script(turn.request, turn.ids, step)
          if (said === 'wait') continue
          if (said === 'aborted') turn.end(said)
          else if ('failed' in said) turn.fail(said.failed)
          else turn.add(said.token, said.logprob, said.candidates)
        }
      },
    }
  })
}
