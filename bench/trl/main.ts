/**
 * `npm run bench -- trl`: GRPO of TRL and ours in turns, from the same weights and prompts. Needs Python 3.11 or newer and
 * PyPI at the first visit; what cannot be had is left out, and said.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  byteTokenizer,
  type LanguageModelDefinition,
  saveTransformer,
  type TransformerConfig,
  transformer,
} from '../../src/entries/text.ts'
import {
  type ConversationCohort,
  createTrainer,
  createWorld,
  languageModel,
  rl,
  type Trainer,
  textEnvironmentFactory,
} from '../../src/index.ts'
import { bestKernelBuild } from '../../src/kernels/bind.ts'
import { Companion } from '../companion.ts'
import { check, type Figure, figure, ratio, type Wanted } from '../measure.ts'
import { peerPython, peerSource } from '../peers/python.ts'
import { reportRoom } from '../report.ts'

const reverse = textEnvironmentFactory('text/reverse')

const GROUP_SIZE = 16
/** So small that both stay at the length of answers with which they begin. */
const LEARNING_RATE = 1e-6
const WARMUPS = 2
interface Size {
  readonly name: string
  readonly width: number
  readonly layers: number
  /** Groups of answers an update. So few answers as two groups have do not agree in their rewards. */
  readonly groups: number
  readonly repeats: number
  /** Where it is no new model of the defaults. */
  readonly config?: TransformerConfig
}

/** SmolLM2-135M's shape. Its other tokens mean nothing to the task, whose answers are then as long as they may be. */
const SMOLLM2 = {
  ...{ architectures: ['LlamaForCausalLM'], model_type: 'llama', tie_word_embeddings: true, vocab_size: 49_152 },
  ...{ hidden_size: 576, num_hidden_layers: 30, num_attention_heads: 9, num_key_value_heads: 3 },
  ...{ intermediate_size: 1536, max_position_embeddings: 64, rms_norm_eps: 1e-5, rope_theta: 10_000 },
}

const SIZES: readonly Size[] = [
  { name: '132k', width: 64, layers: 2, groups: 16, repeats: 9 },
  { name: '1.05M', width: 128, layers: 4, groups: 16, repeats: 9 },
  { name: '1.05M', width: 128, layers: 4, groups: 2, repeats: 9 },
  { name: '10.5M', width: 256, layers: 10, groups: 16, repeats: 3 },
  { name: '10.5M', width: 256, layers: 10, groups: 2, repeats: 5 },
  { name: '135M', width: 576, layers: 30, groups: 2, repeats: 3, config: SMOLLM2 },
]

/** A new model of a size, with a tokenizer of the task's characters. */
function policyOf({ width, layers, config }: Size): LanguageModelDefinition {
  if (config === undefined) return languageModel({ width, layers })
  return {
    id: 'configured',
    parameters: {},
    open: async ({ alphabet }) => ({
      ...{ model: transformer(config), tokenizer: byteTokenizer({ alphabet: alphabet! }), context: 64 },
      ...{ folder: null, weightBits: 32 as const, adapter: null },
      openWeights: async () => ({ fill: null, adapter: null, notes: [] }),
    }),
  }
}

/** One rollout and one optimizer step. */
interface Turn {
  readonly rolloutSeconds: number
  readonly updateSeconds: number
  /** Tokens that the model chose, and tokens that it was trained on, prompts included. */
  readonly sampled: number
  readonly trained: number
  readonly gradNorm: number
  readonly reward: number
}

async function makeTrainer(size: Size, threads: number): Promise<Trainer<ConversationCohort>> {
  const { groups, repeats } = size
  const world = await createWorld({
    environment: reverse({ numExamples: groups } as never), // Each update has all the prompts there are.
    policy: policyOf(size),
    numLanes: groups * GROUP_SIZE,
    groupSize: GROUP_SIZE,
    maxTokens: reverse().maxTokens,
    seed: 1,
    kernels: bestKernelBuild(),
  })
  const settings = { updates: WARMUPS + repeats, groupsPerUpdate: groups, groupSize: GROUP_SIZE }
  return createTrainer(world, rl({ loss: 'grpo', preset: 'trl', learningRate: LEARNING_RATE, ...settings }), {
    threads,
  })
}

/** Writes what the peer needs: the weights as they stand, and the task in tokens. */
async function writeTask(folder: string, groups: number, { world }: Trainer<ConversationCohort>): Promise<void> {
  const { model, weights, tokenizer, environment, maxTokens } = world.cohort()
  await saveTransformer(folder, model, weights)
  const examples = Array.from({ length: groups }, (_, i) => environment.example(i))
  const endId = tokenizer.endIds[0]!
  const task = {
    prompts: examples.map(({ prompt }) => tokenizer.encode(prompt as string)),
    answers: examples.map(({ answer }) => answer!),
    texts: Array.from({ length: model.shape.vocabularySize }, (_, id) => tokenizer.decode([id], { skipSpecial: true })),
    groupSize: GROUP_SIZE,
    maxTokens,
    learningRate: LEARNING_RATE,
    endId,
    padId: endId + 1,
  }
  await writeFile(join(folder, 'task.json'), JSON.stringify(task))
}

async function ourTurn(updates: ReturnType<Trainer<ConversationCohort>['updates']>): Promise<Turn> {
  const { value } = await updates.next()
  const { gradNorm, rl } = value!
  const { rolloutSeconds, updateSeconds, sampledTokens: sampled, trainedTokens: trained, reward } = rl!
  return { rolloutSeconds, updateSeconds, sampled, trained, gradNorm, reward: reward! }
}

async function figuresOf(size: Size, python: string, folder: string, threads: number): Promise<Figure[]> {
  const trainer = await makeTrainer(size, threads)
  await writeTask(folder, size.groups, trainer)
  const { numParameters } = trainer.world.cohort().model
  const words = [peerSource('trl_grpo.py'), folder, join(folder, 'task.json'), String(threads)]
  const peer = new Companion(python, words)
  const turns = { ours: [] as Turn[], theirs: [] as Turn[] }
  let version = ''
  try {
    const updates = trainer.updates()
    for (let turn = 0; turn < WARMUPS + size.repeats; turn++) {
      turns.ours.push(await ourTurn(updates))
      turns.theirs.push(await peer.ask<Turn>('run'))
    }
    const about = await peer.ask<{ version: string; parameters: number }>('about')
    check(about.parameters === numParameters, `TRL's model has ${numParameters} parameters, not ${about.parameters}`)
    version = about.version
  } finally {
    peer.close()
    trainer.close()
  }
  const compared =
    size.groups < 16 ? (['sampled', 'trained'] as const) : (['sampled', 'trained', 'gradNorm', 'reward'] as const)
  for (const what of compared) {
    const [ours, theirs] = [turns.ours, turns.theirs].map((each) => each.reduce((sum, turn) => sum + turn[what], 0))
    // They draw different tokens: means over all turns are compared.
    check(Math.abs(ours! / theirs! - 1) < 0.2, `the sums of ${what} are alike: ours ${ours}, TRL's ${theirs}`)
  }
  const threadsInWords = threads === 1 ? '1 thread' : `${threads} threads`
  const [ours, theirs] = [turns.ours.slice(WARMUPS), turns.theirs.slice(WARMUPS)]
  return (['rollout', 'training'] as const).flatMap((what) => {
    const [tokens, seconds] =
      what === 'rollout' ? (['sampled', 'rolloutSeconds'] as const) : (['trained', 'updateSeconds'] as const)
    // Seconds a token, as they generate different numbers of them.
    const costs = [theirs, ours].map((each) => each.map((turn) => turn[seconds] / turn[tokens]))
    const name = `text/reverse, ${size.name} parameters, ${size.groups} × ${GROUP_SIZE}, ${what}`
    const rates = (each: readonly number[]) => each.map((cost) => 1 / cost)
    return [
      figure(`${name}, TRL ${version}, ${threadsInWords}`, 'tokens/s', rates(costs[0]!)),
      {
        ...figure(`${name}, Colonnade, ${threadsInWords}`, 'tokens/s', rates(costs[1]!)),
        ratios: [ratio('TRL', costs[0]!, costs[1]!, wantedOf(size, what))],
      },
    ]
  })
}

/** Of models of a million parameters and more: training as fast as torch's, and sampling of 32 lanes faster. */
function wantedOf({ width, groups, config }: Size, what: 'rollout' | 'training'): Wanted | undefined {
  if (width < 128) return undefined
  if (what === 'training') return groups === 16 || config !== undefined ? { atLeast: 1 } : undefined
  return groups * GROUP_SIZE === 32 ? { atLeast: 1.3 } : undefined
}

const figures: Figure[] = []
const skipped: string[] = []
try {
  const python = peerPython()
  // Where other programs are at work, torch's threads wait for one another, and one is faster than all.
  for (const [size, threads] of SIZES.flatMap((one) => [1, availableParallelism()].map((n) => [one, n] as const))) {
    const folder = await mkdtemp(join(tmpdir(), 'colonnade-trl-'))
    try {
      figures.push(...(await figuresOf(size, python, folder, threads)))
    } finally {
      await rm(folder, { recursive: true })
    }
  }
} catch (error) {
  const { message } = error as Error
  if (message.startsWith("the bench's check failed")) throw error
  skipped.push(`TRL: ${message.trim()}`)
}
reportRoom('trl', figures, skipped)
