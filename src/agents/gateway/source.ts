/** What a gateway's answers come from: the engine of a world, or of a model that is opened for it, and how its tokens are drawn. */
import { randomUUID } from 'node:crypto'
import { InputError } from '../../base/errors.ts'
import type { Body } from '../../base/http/server.ts'
import { areOfSampling, type EngineDefinition } from '../../engines/engine.ts'
import { checkSampling, type Sampling } from '../../language/transformer/sampling.ts'
import { asConversations } from '../../world/cohort.ts'
import type { World } from '../../world/world.ts'
import { Batcher } from '../serving/batcher.ts'
import type { Naming } from '../serving/naming.ts'
import { openModelOf, openServedModel, type ServedModel, type ServedModelOptions } from '../serving/served-model.ts'
import { writesCalls } from '../serving/tools.ts'
import type { Session } from './sessions.ts'

/** A world whose engine answers, or a model. */
export interface SourceOptions extends Partial<ServedModelOptions> {
  /** A world of one cohort of conversations: its engine answers, in as many slots as it has lanes, and its sampling is taken. */
  readonly world?: World
  /** Who chooses the tokens of `policy`; default this process. */
  readonly engine?: EngineDefinition
  /** How tokens are drawn, whatever agents ask for; default temperature 1 of the whole distribution. A world has its own. */
  readonly sampling?: Partial<Sampling>
  /** What the model is called; default `model`. Agents may call it anything. */
  readonly name?: string
}

/** What answers come from, and how they are drawn. */
export interface Source {
  readonly served: ServedModel
  readonly naming: Naming
  readonly sampling: Sampling
  readonly explore: boolean
  /** What rows are from. */
  readonly name: string
}

/** The engine that answers; a world's is made when it is first asked, since a trainer may be made of the world before. */
export async function sourceFrom(
  options: SourceOptions,
): Promise<{ sourceOf: () => Source; notes: readonly string[] }> {
  const { world, policy, engine, name = 'model', sampling, queue = 256 } = options
  if ((world === undefined) === (policy === undefined)) {
    throw new InputError('openGateway', world === undefined ? 'neither world nor policy' : 'both', 'world, or policy')
  }
  if (world !== undefined) {
    const others = ['engine', 'sampling', 'weights', 'adapter', 'environment', 'seed', 'slots', 'context'] as const
    const other = others.find((option) => options[option] !== undefined)
    if (other !== undefined)
      throw new InputError(`openGateway, ${other}`, 'one beside world', 'none: the world has its own')
    let source: Source | null = null
    return { sourceOf: () => (source ??= sourceOfWorld(world, name, queue)), notes: [] }
  }
  const { weights, adapter, environment, seed, slots, context } = options
  const rest = { weights, adapter, environment, seed, slots, queue, context }
  const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined))
  const model = { policy: policy!, ...given }
  const served = engine === undefined ? await openServedModel(name, model) : await openModelOf(name, engine, model)
  const drawn = checkSampling({ temperature: 1, topK: 0, topP: 1, minP: 0, ...sampling })
  checkKind(served.batcher, drawn)
  const naming = 'weights' in served ? (served.weights as Naming) : numbered(name, served.batcher)
  const source = { served, naming, sampling: drawn, explore: true, name: `gateway ${randomUUID()}` }
  return { sourceOf: () => source, notes: served.notes }
}

function sourceOfWorld(world: World, name: string, queue: number): Source {
  const cohort = asConversations('openGateway({ world })', world.cohort())
  const { engine, tokenizer, numLanes, context, model, sampling, explore, source } = cohort
  const batcher = new Batcher(engine, numLanes, queue)
  checkKind(batcher, sampling)
  const { vocabularySize } = model.shape
  const served = { name, tokenizer, context, vocabularySize, batcher, writesCalls: writesCalls(tokenizer) }
  return { served, naming: numbered(name, batcher), sampling, explore, name: source }
}

/** Versions by their numbers. */
function numbered(name: string, { engine }: Batcher): Naming {
  return { names: () => [name], labelOf: String, currentLabel: () => String(engine.version) }
}

function checkKind({ engine }: Batcher, sampling: Sampling): void {
  if (areOfSampling(engine.logprobs, sampling)) return
  const got = `${engine.logprobs}, with ${JSON.stringify(sampling)}`
  const expected = 'those of the distribution that tokens are drawn from'
  throw new InputError(`log-probabilities of engine ${engine.id}`, got, expected)
}

/** How the tokens of a session's call are drawn: of no two calls by the same numbers. */
export function drawingFields({ served, sampling, explore }: Source, session: Session, call: number): Body {
  const { temperature, topP, topK, minP } = sampling
  return {
    ...{ model: served.name, temperature: explore ? temperature : 0, top_p: topP, top_k: topK, min_p: minP },
    seed: session.seedOf(call),
  }
}
