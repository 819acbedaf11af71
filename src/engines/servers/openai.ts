/**
 * Any server of OpenAI's `/v1/completions`, for baselines: text goes in and text comes out, and its ids are those that the policy's
 * tokenizer has for it. Which tokens the server chose nobody knows, so there are no log-probabilities, and nothing is trained by it.
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
 * An engine that asks a server of OpenAI's completions, as a baseline beside a policy of ours.
 * @throws InputError for an address that is none, no model, and settings out of range.
 * @example createWorld({ environment, policy, engine: openaiEngine({ url: 'http://127.0.0.1:8000', model: 'small' }) })
 */
export const openaiEngine = defineEngineFactory({
  id: 'openai',
  settings,
  make(given) {
    const { model, url } = given
    if (model === '') throw new InputError('openai.model', show(model), "the server's name of a model")
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
      // Its tokens are others than ours: what it had room for may be less here.
      if (reason === 'stop' || reason === 'length') turn.end('stop')
      else turn.fail(`${show(reason)} as the reason`)
    }
    return {
      ...defineEngine('openai', (context) => {
        const { topK, minP } = context.sampling
        if (topK !== 0 || minP !== 0)
          throw new InputError('engine openai', `topK ${topK}, minP ${minP}`, '0: the server supports neither')
        return { logprobs: 'none', begin: (turn) => generate(turn, context) }
      }),
      noTraining: `engine openai at ${url} tells no ids of tokens, and no log-probabilities of them`,
    }
  },
})
