import { createHash } from 'node:crypto'
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Script } from 'node:vm'
import { describe, expect, test, vi } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { reverse } from '../../src/environments/tasks/sequences.ts'
import { languageModel } from '../../src/language/language-model.ts'
import { jinjaTemplate } from '../../src/language/templates/chat-template.ts'
import { loadTokenizer } from '../../src/language/tokenizers/load-tokenizer.ts'
import { writeQwen3 } from '../support/qwen3-folder.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { expectedOf, folderOf, recorded } from './golden.ts'

describe.each(recorded)('%s, as transformers has it', async (name) => {
  const tokenizer = await loadTokenizer(folderOf(name))
  const { texts, begin, conversations } = expectedOf(name)

  test('texts give its ids, with special tokens spelled out as such', () => {
    for (const { text, ids } of texts) expect(tokenizer.encode(text, { special: true }), text).toEqual(ids)
  })

  test('texts give its ids where special tokens are text', () => {
    for (const { text, plain } of texts) expect(tokenizer.encode(text), text).toEqual(plain)
  })

  test('ids decode to its text', () => {
    for (const { ids, decoded } of texts) {
      expect(tokenizer.decode(Int32Array.from(ids))).toBe(decoded)
    }
  })

  test('special tokens are left out of what was said, and nothing else', () => {
    const spelled = texts.filter(({ decoded, said }) => decoded !== said)
    expect(spelled.length).toBeGreaterThan(0)
    for (const { ids, said } of spelled) {
      expect(tokenizer.decode(ids, { skipSpecial: true })).toBe(said)
    }
    const [end] = tokenizer.endIds
    expect(tokenizer.decode([end!, tokenizer.vocabularySize, end!], { skipSpecial: true })).toBe('\u{fffd}')
    expect(tokenizer.decode([end!], { skipSpecial: true })).toBe('')
  })

  test('the same ids stand before a text', () => {
    expect(tokenizer.beginIds).toEqual(begin)
  })

  test('conversations become its texts, or are refused for its reason', () => {
    for (const { messages, text, prompt, error } of conversations) {
      const render = () => tokenizer.chatTemplate!.render(messages)
      if (error === undefined) {
        expect(render()).toBe(text)
        expect(tokenizer.chatTemplate!.render(messages, { addGenerationPrompt: true })).toBe(prompt)
      } else {
        expect(render).toThrow(InputError)
        expect(render).toThrow(error)
        expect(render).toThrow(/roles \["system","user"\]/)
      }
    }
  })

  test('decoding and encoding again gives the ids of every text that transformers gives back', () => {
    const kept = texts.filter(({ text, decoded }) => decoded === text)
    expect(kept.length).toBeGreaterThan(15)
    for (const { text } of kept) {
      const ids = tokenizer.encode(text)
      expect(tokenizer.encode(tokenizer.decode(ids)), text).toEqual(ids)
    }
  })

  test('a text that continues another gets no space of its own', () => {
    for (const text of ['Hello fox', ' Hello', '12', 'é😀']) {
      const [end] = tokenizer.endIds
      const ids = tokenizer.encode(text, { continues: true })
      // Behind another token no space is stripped, so what was put in would show.
      expect(tokenizer.decode([end!, ...ids])).toBe(`${tokenizer.decode([end!])}${text}`)
    }
  })

  test('ids that mean nothing are U+FFFD, and no ids are no text', () => {
    const { vocabularySize } = tokenizer
    expect(tokenizer.decode([vocabularySize, -1])).toBe('\u{fffd}\u{fffd}')
    expect(tokenizer.decode([])).toBe('')
    expect(tokenizer.decode([vocabularySize - 1])).not.toContain('\u{fffd}')
  })

  test('half a surrogate pair is refused', () => {
    expect(() => tokenizer.encode('a\ud800')).toThrow(/half a surrogate pair/)
  })

  test('its id is the SHA-256 of its file', () => {
    const sum = createHash('sha256').update(readFileSync(`${folderOf(name)}/tokenizer.json`))
    expect(tokenizer.id).toBe(sum.digest('hex'))
  })
})

describe('what stands beside tokenizer.json', () => {
  test('end ids are those of eos_token, and what generation_config.json adds', async () => {
    const qwen2 = await loadTokenizer(folderOf('qwen2'))
    const text = (ids: readonly number[]) => ids.map((id) => qwen2.decode([id]))
    expect(text(qwen2.endIds)).toEqual(['<|im_end|>', '<|endoftext|>'])
    expect(qwen2.specialTokens).toEqual(['<|endoftext|>', '<|im_start|>', '<|im_end|>'])
    const llama3 = await loadTokenizer(folderOf('llama3')) // Names it in special_tokens_map.json alone.
    expect(llama3.endIds.map((id) => llama3.decode([id]))).toEqual(['<|eot_id|>'])
  })

  test('a template for tools is taken where tools are given', async () => {
    const { chatTemplate } = await loadTokenizer(folderOf('smollm'))
    const messages = [{ role: 'user', content: 'Hi' }]
    expect(chatTemplate!.render(messages)).toBe('<|im_start|>user\nHi<|im_end|>\n')
    expect(chatTemplate!.render(messages, { tools: [{ name: 'add' }] })).toBe(
      '<|im_start|>system\n[{"name": "add"}]<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n',
    )
  })

  test('a template is told no date, so that a conversation is the same text on any day', async () => {
    const guarded = "\n  {{ strftime_now('%Y') if strftime_now is defined else 'no date' }}"
    const folder = await changed({ chat_template: guarded })
    expect((await loadTokenizer(folder)).chatTemplate!.render([])).toBe('\n  no date')
    const demanding = await loadTokenizer(await changed({ chat_template: "{{ strftime_now('%Y') }}" }))
    expect(() => demanding.chatTemplate!.render([])).toThrow(InputError)
  })

  test('a folder without a template has none', async () => {
    const folder = await changed({ chat_template: undefined })
    expect((await loadTokenizer(folder)).chatTemplate).toBeNull()
  })

  test('add_bos_token decides what stands before a text, where it is given', async () => {
    const folder = await changed({ add_bos_token: false }, 'llama')
    expect((await loadTokenizer(folder)).beginIds).toEqual([])
    expect((await loadTokenizer(await changed({ add_bos_token: true }, 'llama'))).beginIds).toEqual([1])
  })
})

describe('what the chat template is told', () => {
  const messages = [{ role: 'user', content: 'Hi' }]
  const render = async (templateArguments: Record<string, unknown>) => {
    const folder = await temporaryFolder()
    await writeQwen3(folder)
    const { chatTemplate } = await loadTokenizer(folder, { templateArguments })
    return chatTemplate!.render(messages, { addGenerationPrompt: true })
  }

  test('reaches it, and a name that it does not read is an error with the nearest', async () => {
    expect(await render({})).not.toContain('<think>')
    expect(await render({ enable_thinking: true })).not.toContain('<think>')
    expect(await render({ enable_thinking: false })).toContain('<think>\n\n</think>')
    await expect(render({ enable_thinkin: false })).rejects.toThrow(
      /chat_template\.jinja, argument: got "enable_thinkin" \(did you mean "enable_thinking"\?\), expected one of enable_thinking$/,
    )
    // Neither what it is told anyway, nor what it sets itself.
    for (const name of ['messages', 'add_generation_prompt', 'eos_token', 'asked', 'message', 'namespace']) {
      await expect(render({ [name]: 1 })).rejects.toThrow(`got "${name}"`)
    }
  })

  test('is a setting of language models, which a new one has no use for', async () => {
    const folder = await temporaryFolder()
    await writeQwen3(folder)
    const open = (settings: object) => languageModel(settings).open(reverse())
    const { tokenizer } = await open({ folder, templateArguments: ['enable_thinking=false'] })
    expect(tokenizer.chatTemplate!.render(messages, { addGenerationPrompt: true })).toContain('<think>')
    await expect(open({ folder, templateArguments: ['enable_thinking'] })).rejects.toThrow(/expected name=value/)
    const twice = ['enable_thinking=false', 'enable_thinking=true']
    await expect(open({ folder, templateArguments: twice })).rejects.toThrow(/enable_thinking twice/)
    await expect(open({ templateArguments: ['enable_thinking=false'] })).rejects.toThrow(
      /templateArguments, argument: got/,
    )
  })

  test('is read before it is set, where a template sets it unless it is told', async () => {
    const source =
      "{% if not day is defined %}{% set day = 'none' %}{% endif %}{{ day }}{% for a in b %}{{ a }}{% endfor %}"
    const told = await jinjaTemplate('its template', { default: source }, {}, { day: 'Monday', b: ['x'] })
    expect(told.render(messages)).toBe('Mondayx')
    await expect(jinjaTemplate('its template', { default: source }, {}, { a: 1 })).rejects.toThrow(/one of day, b/)
  })
})

describe('what a tokenizer of a stranger does', () => {
  // Each takes seconds for this text, and twice as long for one character more: a failing test ends.
  const ENDLESS = { Regex: '(a+)+(?=b)' }
  const text = 'a'.repeat(27)
  const limits = { timeoutMs: 100 }

  test.each([
    ['splits', { pre_tokenizer: { type: 'Split', pattern: ENDLESS, behavior: 'Isolated', invert: false } }],
    ['replaces', { normalizer: { type: 'Replace', pattern: ENDLESS, content: '' } }],
  ])('has a limit of time where it %s a text that it encodes', async (_, part) => {
    const folder = await altered(part)
    const tokenizer = await loadTokenizer(folder, limits)
    for (const options of [{}, { special: true }, { continues: true }]) {
      expect(() => tokenizer.encode(text, options)).toThrow(InputError)
      expect(() => tokenizer.encode(text, options)).toThrow(
        /text "a{27}": got not finished after 0.1 s, expected a text that .*tokenizer.json can encode; timeoutMs of loadTokenizer/,
      )
    }
    const patient = await loadTokenizer(folder)
    for (const other of ['Hello', 'aab']) expect(tokenizer.encode(other)).toEqual(patient.encode(other))
  })

  test('has a limit of time where it decodes, and where it is made', async () => {
    const decoder = {
      type: 'Sequence',
      decoders: [{ type: 'Fuse' }, { type: 'Replace', pattern: ENDLESS, content: '' }],
    }
    const usual = await loadTokenizer(folderOf('qwen2'))
    const ids = [...text].flatMap((letter) => usual.encode(letter))
    const tokenizer = await loadTokenizer(await altered({ decoder }), limits)
    expect(() => tokenizer.decode(ids)).toThrow(/27 ids: got not finished after 0.1 s, expected ids that .* can decode/)
    expect(tokenizer.decode(ids.slice(0, 5))).toBe('aaaaa')
    // An added token is normalized when the tokenizer is made.
    const added = { id: 500, content: text, special: false, normalized: true }
    const folder = await altered({
      normalizer: { type: 'Replace', pattern: ENDLESS, content: '' },
      added_tokens: [added],
    })
    await expect(loadTokenizer(folder, limits)).rejects.toThrow(/tokenizer.json: got not finished after 0.1 s/)
  })

  test('ends a whole word before letters that came after Unicode 16, which the Rust library does not know', async () => {
    const word = { id: 500, content: 'Word', special: false, normalized: false, single_word: true }
    const named = ['<|im_end|>', '<|endoftext|>'].map((content, i) => ({ id: 501 + i, content, special: true }))
    const tokenizer = await loadTokenizer(await altered({ added_tokens: [word, ...named] }))
    for (const [text, isWhole] of [
      ['a Word.', true],
      ['Words', false],
      ['Word\u{10300}', false],
      ['Word\u{11dd9}', true],
      ['\ua7cfWord', true],
    ] as const) {
      expect(tokenizer.encode(text).includes(500), text).toBe(isWhole)
    }
  })

  test('has a limit of length where steps of a sequence multiply', async () => {
    const step = { type: 'Replace', pattern: { String: 'a' }, content: 'a'.repeat(64) }
    const steps = [step, { type: 'Sequence', normalizers: [step, step] }, step, step]
    const normalizing = await loadTokenizer(await altered({ normalizer: { type: 'Sequence', normalizers: steps } }))
    expect(() => normalizing.encode('a')).toThrow(InputError)
    expect(() => normalizing.encode('a')).toThrow(
      /text "a": got an error \(a step made 16777216 characters, and at most 4194304 are allowed\)/,
    )
    const wide = {
      ...{ type: 'Metaspace', replacement: ' ', str_rep: ' '.repeat(64), prepend_scheme: 'never', split: false },
    }
    const pretokenizers = [wide, wide, wide, wide, wide]
    const splitting = await loadTokenizer(await altered({ pre_tokenizer: { type: 'Sequence', pretokenizers } }))
    expect(() => splitting.encode(' ')).toThrow(/a step made 16777216 characters/)
    const decoders = [{ type: 'ByteLevel' }, step, step, step, step, step]
    const decoding = await loadTokenizer(await altered({ decoder: { type: 'Sequence', decoders } }))
    const [id] = (await loadTokenizer(folderOf('qwen2'))).encode('a')
    expect(() => decoding.decode([id!])).toThrow(/1 ids: got an error \(a step made 16777216 characters/)
  })

  test('has no limit where all steps are known to be quick and the text is short, and one in every other case', async () => {
    const limited = vi.spyOn(Script.prototype, 'runInContext')
    const calls = (work: () => unknown) => {
      limited.mockClear()
      work()
      return limited.mock.calls.length
    }
    const ids = Array.from({ length: 2049 }, () => 5)
    for (const family of ['qwen2', 'llama', 'llama3', 'smollm', 'mistral']) {
      const tokenizer = await loadTokenizer(folderOf(family))
      expect([family, calls(() => tokenizer.encode('a'.repeat(2048)))]).toEqual([family, 0])
      expect(calls(() => tokenizer.encode('a'.repeat(2049)))).toBe(1)
      expect(calls(() => tokenizer.decode(ids.slice(1)))).toBe(0)
      expect(calls(() => tokenizer.decode(ids))).toBe(1)
    }
    const split = (pattern: object) => ({ type: 'Split', pattern, behavior: 'Isolated', invert: false })
    const replace = (content: string) => ({ type: 'Replace', pattern: { String: 'b' }, content })
    const isLimited = async (part: object) => {
      const tokenizer = await loadTokenizer(await altered(part))
      return calls(() => tokenizer.encode('a')) === 1
    }
    expect(await isLimited({ normalizer: replace('c') })).toBe(false)
    expect(await isLimited({ pre_tokenizer: split({ Regex: '[\\s\\S]' }) })).toBe(false)
    for (const part of [
      { normalizer: replace('cc') },
      { normalizer: { type: 'Replace', pattern: { Regex: 'b' }, content: 'c' } },
      { normalizer: { type: 'Sequence', normalizers: [{ type: 'NFC' }, replace('cc')] } },
      { normalizer: { type: 'Prepend', prepend: 'bc' } },
      { normalizer: { type: 'BertNormalizer', handle_chinese_chars: true } },
      { pre_tokenizer: split({ Regex: 'b' }) },
      { pre_tokenizer: split({ String: 'b' }) },
      { pre_tokenizer: { type: 'Metaspace', replacement: ' ', str_rep: '  ', prepend_scheme: 'never' } },
      { decoder: { type: 'Sequence', decoders: [{ type: 'ByteLevel' }, replace('cc')] } },
    ]) {
      expect([part, await isLimited(part)]).toEqual([part, true])
    }
  })

  test('a limit that is none is refused', async () => {
    for (const timeoutMs of [0, Number.NaN, Number.POSITIVE_INFINITY]) {
      await expect(loadTokenizer(folderOf('qwen2'), { timeoutMs })).rejects.toThrow(/timeoutMs: .* a number above 0/)
    }
  })
})

describe('a folder that is wrong', () => {
  test('no tokenizer.json, or one that is not JSON or of no known kind, is named', async () => {
    const folder = await changed({})
    writeFileSync(`${folder}/tokenizer.json`, '{"model": ')
    await expect(loadTokenizer(folder)).rejects.toThrow(/tokenizer.json: got a file that is not JSON/)
    writeFileSync(`${folder}/tokenizer.json`, '{"model": {}}')
    await expect(loadTokenizer(folder)).rejects.toThrow(/a tokenizer of a known kind/)
    rmSync(`${folder}/tokenizer.json`)
    await expect(loadTokenizer(folder)).rejects.toThrow(/tokenizer.json: .*a tokenizer in Hugging Face.s format/)
  })

  test.each(['9007199254740993', '16777216', '-1', '1.5', '"7"', 'null'])(
    'an id of %s is named with its token',
    async (id) => {
      const folder = await changed({})
      const source = readFileSync(`${folder}/tokenizer.json`, 'utf8')
      const { model, added_tokens: added } = JSON.parse(source)
      const [token, first] = Object.entries(model.vocab)[5]!
      const [{ content }] = added
      for (const [named, was, is] of [
        [token, `${JSON.stringify(token)}:${first}`, `${JSON.stringify(token)}:${id}`],
        [content, `"id":${added[0].id},`, `"id":${id},`],
      ]) {
        const compact = JSON.stringify(JSON.parse(source))
        expect(compact).toContain(was)
        writeFileSync(`${folder}/tokenizer.json`, compact.replace(was, is))
        const message = `id of token ${JSON.stringify(named)}: got`
        await expect(loadTokenizer(folder), `${named}`).rejects.toThrow(message)
      }
    },
  )

  test('an eos_token that is not in the vocabulary is named', async () => {
    const folder = await changed({ eos_token: '<|gone|>' })
    await expect(loadTokenizer(folder)).rejects.toThrow(/eos_token: got "<|gone|>", expected a token of its vocabulary/)
  })

  test('an end id beyond the vocabulary is named', async () => {
    const folder = await changed({})
    writeFileSync(`${folder}/generation_config.json`, '{"eos_token_id": [1, 90000]}')
    await expect(loadTokenizer(folder)).rejects.toThrow(/eos_token_id: got 90000, expected ids below 425/)
  })

  test('a template that is malformed is named, with the reason', async () => {
    const folder = await changed({ chat_template: '{% for message in messages %}{{ message' })
    await expect(loadTokenizer(folder)).rejects.toThrow(/tokenizer_config.json, chat_template: got an error in default/)
    await expect(loadTokenizer(await changed({ chat_template: [{ name: 'default' }] }))).rejects.toThrow(
      /expected a text, or texts by name/,
    )
  })

  test('named templates without a default say which there are', async () => {
    const { chatTemplate } = await loadTokenizer(await changed({ chat_template: { rag: 'x', tool_use: 'y' } }))
    expect(() => chatTemplate!.render([])).toThrow(/got only rag, tool_use, expected a default/)
    expect(chatTemplate!.render([], { tools: [] })).toBe('y')
  })
})

/** A copy of a recorded folder whose tokenizer_config.json has other entries. */
async function changed(entries: object, name = 'qwen2'): Promise<string> {
  const folder = await temporaryFolder()
  cpSync(folderOf(name), folder, { recursive: true })
  const path = `${folder}/tokenizer_config.json`
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...entries }))
  return folder
}

/** A copy of a recorded folder whose tokenizer.json has other parts. */
async function altered(parts: object, name = 'qwen2'): Promise<string> {
  const folder = await changed({}, name)
  const path = `${folder}/tokenizer.json`
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...parts }))
  return folder
}
