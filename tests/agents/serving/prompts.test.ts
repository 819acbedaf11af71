/** Prompts that requests ask to have back, with log-probabilities. */
import { describe, expect, test } from 'vitest'
import { languageModel } from '../../../src/language/language-model.ts'
import { made, scriptedGateway } from '../../support/gateway.ts'
import { post, served, stream } from '../../support/serving.ts'

const policy = () => languageModel({ width: 16, layers: 1, heads: 2, context: 96, anyText: true })
const PROMPT = 'the quick fox, the quick dog'
const asked = { model: 'small', prompt: PROMPT, temperature: 0.5, seed: 3, max_tokens: 4 }

describe('the log-probabilities of a prompt', () => {
  test('are those that an answer in the place of each token would have at temperature 1', async () => {
    const { url } = await served({ policy: policy(), slots: 3 })
    const completions = `${url}/v1/completions`
    const { json } = await post(completions, { ...asked, prompt_logprobs: 20, return_token_ids: true })
    const [{ prompt_logprobs: told, prompt_token_ids: ids }] = json.choices
    expect([told.length, told[0]]).toEqual([ids.length, null])
    for (let i = 1; i < ids.length; i++) {
      const one = { ...asked, prompt: ids.slice(0, i), temperature: 1, max_tokens: 1, logprobs: 20 }
      const next = await post(completions, { ...one, return_tokens_as_token_ids: true })
      const top = next.json.choices[0].logprobs.top_logprobs[0] as Record<string, number>
      const { [ids[i]]: own, ...others } = told[i] as Record<string, { logprob: number; rank: number }>
      for (const [key, logprob] of Object.entries(top)) {
        const id = key.replace('token_id:', '')
        const said = id === String(ids[i]) ? own! : others[id]!
        expect(Math.abs(said.logprob - logprob)).toBeLessThan(1e-5)
      }
      const better = Object.values(top).filter((logprob) => logprob > own!.logprob + 1e-6).length
      expect(better < 20 ? own!.rank : Math.min(own!.rank, 21)).toBe(better + 1)
    }
  })

  test('change no answer, also where the prompt is longer than the slots, and come in chats', async () => {
    const { url } = await served({ policy: policy(), slots: 3 })
    const plain = await post(`${url}/v1/completions`, { ...asked, n: 2, logprobs: 0 })
    const scored = await post(`${url}/v1/completions`, { ...asked, n: 2, logprobs: 0, prompt_logprobs: 0 })
    const said = ({ json }: typeof plain) => json.choices.map(({ text, logprobs }: never) => [text, logprobs])
    expect(said(scored)).toEqual(said(plain))
    const chat = { model: 'small', messages: [{ role: 'user', content: 'hi' }], max_tokens: 2, return_token_ids: true }
    const { json } = await post(`${url}/v1/chat/completions`, { ...chat, prompt_logprobs: 1 })
    expect(json.prompt_logprobs.length).toBe(json.prompt_token_ids.length)
    const streamed = await post(`${url}/v1/chat/completions`, { ...chat, prompt_logprobs: 1, stream: true })
    expect([streamed.status, streamed.json.error.param]).toEqual([400, 'prompt_logprobs'])
  })

  test('are refused by an engine that does not have them', async () => {
    const { gateway } = await scriptedGateway(() => 'x')
    const { ask } = await made(gateway)
    const { status, json } = await ask('/v1/completions', { model: 'x', prompt: 'a', prompt_logprobs: 0 })
    expect([status, json.error.param]).toEqual([400, 'prompt_logprobs'])
  })
})

describe('echo', () => {
  test('has the prompt before the answer, whole and streamed, with its log-probabilities if they are asked for', async () => {
    const { url } = await served({ policy: policy() })
    const completions = `${url}/v1/completions`
    const answer = (await post(completions, asked)).json.choices[0].text
    const { json } = await post(completions, {
      ...asked,
      echo: true,
      logprobs: 2,
      prompt_logprobs: 0,
      return_token_ids: true,
    })
    const [{ text, logprobs, prompt_logprobs: told, prompt_token_ids: ids }] = json.choices
    expect(text).toBe(PROMPT + answer)
    const numPrompt = ids.length
    expect(logprobs.tokens.length).toBe(numPrompt + 4)
    expect(logprobs.token_logprobs.slice(0, numPrompt)).toEqual([
      null,
      ...told.slice(1).map((each: Record<string, { logprob: number }>, i: number) => each[ids[i + 1]]!.logprob),
    ])
    expect(logprobs.tokens.slice(0, numPrompt).join('')).toBe(`<|begin|>${PROMPT}`)
    const events = await stream(completions, { ...asked, echo: true, logprobs: 2 })
    expect(events.map(({ choices }) => choices[0]?.text ?? '').join('')).toBe(text)
    const streamed = events.flatMap(({ choices }) => choices[0]?.logprobs?.token_logprobs ?? [])
    expect(streamed).toEqual(logprobs.token_logprobs)
  })

  test('of no token is the prompt alone, which a session does not record', async () => {
    const { url } = await served({ policy: policy() })
    const { json } = await post(`${url}/v1/completions`, { ...asked, echo: true, max_tokens: 0, logprobs: 0 })
    const [{ text, finish_reason, logprobs }] = json.choices
    expect([text, finish_reason, json.usage.completion_tokens]).toEqual([PROMPT, 'length', 0])
    expect(logprobs.token_logprobs.length).toBe(json.usage.prompt_tokens)
    const { gateway } = await scriptedGateway(() => 'x')
    const { ask, end } = await made(gateway)
    const said = await ask('/v1/completions', { model: 'x', prompt: 'abc', echo: true, max_tokens: 0 })
    expect(said.json.choices[0].text).toBe('abc')
    expect((await end({ reward: 0 })).json.rows).toBe(0)
    expect((await post(`${url}/v1/completions`, { ...asked, max_tokens: 0 })).json.error.param).toBe('max_tokens')
  })
})
