/**
 * An engine without a model, for tests of whatever stands on an engine: a function says what comes of each turn, one step after
 * another, so that delays and faults come by schedule and not by chance.
 */
import { checkTurn, type EngineDefinition, type LogprobKind, type TurnRequest } from './engine.ts'
import { PolledColumns } from './polled.ts'

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
 * then and the number of calls for it before. A token that the tokenizer ends turns with ends the turn; stop strings it does
 * not look for.
 * @example scriptedEngine((turn, step) => (step < 2 ? 'wait' : { token: 65, logprob: Math.log(0.5) }))
 */
export function scriptedEngine(
  script: (turn: TurnRequest, ids: readonly number[], step: number) => ScriptStep,
  { logprobs = 'candidates' }: { readonly logprobs?: LogprobKind } = {},
): EngineDefinition {
  return {
    id: 'scripted',
    create({ numSlots, context, tokenizer }) {
      const turns = new Map<number, { turn: TurnRequest; ids: number[]; step: number }>()
      const polled = new PolledColumns(logprobs === 'candidates')
      let version = -1
      return {
        ...{ id: 'scripted', logprobs, arrival: null, threads: null, close() {} },
        get version() {
          return version
        },
        submit(turn) {
          checkTurn('scripted', turn, numSlots, context, turns.has(turn.slot))
          turns.set(turn.slot, { turn, ids: Array.from(turn.ids), step: 0 })
        },
        advance() {
          for (const [slot, each] of turns) {
            const said = script(each.turn, each.ids, each.step++)
            if (said === 'wait') continue
            if (typeof said === 'object' && 'token' in said) {
              polled.add(slot, said.token, said.logprob, version, said.candidates ?? [])
              each.ids.push(said.token)
              const isEnded = tokenizer.endIds.includes(said.token)
              if (!isEnded && each.ids.length < each.turn.ids.length + each.turn.maxTokens) continue
              polled.end({ slot, reason: isEnded ? 'stop' : 'length' })
            } else
              polled.end(said === 'aborted' ? { slot, reason: said } : { slot, reason: 'failed', error: said.failed })
            turns.delete(slot)
          }
        },
        poll: () => polled.take(),
        abort(slot) {
          if (turns.delete(slot)) polled.end({ slot, reason: 'aborted' })
        },
        setWeights(delivery) {
          version = delivery.version
          return version
        },
      }
    },
  }
}
