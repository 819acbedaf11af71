/** Constrained answers over a vocabulary of 50,000 tokens, beside answers without a constraint by the same engine. */
import { byteTokenizer, type LanguageModelDefinition, type Tokenizer, transformer } from '../../src/entries/text.ts'
import { createWorld, defineTextEnvironment, Random } from '../../src/index.ts'
import { type Figure, figure, interleave, rates, ratio, secondsOf } from '../measure.ts'

const VOCABULARY = 50_000
const [SLOTS, TOKENS, CONTEXT] = [16, 4000, 128]
const LETTERS = 'etaoinshrdlucmfwypvbgkqjxz'
const MARKS = ['":', '",', '"}', '},', '[{', '],', '{"', ': ', ', ', '."', '\\n', ' "']

/** A tokenizer of bytes and pieces of words, some of them with marks of JSON. It only has to decode. */
function pieces(): Tokenizer {
  const bytes = byteTokenizer()
  const file = JSON.parse(new TextDecoder().decode(bytes.files.get('tokenizer.json'))) as {
    model: { vocab: Record<string, number> }
    added_tokens: { id: number }[]
  }
  const list = Object.entries(file.model.vocab)
    .sort(([, a], [, b]) => a - b)
    .map(([piece]) => piece)
  const known = new Set(list)
  const random = new Random(7)
  for (let i = 0; known.size < VOCABULARY - file.added_tokens.length; i++) {
    random.draw(0, i, 0, 0)
    const number = (k: number, below: number) => Math.floor(random.uniform(k) * below)
    let word = ''
    for (let seed = number(0, 26 ** 5), length = 1 + number(1, 5); length > 0; length--, seed = Math.floor(seed / 26)) {
      word += LETTERS[seed % 26]
    }
    if (number(2, 10) === 0) word += MARKS[i % MARKS.length]
    if (number(3, 2) === 0) word = `Ġ${word}`
    known.add(word.replaceAll(' ', 'Ġ'))
  }
  const words = [...known]
  file.model.vocab = Object.fromEntries(words.map((word, id) => [word, id]))
  const shift = words.length - 256
  for (const token of file.added_tokens) token.id += shift
  const texts = words.map((word) => word.replaceAll('Ġ', ' '))
  return {
    ...bytes,
    id: 'pieces',
    vocabularySize: VOCABULARY,
    endIds: bytes.endIds.map((id) => id + shift),
    files: new Map([['tokenizer.json', new TextEncoder().encode(JSON.stringify(file))]]),
    decode: (ids) => Array.from(ids, (id) => (id < 256 ? bytes.decode([id]) : (texts[id] ?? ''))).join(''),
  }
}

function policy(tokenizer: Tokenizer): LanguageModelDefinition {
  const model = transformer({
    architectures: ['LlamaForCausalLM'],
    ...{ model_type: 'llama', vocab_size: VOCABULARY, hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4 },
    ...{ intermediate_size: 256, max_position_embeddings: CONTEXT, rms_norm_eps: 1e-5, rope_theta: 10_000 },
    ...{ tie_word_embeddings: true, initializer_range: 0.125 },
  })
  const opened = { model, tokenizer, weightBits: 32 as const, adapter: null, context: CONTEXT, folder: null }
  const begins = { fill: null, adapter: null, notes: [] }
  return { id: 'pieces', parameters: {}, open: async () => ({ ...opened, openWeights: async () => begins }) }
}

const environment = defineTextEnvironment({
  id: 'text/constrained',
  settings: {},
  make: () => ({ numExamples: 1, example: () => ({ prompt: 'x' }), respond: () => ({ reward: 0 }) }),
})

const schemaOf = (text: object) => ({
  schema: {
    type: 'object',
    properties: {
      name: text,
      age: { type: 'integer', minimum: 0, maximum: 130 },
      tags: { type: 'array', items: text, minItems: 1, maxItems: 4 },
      address: {
        type: 'object',
        properties: { city: text, zip: { type: 'string', pattern: '^\\d{5}$' } },
        required: ['city'],
      },
      state: { enum: ['open', 'closed', 'unknown'] },
    },
    required: ['name', 'age', 'tags', 'address', 'state'],
  },
})

/** Tokens a second of answers that are of a schema, and of any, in turns. */
export async function constrainedFigures(): Promise<Figure[]> {
  const tokenizer = pieces()
  const world = await createWorld({ environment: environment(), policy: policy(tokenizer), numLanes: SLOTS, seed: 1 })
  const { engine } = world.cohort()
  const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0 }
  let turn = 0
  const run = (constraint?: { readonly schema: object }) => () =>
    secondsOf(() => {
      const submit = (slot: number) =>
        engine.submit({
          ...{
            slot,
            ids: Int32Array.of(65),
            generated: 0,
            unchanged: 0,
            maxTokens: CONTEXT - 1,
            sampling,
            explore: true,
          },
          ...{ stopStrings: [], key: [turn++, 0, 0] as const, ...(constraint && { constraint }) },
        })
      for (let slot = 0; slot < SLOTS; slot++) submit(slot)
      for (let count = 0; count < TOKENS; ) {
        engine.advance()
        const { tokens, ends } = engine.poll()
        for (const block of tokens) count += block.count
        for (const { slot } of ends) submit(slot)
      }
      for (let slot = 0; slot < SLOTS; slot++) engine.abort(slot)
      engine.poll()
    })
  const started = performance.now()
  engine.prepare!(schemaOf({ type: 'string' }))
  const first = performance.now() - started
  const short = { type: 'string', maxLength: 30 }
  const seconds = await interleave(
    { free: run(), schema: run(schemaOf({ type: 'string' })), lengths: run(schemaOf(short)) },
    { repeats: 5 },
  )
  const wanted = { atLeast: 0.85 }
  return [
    figure(
      'answers without a constraint, 50,000 tokens of vocabulary, 16 at once',
      'tokens/s',
      rates(TOKENS, seconds.free),
    ),
    {
      ...figure('answers of a JSON schema', 'tokens/s', rates(TOKENS, seconds.schema)),
      ratios: [ratio('without a constraint', seconds.free, seconds.schema, wanted)],
    },
    {
      ...figure('the same with maxLength', 'tokens/s', rates(TOKENS, seconds.lengths)),
      ratios: [ratio('without a constraint', seconds.free, seconds.lengths)],
    },
    figure('reading the vocabulary and the schema, once', 'ms', [first]),
  ]
}
