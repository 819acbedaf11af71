/** The engine that computes in this process, and what it was asked and chose. */
import type { EngineContext, EngineDefinition, Polled, TurnRequest } from '../../src/engines/engine.ts'
import { LocalEngine } from '../../src/engines/local/local.ts'
import { localEnginePlan } from '../../src/engines/local/local-columns.ts'
import type { SeenTurn } from './gateway.ts'

class RecordingEngine extends LocalEngine {
  readonly #seen: SeenTurn[]
  readonly #open = new Map<number, SeenTurn>()

  constructor(context: EngineContext, seen: SeenTurn[]) {
    super(context)
    this.#seen = seen
  }

  override submit(request: TurnRequest): void {
    super.submit(request)
    const turn = { prompt: [...request.ids], chosen: [], logprobs: [] }
    this.#seen.push(turn)
    this.#open.set(request.slot, turn)
  }

  override poll(): Polled {
    const polled = super.poll()
    for (const { count, slot, token, logprob } of polled.tokens) {
      for (let i = 0; i < count; i++) {
        const { chosen, logprobs } = this.#open.get(slot[i]!)!
        chosen.push(token[i]!)
        logprobs.push(logprob[i]!)
      }
    }
    return polled
  }
}

/** The engine of this process, whose turns go to `seen`. */
export function recordingEngine(seen: SeenTurn[]): EngineDefinition {
  return { id: 'local', plan: localEnginePlan, create: (context) => new RecordingEngine(context, seen) }
}
