/** An engine without a model, for tests: a function decides each step of each turn, so delays and faults are scheduled, not random. */
import { defineEngine, type OpenTurn } from './define-engine.ts'
import type { Engine, EngineDefinition, TurnRequest } from './engine.ts'

/** One step of a turn: a token with its log-probability in nats, `wait` for no output yet, or an abort or failure by the engine. */
export type ScriptStep =
  | { readonly token: number; readonly logprob: number; readonly candidates?: readonly number[] }
  | { readonly failed: string }
  | 'wait'
  | 'aborted'

/**
 * An engine that follows `script`, which is called once per turn and `advance`, with the turn's current ids and the number of earlier
 * calls for it. A token of the tokenizer's `endIds` or one that completes a stop string ends the turn.
 * @example scriptedEngine((turn, ids, step) => (step < 2 ? 'wait' : { token: 65, logprob: Math.log(0.5) }))
 */
export function scriptedEngine(
  script: (turn: TurnRequest, ids: readonly number[], step: number) => ScriptStep,
  {
    logprobs = 'candidates',
    constrains = false,
    changes = [],
  }: Partial<Pick<Engine, 'logprobs' | 'constrains' | 'changes'>> = {},
): EngineDefinition {
  return defineEngine('scripted', () => {
    const steps = new WeakMap<OpenTurn, number>()
    return {
      ...{ logprobs, constrains, changes },
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
