/** The engine behind a gateway: a world's, or one opened for a model, and the sampling of its tokens. */
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
  /** A world with one cohort of conversations. Its engine answers in as many slots as lanes, with its sampling. */
  readonly world?: World
  /** The engine of `policy`; default this process. */
  readonly engine?: EngineDefinition
  /** The sampling, which agents cannot change; default temperature 1 without filters. A world has its own. */
  readonly sampling?: Partial<Sampling>
  /** The model's name; default `model`. Agents may use any. */
  readonly name?: string
}

/** The engine and the sampling of answers. */
export interface Source {
  readonly served: ServedModel
  readonly naming: Naming
  readonly sampling: Sampling
  readonly explore: boolean
  readonly name: string
}

/** The engine of the answers. A world's is created at the first request: a trainer may be made of the world first. */
export async function sourceFrom(
  options: SourceOptions,
): Promise<{ sourceOf: () => Source; notes: readonly string[] }> {
  const { world, policy, engine, name = 'model', sampling, queue = 256 } = options
  if ((world === undefined) === (policy === undefined)) {
    throw new InputError(
      'openGateway',
      world === undefined ? 'neither world nor policy' : 'both',
      'either world or policy',
    )
  }
  if (world !== undefined) {
    const others = ['engine', 'sampling', 'weights', 'adapter', 'environment', 'seed', 'slots', 'context'] as const
    const other = others.find((option) => options[option] !== undefined)
    if (other !== undefined)
      throw new InputError(`openGateway, ${other}`, 'a value together with world', 'no value: the world has its own')
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

function numbered(name: string, { engine }: Batcher): Naming {
  return { names: () => [name], labelOf: String, currentLabel: () => String(engine.version) }
}

function checkKind({ engine }: Batcher, sampling: Sampling): void {
  if (areOfSampling(engine.logprobs, sampling)) return
  const got = `${engine.logprobs}, with ${JSON.stringify(sampling)}`
  const expected = 'those of the distribution that tokens are sampled from'
  throw new InputError(`log-probabilities of engine ${engine.id}`, got, expected)
}

/** The sampling of a session's call, with random numbers that no other call has. */
export function drawingFields({ served, sampling, explore }: Source, session: Session, call: number): Body {
  const { temperature, topP, topK, minP } = sampling
  return {
    ...{ model: served.name, temperature: explore ? temperature : 0, top_p: topP, top_k: topK, min_p: minP },
    seed: session.seedOf(call),
  }
}
