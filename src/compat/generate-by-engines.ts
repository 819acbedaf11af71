/** A generate function over a backend's engines: one turn per prompt, with each token's version recorded. */
import { Batcher, type Generation, type GenerationRequest, whole } from '../agents/serving/batcher.ts'
import { checkCount, checkOptions, InputError, show } from '../base/errors.ts'
import { areOfSampling, type Engine } from '../engines/engine.ts'
import { type Example, isMessage, type Message } from '../environments/text.ts'
import { promptIds } from '../language/templates/dialogue.ts'
import type { GeneratedSample, SamplePlace } from './generated-sample.ts'
import type { GenerateFn } from './rollout-manager.ts'
import type { OpenBackend } from './training-backend.ts'

/** Options of `generateByEngines`. */
export interface EngineGenerationOptions {
  /** Maximum tokens of an answer: a whole number ≥ 1. Fewer at the end of the context. */
  readonly maxTokens: number
  /** Texts that end an answer, besides the tokenizer's end tokens. */
  readonly stopStrings?: readonly string[]
}

/** A prompt: a text, messages, or an example that has one of them. */
export type EnginePrompt = string | readonly Message[] | Example

/** One batcher shares an engine's slots among all callers. */
class EngineTurns {
  readonly batcher: Batcher
  /** How often the engine failed to prove its weights. */
  numLost = 0
  readonly #engine: Engine
  #proving: Promise<unknown> = Promise.resolve()

  constructor(engine: Engine, numSlots: number) {
    this.#engine = engine
    this.batcher = new Batcher(engine, numSlots, Number.MAX_SAFE_INTEGER)
  }

  /** Verifies the engine's weights. Calls are sequential, since a second would cover what the first is judging. */
  prove(): Promise<void> {
    const proved = this.#proving.then(async () => {
      if ((await this.#engine.prove?.()) === false) this.numLost++
    })
    this.#proving = proved.catch(() => {}) // The caller receives it.
    return proved
  }
}

const turnsOf = new WeakMap<Engine, EngineTurns>()

/**
 * Answers prompts with the backend's engines, as many at once as they have slots. Before a group is returned, the
 * engines' weights are verified; a group that other weights may have generated is generated again.
 * @throws InputError for a backend without engines, and wrong options. The returned function fails if an engine does.
 * @example
 * const engines = [sglangEngine({ url, weights }), vllmEngine({ url: other, weights })]
 * const backend = await openTrainingBackend({ policy, engines, slots: 32 })
 * const generateFn = generateByEngines(backend, { maxTokens: 256 })
 * const manager = new AsyncRolloutManager(buffer, { batchSize: 8, nSamplesPerPrompt: 8, generateFn, rewardFn })
 * await runRlTraining(backend, buffer, manager, backend.engines, { numSteps: 100, syncEvery: 1 })
 */
export function generateByEngines(backend: OpenBackend, options: EngineGenerationOptions): GenerateFn<EnginePrompt> {
  checkOptions('generateByEngines', options, ['maxTokens', 'stopStrings'])
  const { maxTokens, stopStrings = [] } = options
  checkCount('maxTokens', maxTokens)
  if (!(backend?.engines?.length > 0)) {
    throw new InputError('backend, engines', show(backend?.engines), 'at least one, given to openTrainingBackend')
  }
  const { engine, tokenizer, sampling, context, numLanes } = backend.world.cohort()
  const turns = turnsOf.get(engine) ?? new EngineTurns(engine, numLanes)
  turnsOf.set(engine, turns)
  const isKnown = areOfSampling(engine.logprobs, sampling)
  const requestOf = (prompt: EnginePrompt, { epoch, promptId, group, member }: SamplePlace): GenerationRequest => {
    const subject = `prompt ${promptId} of epoch ${epoch}`
    const ids = Int32Array.from(promptIds(tokenizer, exampleOf(prompt), subject))
    const room = context - ids.length
    if (room < 1) throw new InputError(subject, `${ids.length} tokens`, `at most ${context - 1}, to fit the context`)
    const turn = { ids, maxTokens: Math.min(maxTokens, room), stopStrings, key: [group, member, 0] as const }
    return { ...turn, sampling, explore: true, numTop: 0 }
  }
  const sampleOf = ({ ids }: GenerationRequest, { tokens, end }: Generation): GeneratedSample => {
    const prompt = Array.from(ids)
    const said = tokens.map(({ id }) => id)
    return {
      response: tokenizer.decode(said, { skipSpecial: true }),
      tokens: [...prompt, ...said],
      lossMask: [...prompt.map(() => 0), ...said.map(() => 1)],
      rolloutLogProbs: [
        ...prompt.map(() => Number.NaN),
        ...tokens.map(({ logprob }) => (isKnown ? logprob : Number.NaN)),
      ],
      weightVersions: [...prompt.map(() => -1), ...tokens.map(({ version }) => version)],
      status: end === 'stop' ? 'completed' : end === 'length' ? 'truncated' : 'aborted',
    }
  }
  return async (prompts, signal, places) => {
    const asked = prompts.map((prompt, i) => requestOf(prompt, places[i]!))
    for (;;) {
      const before = turns.numLost
      const group = turns.batcher.submit(asked)
      await whole(group, signal)
      if (!signal.aborted) await turns.prove()
      if (turns.numLost === before) return group.turns.map((turn, i) => sampleOf(asked[i]!, turn))
    }
  }
}

function exampleOf(prompt: EnginePrompt): Example {
  const isBare = typeof prompt === 'string' || (Array.isArray(prompt) && prompt.every(isMessage))
  return isBare ? { prompt } : (prompt as Example)
}
