/** An actor's work for a run of conversations: it generates whole groups with an engine of its own. */
import { trainedOf } from '../../algorithms/tokens/token-learner.ts'
import { InputError } from '../../base/errors.ts'
import type { Plan } from '../../components/column.ts'
import { deliverWeights } from '../../engines/engine.ts'
import type { TextEnvironmentDefinition } from '../../environments/text.ts'
import type { Message } from '../../fleet/bus/bus.ts'
import type { LanguageModelDefinition } from '../../language/language-model.ts'
import { tick } from '../../systems/tick.ts'
import type { ConversationCohort, ConversationDraft } from '../../world/conversations/cohort.ts'
import { openWorld, type World } from '../../world/world.ts'
import { type ActorWork, turns, type WorkTools } from './actor-work.ts'
import type { ConversationDescription, JoinedRun } from './description.ts'
import { type GroupResult, type GroupTask, groupsToBytes, schemaOfConversations } from './group-parts.ts'

/** The lanes and the model of this process. */
interface Place {
  readonly world: World
  readonly cohort: ConversationCohort
  /** The hash of its weights. */
  weights: string
}

/**
 * The learner's model and examples in a world of so many lanes, with the columns of `learner`.
 * @throws InputError if the model, its frozen weights or the examples are not as the learner's.
 */
export async function openConversationWorld(
  { environment, policy, kernels, description }: JoinedRun,
  numLanes: number,
  learner: (draft: ConversationDraft) => Plan = () => ({}),
): Promise<World> {
  const { cohort: given, seed, schema } = description as ConversationDescription
  const options = {
    ...{ ...given, numLanes },
    environment: environment as unknown as TextEnvironmentDefinition,
    policy: policy as LanguageModelDefinition,
  }
  const world = await openWorld({ cohorts: [options], seed, kernels })
  const draft = world.draft() as ConversationDraft
  world.reserve(draft, { learner: learner(draft) })
  const own = schemaOfConversations(world.cohort() as ConversationCohort)
  if (own === schema) return world
  world.close()
  const expected = `${schema}, as the learner's: the same model, frozen weights and examples`
  throw new InputError('model of the actor', own, expected)
}

export class GroupWork implements ActorWork {
  readonly description: string
  readonly #joined: JoinedRun
  #place: Place | null = null

  private constructor(joined: JoinedRun) {
    this.#joined = joined
    const { environment, policy } = joined.description
    this.description = `${environment.id} by ${policy.id}, in groups`
  }

  /** @throws InputError if the model, its frozen weights or the examples are not as the learner's. */
  static async open(joined: JoinedRun): Promise<GroupWork> {
    const work = new GroupWork(joined)
    work.#place = await work.#open()
    return work
  }

  async #open(): Promise<Place> {
    const { cohort: options, source } = this.#joined.description as ConversationDescription
    const world = await openConversationWorld(this.#joined, options.numLanes)
    const cohort = world.cohort() as ConversationCohort
    cohort.source = source
    return { world, cohort, weights: '' }
  }

  close(): void {
    this.#place?.world.close()
    this.#place = null
  }

  /** Conversations that stopped in the middle are given up with their lanes. */
  forget(): void {
    this.close()
  }

  failed(task: Message, error: string, { actor, waited }: Pick<WorkTools, 'actor' | 'waited'>): Message {
    return { ...task, actor, rows: '', seconds: 0, waited, error }
  }

  async collect(given: Message, { actor, store, waited, put, during }: WorkTools): Promise<void> {
    const task = given as unknown as GroupTask
    this.#place ??= await during(() => this.#open())
    const { world, cohort } = this.#place
    const { id, from, until, version } = task
    const began = performance.now()
    await this.#load(this.#place, task, store)
    const { conversation, trajectories, groupSize, numLanes } = cohort
    await during(async () => {
      trajectories.clear()
      conversation.begun[0] = from * groupSize
      cohort.released = until * groupSize
      const pause = turns()
      while (trajectories.numConversations < (until - from) * groupSize) {
        const waiting = tick(world)
        if (waiting !== undefined) await waiting
        const paused = pause()
        if (paused !== undefined) await paused
      }
    })
    const rows = await store.put(await groupsToBytes(trajectories))
    const seconds = (performance.now() - began) / 1000
    const result: GroupResult = { ...task, actor, rows, seconds, waited, error: null }
    const steps = trajectories.columns().version.reduce((sum, each) => (each === -1 ? sum : sum + 1), 0)
    await put(id, { ...result }, { steps, seconds, lanes: numLanes, version })
  }

  async #load(place: Place, { version, weights }: GroupTask, store: WorkTools['store']): Promise<void> {
    const { cohort } = place
    if (place.weights === weights && cohort.version === version) return
    const trained = trainedOf(cohort.quantized ?? cohort.weights, cohort.adapter)
    if (place.weights !== weights) {
      const bytes = await store.get(weights)
      const own = new Uint8Array(trained.buffer, trained.byteOffset, trained.byteLength)
      if (bytes.length !== own.length) throw new InputError('weights', `${bytes.length} bytes`, `${own.length}`)
      place.weights = ''
      own.set(bytes)
    }
    cohort.version = version
    await deliverWeights(cohort.engine, { version, weights: trained })
    place.weights = weights
  }
}
