/**
 * `npm run bench -- llama-cpp`: one sequence decoded by llama.cpp and by us, from the same weights: in f32 and bf16; and with
 * projections, or all matrices, in 8 or 4 bits, llama.cpp's by Q8_0 or Q4_0, which round what they are multiplied with to 8 bits, too. Needs Python 3.11 or newer and PyPI
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

/** How llama.cpp's weights are kept. */
const PEERS = {
  f32: {},
  bf16: { type: 'BF16' },
  'projections in Q8_0': { type: 'Q8_0', embedding: false },
  'all in Q8_0': { type: 'Q8_0' },
  'projections in Q4_0': { type: 'Q4_0', embedding: false },
  'all in Q4_0': { type: 'Q4_0' },
} as const
type Peer = keyof typeof PEERS
const peers = Object.keys(PEERS) as Peer[]

/** How weights are kept, what they are multiplied with, and llama.cpp's of the same bits. */
type WeightBits = 32 | 16 | 8 | 4
type Way = readonly [weightBits: WeightBits, embeddingBits: WeightBits, quantizeActivations: boolean, peer: Peer]
const KINDS = {
  f32: [32, 32, false, 'f32'],
  bf16: [16, 16, false, 'bf16'],
  'projections in 8 bits': [8, 32, false, 'projections in Q8_0'],
  'projections and their inputs in 8 bits': [8, 32, true, 'projections in Q8_0'],
  'all in 8 bits': [8, 8, false, 'all in Q8_0'],
  'all and their inputs in 8 bits': [8, 8, true, 'all in Q8_0'],
  'projections in 4 bits': [4, 32, false, 'projections in Q4_0'],
  'projections in 4 bits, their inputs in 8': [4, 32, true, 'projections in Q4_0'],
  'all in 4 bits': [4, 4, false, 'all in Q4_0'],
  'all in 4 bits, their inputs in 8': [4, 4, true, 'all in Q4_0'],
} satisfies Record<string, Way>
type Kind = keyof typeof KINDS
const kinds = Object.keys(KINDS) as Kind[]

/** A model of a size, new, whose tokenizer knows no end: each answer has all of its tokens. */
function policyOf(size: (typeof SIZES)[number], kind: Kind): LanguageModelDefinition {
  const [weightBits, embeddingBits, quantizeActivations]: Way = KINDS[kind]
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
      ...{ model: transformer(config, { quantizeActivations, embeddingBits }), context: CONTEXT, folder: null },
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

function ratioOf(kind: Kind, seconds: Readonly<Record<string, number[]>>) {
  const [, , , peer] = KINDS[kind]
  return ratio(`llama.cpp, ${peer}`, seconds[`llama.cpp, ${peer}`]!, seconds[kind]!, { atLeast: 0.9 })
}

async function figuresOf(size: (typeof SIZES)[number], python: string, folder: string): Promise<Figure[]> {
  const worlds = new Map<Kind, Awaited<ReturnType<typeof worldOf>>>()
  for (const kind of kinds) worlds.set(kind, await worldOf(size, kind))
  const whole = worlds.get('f32')!
  const { model, weights } = whole.cohort()
  const programs = new Map<Peer, Companion>()
  try {
    for (const peer of peers) {
      const file = join(folder, `${peer}.gguf`)
      await writeGguf(file, model, weights, PEERS[peer])
      programs.set(peer, new Companion(python, [peerSource('llama_cpp.py'), file, '1', String(CONTEXT + 1)]))
    }
    decode(whole)
    const row = Array.from(whole.cohort().trajectories.row(0).token)
    const [prompt, ours] = [row.slice(0, -TOKENS), row.slice(-TOKENS)]
    const ask = (peer: Peer, ids: boolean) =>
      programs
        .get(peer)!
        .ask<{ ids: number[] | null; seconds: number }>(JSON.stringify({ prompt, tokens: TOKENS, ids }))
    const { ids: theirs } = await ask('f32', true)
    check(String(ours) === String(theirs), `llama.cpp answers ${theirs}, and we ${ours}`)
    const seconds = await interleave(
      {
        ...Object.fromEntries(
          peers.map((peer) => [`llama.cpp, ${peer}`, async () => (await ask(peer, false)).seconds]),
        ),
        ...Object.fromEntries(kinds.map((kind) => [kind, () => decode(worlds.get(kind)!)])),
      },
      { repeats: REPEATS },
    )
    const name = `${size.name} parameters, one sequence, 1 thread`
    const steps = TOKENS - 1
    const of = (what: string, taken: number[]) => figure(`${name}, ${what}`, 'tokens/s', rates(steps, taken))
    return [
      ...peers.map((peer) => of(`${peer}, llama.cpp`, seconds[`llama.cpp, ${peer}`]!)),
      ...kinds.map((kind) => ({
        ...of(`${kind}, Colonnade`, seconds[kind]!),
        ratios: [ratioOf(kind, seconds)],
      })),
      figure(
        `${name}, f32, weights read by Colonnade`,
        'GB/s',
        rates((steps * 4 * model.numParameters) / 1e9, seconds.f32!),
      ),
    ]
  } finally {
    for (const program of programs.values()) program.close()
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
