import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import {
  type BufferState,
  createBufferFromJsonl,
  DataBuffer,
  getSamples,
  loadPromptsFromJsonl,
  loadPromptsFromList,
} from '../../../src/language/datasets/data-buffer.ts'
import { digits, talkUntil, talkWorld } from '../../support/conversations.ts'
import * as fc from '../../support/properties.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const letters = (n: number) => Array.from({ length: n }, (_, i) => `prompt ${i}`)

describe('dealing', () => {
  test('takes every prompt once in an epoch, each epoch in an order of its own that the seed decides', () => {
    const epochs = (seed: number) => {
      const buffer = new DataBuffer(letters(20), seed)
      return [0, 1, 2].map(() => buffer.getPrompts(20).map(({ promptId }) => promptId))
    }
    const [first, second, third] = epochs(4)
    for (const epoch of [first, second, third])
      expect([...epoch!].sort((a, b) => a - b)).toEqual(letters(20).map((_, i) => i))
    expect(new Set([first, second, third].map(String)).size).toBe(3)
    expect(epochs(4)).toEqual([first, second, third])
    expect(epochs(5)[0]).not.toEqual(first)
  })

  test('is in the order in which conversations of that seed begin', async () => {
    const world = await talkWorld({ environment: digits({ numExamples: 10 }), seed: 11 })
    const talked = (await talkUntil(world, 25)).map(({ promptId, epoch, group }) => ({ promptId, epoch, group }))
    const dealt = new DataBuffer(letters(10), 11).getPrompts(25)
    expect(dealt.map(({ promptId, epoch, group }) => ({ promptId, epoch, group }))).toEqual(talked)
  })

  test('gives groups that are never given again: they do not begin anew with a round or an epoch', () => {
    const buffer = new DataBuffer(letters(3), 1)
    const dealt = [1, 2, 5, 4].flatMap((n) => buffer.getPrompts(n))
    expect(dealt.map(({ group }) => group)).toEqual(dealt.map((_, i) => i))
    expect(new Set(dealt.map(({ epoch, promptId }) => `${epoch}-${promptId}`)).size).toBe(12)
    for (const { prompt, promptId } of dealt) expect(prompt).toBe(`prompt ${promptId}`)
  })

  test('is a function of the state: the same state deals the same again, and is not changed', () => {
    const state: BufferState = Object.freeze({ seed: 3, epochId: 2, sampleOffset: 4 })
    const once = getSamples(letters(5), state, 7)
    expect(getSamples(letters(5), state, 7)).toEqual(once)
    expect(once.state).toEqual({ seed: 3, epochId: 4, sampleOffset: 1 })
  })
})

describe('a state that was saved', () => {
  test('neither loses nor repeats a prompt, wherever it was saved and however many are dealt at once', async () => {
    await fc.assert(
      fc.asyncProperty(
        ...([
          fc.integer({ min: 1, max: 12 }),
          fc.nat(1000),
          fc.array(fc.integer({ min: 1, max: 15 }), { minLength: 1 }),
        ] as const),
        fc.nat(),
        async (numPrompts, seed, takes, stop) => {
          const unbroken = new DataBuffer(letters(numPrompts), seed)
          const expected = takes.flatMap((n) => unbroken.getPrompts(n))
          let buffer = new DataBuffer(letters(numPrompts), seed)
          const dealt = []
          for (const [i, n] of takes.entries()) {
            if (i === stop % takes.length) {
              const saved = JSON.parse(JSON.stringify(await buffer.saveState()))
              buffer = new DataBuffer(letters(numPrompts), 0)
              await buffer.loadState(saved)
            }
            dealt.push(...buffer.getPrompts(n))
          }
          expect(dealt).toEqual(expected)
          expect([buffer.seed, buffer.epochId, buffer.sampleOffset]).toEqual([
            unbroken.seed,
            unbroken.epochId,
            unbroken.sampleOffset,
          ])
        },
      ),
      { numRuns: 60 },
    )
  })

  test('of other prompts, or that is none, is refused, and the buffer goes on as it was', async () => {
    const buffer = new DataBuffer(letters(4), 1)
    buffer.getPrompts(3)
    const saved = await buffer.saveState()
    const other = await new DataBuffer([...letters(3), 'changed'], 1).saveState()
    await expect(buffer.loadState(other)).rejects.toThrow('a state of other prompts')
    await expect(buffer.loadState(await new DataBuffer(letters(5)).saveState())).rejects.toThrow('a state of 5 prompts')
    for (const wrong of [{ sampleOffset: 5 }, { sampleOffset: 0.5 }, { epochId: -1 }, { seed: -1 }]) {
      await expect(buffer.loadState({ ...saved, ...wrong })).rejects.toThrow(InputError)
    }
    expect(await buffer.saveState()).toEqual(saved)
  })
})

describe('prompts of a file', () => {
  async function fileOf(text: string): Promise<string> {
    const path = join(await temporaryFolder(), 'prompts.jsonl')
    await writeFile(path, text)
    return path
  }

  test('are texts or messages under a key; empty lines are passed over, and a limit ends the reading', async () => {
    const path = await fileOf('\uFEFF{"q": "é"}\r\n\n{"q": [{"role": "user", "content": "b"}]}\n{"q": "c"}')
    const prompts = ['é', [{ role: 'user', content: 'b' }], 'c']
    expect(await loadPromptsFromJsonl(path, { promptKey: 'q' })).toEqual(prompts)
    expect(await loadPromptsFromJsonl(path, { promptKey: 'q', limit: 2 })).toEqual(prompts.slice(0, 2))
    const buffer = await createBufferFromJsonl(path, { promptKey: 'q', seed: 8 })
    expect(buffer.getPrompts(3)).toEqual(new DataBuffer(prompts, 8).getPrompts(3))
  })

  test.each([
    ['', /prompts\.jsonl: got no line/],
    ['{"prompt": "a"}\n{"prompt": "b"', /:2: got .*expected a line of JSON/],
    ['{"prompt": "a"}\n\n{"question": "b"}', /:3, prompt: got none/],
    ['{"prompt": ""}', /:1, prompt: got ""/],
    ['{"prompt": []}', /:1, prompt: got no message/],
    ['{"prompt": [{"role": "user"}]}', /:1, prompt\[0\]: got \{"role":"user"\}/],
    ['{"prompt": 3}', /:1, prompt: got 3/],
    ['null', /:1, prompt: got none/],
    ['"text"', /:1, prompt: got none/],
  ])('name the line that is none: %j', async (text, message) => {
    const path = await fileOf(text)
    const loading = loadPromptsFromJsonl(path)
    await expect(loading).rejects.toThrow(message)
    await expect(loading).rejects.toThrow(InputError)
  })

  test('that is not UTF-8 is an error with the line, not text with U+FFFD in it', async () => {
    const path = join(await temporaryFolder(), 'latin1.jsonl')
    await writeFile(path, Buffer.from('{"prompt": "a"}\n{"prompt": "\xe9"}\n', 'latin1'))
    await expect(loadPromptsFromJsonl(path)).rejects.toThrow(/:2: got bytes that are not UTF-8/)
  })
})

test('bad input is named: no prompts, a seed, a number of prompts, a limit, a list with something else in it', async () => {
  expect(() => new DataBuffer([])).toThrow('prompts: got none')
  expect(() => new DataBuffer(['a'], -1)).toThrow('seed: got -1')
  for (const n of [0, -1, 1.5, Number.NaN]) expect(() => new DataBuffer(['a']).getPrompts(n)).toThrow(/^n: got/)
  expect(loadPromptsFromList(['a'])).toEqual(['a'])
  expect(() => loadPromptsFromList([])).toThrow('prompts: got none')
  expect(() => loadPromptsFromList(['a', null])).toThrow('prompts[1]: got none')
  await expect(loadPromptsFromJsonl('x.jsonl', { limit: 0 })).rejects.toThrow('limit: got 0')
  await expect(loadPromptsFromJsonl('x.jsonl')).rejects.toThrow('expected a JSONL file that can be read')
})
