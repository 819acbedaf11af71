/**
 * `npm run bench -- llama-cpp`: one sequence decoded by llama.cpp and by us, from the same weights: in f32; and with projections
 * in 8 or 4 bits, llama.cpp's by Q8_0 or Q4_0, which round what they are multiplied with to 8 bits, too. Needs Python 3.11 or newer and PyPI
 * at the first visit.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { byteTokenizer, type LanguageModelDefinition, transformer } from '../../src/entries/text.ts'
import { type ConversationCohort, createWorld, defineTextEnvironment, tick, type World } from '../../src/index.ts'
import { bestKernelBuild } from '../../src/kernels/bind.ts'
import { Companion } from '../companion.ts'
import { check, type Figure, figure, interleave, rates, ratio, secondsOf } from '../measure.ts'
import { writeGguf } from '../peers/gguf.ts'
import { peerPython, peerSource } from '../peers/python.ts'
import { reportRoom } from '../report.ts'

const PROMPT = 'Once upon a time'
const TOKENS = 64
/** A text begins with a token of its own. */
const CONTEXT = 1 + PROMPT.length + TOKENS
const REPEATS = 7
/** Models; the last has SmolLM2-135M's shape. */
const SIZES = [
  { name: '1.05M', layers: 4, width: 128, heads: 4, keyHeads: 4, feedForwardWidth: 512, vocabulary: 263 },
  { name: '10.5M', layers: 10, width: 256, heads: 4, keyHeads: 4, feedForwardWidth: 1024, vocabulary: 263 },
  { name: '135M', layers: 30, width: 576, heads: 9, keyHeads: 3, feedForwardWidth: 1536, vocabulary: 49_152 },
]

const environment = defineTextEnvironment({
  id: 'text/continued',
  settings: {},
  make: () => ({
    numExamples: 1,
    example: () => ({ prompt: PROMPT, maxTokens: TOKENS }),
    respond: () => ({ reward: 0 }),
  }),
})()

/** How weights are kept, and what they are multiplied with. */
const KINDS = {
  f32: { weightBits: 32, quantizeActivations: false },
  '8 bits by f32': { weightBits: 8, quantizeActivations: false },
  '8 bits by 8 bits': { weightBits: 8, quantizeActivations: true },
  '4 bits by f32': { weightBits: 4, quantizeActivations: false },
  '4 bits by 8 bits': { weightBits: 4, quantizeActivations: true },
} as const
type Kind = keyof typeof KINDS

/** A model of a size, new, whose tokenizer knows no end: each answer has all of its tokens. */
function policyOf(size: (typeof SIZES)[number], kind: Kind): LanguageModelDefinition {
  const { weightBits, quantizeActivations } = KINDS[kind]
  const config = {
    ...{ architectures: ['LlamaForCausalLM'], model_type: 'llama', tie_word_embeddings: true },
    ...{ hidden_size: size.width, num_hidden_layers: size.layers, vocab_size: size.vocabulary },
    ...{ num_attention_heads: size.heads, num_key_value_heads: size.keyHeads },
    ...{ intermediate_size: size.feedForwardWidth, max_position_embeddings: CONTEXT },
    ...{ rms_norm_eps: 1e-5, rope_theta: 10_000, initializer_range: 1 / Math.sqrt(size.width) },
  }
  return {
    id: 'endless',
    parameters: {},
    open: async () => ({
      ...{ model: transformer(config, { quantizeActivations }), context: CONTEXT, folder: null },
      ...{ tokenizer: { ...byteTokenizer(), endIds: [] }, weightBits, adapter: null },
      openWeights: async () => ({ fill: null, adapter: null, notes: [] }),
    }),
  }
}

/** Decodes an answer; seconds from its first token to its last. */
function decode(world: World<ConversationCohort>): number {
  const cohort = world.cohort()
  const before = cohort.trajectories.count
  cohort.released++
  tick(world)
  const seconds = secondsOf(() => {
    while (cohort.trajectories.count === before) tick(world)
  })
  return seconds
}

/** A world of one lane. */
const worldOf = (size: (typeof SIZES)[number], kind: Kind) =>
  createWorld({
    ...{ environment, policy: policyOf(size, kind), numLanes: 1, seed: 1, explore: false, kernels: bestKernelBuild() },
  })

async function figuresOf(size: (typeof SIZES)[number], python: string, folder: string): Promise<Figure[]> {
  const [whole, bytes, bytesByBytes, nibbles, nibblesByBytes] = await Promise.all(
    (Object.keys(KINDS) as Kind[]).map((kind) => worldOf(size, kind)),
  )
  const { model, weights } = whole!.cohort()
  const open = async (name: string, options: Parameters<typeof writeGguf>[3]) => {
    const file = join(folder, `${name}.gguf`)
    await writeGguf(file, model, weights, options)
    return new Companion(python, [peerSource('llama_cpp.py'), file, '1', String(CONTEXT + 1)])
  }
  const f32 = await open('f32', {})
  const projections8 = await open('projections8', { type: 'Q8_0', embedding: false })
  const all8 = await open('all8', { type: 'Q8_0' })
  const projections4 = await open('projections4', { type: 'Q4_0', embedding: false })
  const all4 = await open('all4', { type: 'Q4_0' })
  try {
    decode(whole!)
    const row = Array.from(whole!.cohort().trajectories.row(0).token)
    const [prompt, ours] = [row.slice(0, -TOKENS), row.slice(-TOKENS)]
    const ask = (peer: Companion, ids: boolean) =>
      peer.ask<{ ids: number[] | null; seconds: number }>(JSON.stringify({ prompt, tokens: TOKENS, ids }))
    const { ids: theirs } = await ask(f32, true)
    check(String(ours) === String(theirs), `llama.cpp answers ${theirs}, and we ${ours}`)
    const seconds = await interleave(
      {
        theirs: async () => (await ask(f32, false)).seconds,
        ours: () => decode(whole!),
        theirProjections8: async () => (await ask(projections8, false)).seconds,
        theirAll8: async () => (await ask(all8, false)).seconds,
        bytes: () => decode(bytes!),
        bytesByBytes: () => decode(bytesByBytes!),
        theirProjections4: async () => (await ask(projections4, false)).seconds,
        theirAll4: async () => (await ask(all4, false)).seconds,
        nibbles: () => decode(nibbles!),
        nibblesByBytes: () => decode(nibblesByBytes!),
      },
      { repeats: REPEATS },
    )
    const name = `${size.name} parameters, one sequence, 1 thread`
    const steps = TOKENS - 1
    const of = (what: string, taken: number[]) => figure(`${name}, ${what}`, 'tokens/s', rates(steps, taken))
    const of8 = (taken: number[]) => [
      ratio('llama.cpp, projections in Q8_0', seconds.theirProjections8, taken),
      ratio('llama.cpp, all in Q8_0', seconds.theirAll8, taken),
    ]
    const of4 = (taken: number[]) => [
      ratio('llama.cpp, projections in Q4_0', seconds.theirProjections4, taken),
      ratio('llama.cpp, all in Q4_0', seconds.theirAll4, taken),
    ]
    return [
      of('f32, llama.cpp', seconds.theirs),
      {
        ...of('f32, Colonnade', seconds.ours),
        ratios: [ratio('llama.cpp', seconds.theirs, seconds.ours, { atLeast: 0.9 })],
      },
      figure(
        `${name}, f32, weights read by Colonnade`,
        'GB/s',
        rates((steps * 4 * model.numParameters) / 1e9, seconds.ours),
      ),
      of('projections in Q8_0, llama.cpp', seconds.theirProjections8),
      of('all in Q8_0, llama.cpp', seconds.theirAll8),
      { ...of('projections in 8 bits, Colonnade', seconds.bytes), ratios: of8(seconds.bytes) },
      {
        ...of('projections and their inputs in 8 bits, Colonnade', seconds.bytesByBytes),
        ratios: of8(seconds.bytesByBytes),
      },
      of('projections in Q4_0, llama.cpp', seconds.theirProjections4),
      of('all in Q4_0, llama.cpp', seconds.theirAll4),
      { ...of('projections in 4 bits, Colonnade', seconds.nibbles), ratios: of4(seconds.nibbles) },
      {
        ...of('projections in 4 bits, their inputs in 8, Colonnade', seconds.nibblesByBytes),
        ratios: of4(seconds.nibblesByBytes),
      },
    ]
  } finally {
    for (const peer of [f32, projections8, all8, projections4, all4]) peer.close()
  }
}

const figures: Figure[] = []
const skipped: string[] = []
try {
  const python = peerPython()
  for (const size of SIZES) {
    const folder = await mkdtemp(join(tmpdir(), 'colonnade-llama-'))
    try {
      figures.push(...(await figuresOf(size, python, folder)))
    } finally {
      await rm(folder, { recursive: true })
    }
  }
} catch (error) {
  const { message } = error as Error
  if (message.startsWith("the bench's check failed")) throw error
  skipped.push(`llama.cpp: ${message.trim()}`)
}
reportRoom('llama-cpp', figures, skipped)
