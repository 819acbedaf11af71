/** An engine and a training backend whose speeds are timers': they take no processor, so that several do not slow each other. */
import { defineEngine, type OpenTurn } from '../../src/engines/define-engine.ts'
import { defineBackend } from '../../src/training/backends/define-backend.ts'

const TICK_MS = 5

/** Tokens per second of an engine with `answers` answers: with few it is far from its full speed. */
export const engineSpeed = (answers: number) => (2000 * answers) / (answers + 12)

/** An engine with that speed. Answers end after so many tokens, by the turn's key. */
export const timedEngine = (lengthOf: (key: TurnKey) => number) =>
  defineEngine('timed', ({ tokenizer }) => {
    const running = new Map<OpenTurn, { left: number; owed: number }>()
    let last = performance.now()
    let timer: NodeJS.Timeout | null = null
    const advance = () => {
      const now = performance.now()
      const each = ((now - last) / 1000) * (engineSpeed(running.size) / running.size)
      last = now
      for (const [turn, state] of running) {
        if (!turn.isOpen) running.delete(turn)
        for (state.owed += each; state.owed >= 1 && turn.isOpen; state.owed--) {
          turn.add(--state.left > 0 ? 3 : tokenizer.endIds[0]!, -1)
          if (state.left === 0) running.delete(turn)
        }
      }
      if (running.size > 0) return
      clearInterval(timer!)
      timer = null
    }
    return {
      logprobs: 'raw',
      begin(turn) {
        if (running.size > 0) advance()
        else last = performance.now()
        running.set(turn, { left: lengthOf(turn.request.key), owed: 0 })
        timer ??= setInterval(advance, TICK_MS)
      },
      close: () => clearInterval(timer ?? undefined),
    }
  })

type TurnKey = OpenTurn['request']['key']

/** A backend that learns nothing, at a number of tokens per second. */
export const timedBackend = (tokensPerSecond: number) =>
  defineBackend('timed', ({ trained }) => ({
    start() {},
    forward(batch, _, __, { logprob, entropy }) {
      for (let i = batch.parts[0]!; i < batch.parts.at(-1)!; i++) {
        for (let t = batch.spans.begin[i]!; t < batch.spans.end[i]!; t++) {
          logprob[t] = t === batch.spans.begin[i] ? 0 : -1
          entropy[t] = 0
        }
      }
    },
    async backward(batch) {
      let tokens = 0
      for (let i = batch.parts[0]!; i < batch.parts.at(-1)!; i++) {
        for (let t = batch.spans.begin[i]!; t < batch.spans.end[i]!; t++) tokens += batch.lossMask[t]!
      }
      await new Promise((resolve) => setTimeout(resolve, (1000 * tokens) / tokensPerSecond))
    },
    optimStep: () => 1,
    saveCheckpoint: (name) => name,
    loadCheckpoint() {},
    getWeights: (version) => ({ version, weights: trained }),
    loadWeights() {},
  }))
