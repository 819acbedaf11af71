/**
 * Any server with OpenAI's `/v1/completions`, for baselines. It exchanges text; the policy's tokenizer encodes the answer. The server's
 * own tokens are unknown, so there are no log-probabilities and no training.
 */
import { InputError, show } from '../../base/errors.ts'
import { text } from '../../base/settings.ts'
import { defineEngine, type OpenTurn } from '../define-engine.ts'
import { defineEngineFactory } from '../define-engine-factory.ts'
import type { EngineContext } from '../engine.ts'
import { serverClient, serverSettings } from './server-engine.ts'

const { logprobs: _, ...shared } = serverSettings('none')
const settings = { ...shared, model: text('', 'name of the model in requests') }

/**
 * An engine that uses an OpenAI-compatible completions server as a baseline.
 * @throws InputError for an invalid address, a missing model, and settings out of range.
 * @example createWorld({ environment, policy, engine: openaiEngine({ url: 'http://127.0.0.1:8000', model: 'small' }) })
 */
export const openaiEngine = defineEngineFactory({
  id: 'openai',
  settings,
  make(given) {
    const { model, url } = given
    if (model === '') throw new InputError('openai.model', show(model), 'the name of a model of the server')
    const client = serverClient('openai', given)
    const generate = async (turn: OpenTurn, { tokenizer }: EngineContext): Promise<void> => {
      const { request, signal } = turn
      const { maxTokens, sampling, explore, stopStrings, ids } = request
      const answer = await client.ask(
        '/v1/completions',
        {
          ...{ model, prompt: tokenizer.decode(Array.from(ids)), max_tokens: maxTokens },
          ...{ temperature: explore ? sampling.temperature : 0, top_p: explore ? sampling.topP : 1 },
          ...(stopStrings.length === 0 ? {} : { stop: stopStrings }),
        },
        signal,
      )
      const [choice] = (Array.isArray(answer.choices) ? answer.choices : []) as Record<string, unknown>[]
      const { text: said, finish_reason: reason } = choice ?? {}
      if (typeof said !== 'string') throw new Error(`answer, text: got ${show(said)}, expected a text`)
      for (const id of tokenizer.encode(said)) turn.add(id, Number.NaN)
      if (!turn.isOpen) return
      // The server's tokenizer differs: an answer that fits there may exceed the room here.
      if (reason === 'stop' || reason === 'length') turn.end('stop')
      else turn.fail(`finish_reason ${show(reason)}`)
    }
    return {
      ...defineEngine('openai', (context) => {
        const { topK, minP } = context.sampling
        if (topK !== 0 || minP !== 0)
          throw new InputError('engine openai', `topK ${topK}, minP ${minP}`, '0: the server supports neither')
        return { logprobs: 'none', begin: (turn) => generate(turn, context) }
      }),
      noTraining: `engine openai at ${url} reports no token ids and no log-probabilities`,
    }
  },
})
