/**
 * `npm run bench -- llama-cpp`: one sequence decoded in f32 by llama.cpp and by us, from the same weights. Needs Python 3.11 or
 * newer and PyPI at the first visit.
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

/** A model of a size, new, whose tokenizer knows no end: each answer has all of its tokens. */
function policyOf(size: (typeof SIZES)[number]): LanguageModelDefinition {
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
      ...{ model: transformer(config), tokenizer: { ...byteTokenizer(), endIds: [] }, context: CONTEXT, folder: null },
      ...{ isQuantized: false, adapter: null },
      readWeights: async () => ({ weights: null, adapter: null, notes: [] }),
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

async function figuresOf(size: (typeof SIZES)[number], python: string, folder: string): Promise<Figure[]> {
  const world = await createWorld({
    ...{ environment, policy: policyOf(size), numLanes: 1, seed: 1, explore: false, kernels: bestKernelBuild() },
  })
  const cohort = world.cohort()
  const file = join(folder, 'model.gguf')
  await writeGguf(file, cohort.model, cohort.weights)
  decode(world)
  const row = Array.from(cohort.trajectories.row(0).token)
  const [prompt, ours] = [row.slice(0, -TOKENS), row.slice(-TOKENS)]
  const peer = new Companion(python, [peerSource('llama_cpp.py'), file, '1', String(CONTEXT + 1)])
  const ask = (ids: boolean) =>
    peer.ask<{ ids: number[] | null; seconds: number }>(JSON.stringify({ prompt, tokens: TOKENS, ids }))
  try {
    const { ids: theirs } = await ask(true)
    check(String(ours) === String(theirs), `llama.cpp answers ${theirs}, and we ${ours}`)
    const seconds = await interleave(
      { theirs: async () => (await ask(false)).seconds, ours: () => decode(world) },
      { repeats: REPEATS },
    )
    const bytes = 4 * cohort.model.numParameters
    const name = `${size.name} parameters, one sequence, f32, 1 thread`
    const steps = TOKENS - 1
    return [
      figure(`${name}, llama.cpp`, 'tokens/s', rates(steps, seconds.theirs)),
      {
        ...figure(`${name}, Colonnade`, 'tokens/s', rates(steps, seconds.ours)),
        ratios: [ratio('llama.cpp', seconds.theirs, seconds.ours, { atLeast: 0.9 })],
      },
      figure(`${name}, weights read by Colonnade`, 'GB/s', rates((steps * bytes) / 1e9, seconds.ours)),
    ]
  } finally {
    peer.close()
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
