/** An actor's work for a run of episodes: it collects parts of rollouts in lanes of its own. */
import { InputError } from '../../base/errors.ts'
import type { EnvironmentDefinition } from '../../environments/environment.ts'
import type { Message } from '../../fleet/bus/bus.ts'
import type { PolicyDefinition } from '../../policies/policy.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { EpisodeCohortOptions } from '../../world/episodes/options.ts'
import { collectFor } from '../../world/episodes/shares.ts'
import { openWorld, type World } from '../../world/world.ts'
import { WatchedRollouts } from '../loop/collection.ts'
import { collectAhead } from '../threads/crew.ts'
import { type ActorWork, turns, type WorkTools } from './actor-work.ts'
import type { EpisodeDescription, JoinedRun } from './description.ts'
import {
  messageOf,
  type PartResult,
  type PartTask,
  readState,
  rowsToBytes,
  schemaOf,
  shareOfMember,
  stateToBytes,
} from './parts.ts'

/** The lanes of this process, in which it collects for one member after another. */
interface Place {
  readonly world: World
  readonly cohort: EpisodeCohort
  readonly watched: WatchedRollouts
  /** Whose lanes have a state, and the state's hash; empty without one. */
  member: number
  state: string
  /** The hash of its weights. */
  weights: string
}

/** The options of the run's cohort. */
export function episodeOptions({ description, environment, policy }: JoinedRun): EpisodeCohortOptions {
  const { numSteps: _, ...rest } = (description as EpisodeDescription).cohort
  return { ...rest, environment: environment as EnvironmentDefinition, policy: policy as PolicyDefinition }
}

export class EpisodeWork implements ActorWork {
  readonly description: string
  readonly #joined: JoinedRun
  readonly #given: EpisodeDescription
  #place: Place | null = null

  private constructor(joined: JoinedRun) {
    this.#joined = joined
    this.#given = joined.description as EpisodeDescription
    const { environment, policy, cohort } = this.#given
    this.description = `${environment.id} by ${policy.id}, ${cohort.numLanes} lanes in parts`
  }

  /** @throws InputError if the columns are not as the learner's, before it takes a part. */
  static async open(joined: JoinedRun): Promise<EpisodeWork> {
    const work = new EpisodeWork(joined)
    work.#place = await work.#open()
    return work
  }

  close(): void {
    this.#place?.world.close()
    this.#place = null
  }

  /** Lanes that stopped in the middle of a rollout are given up with their world. */
  forget(): void {
    this.close()
  }

  failed(task: Message, error: string, { actor, waited }: Pick<WorkTools, 'actor' | 'waited'>): Message {
    const { until: _, ...rest } = task as unknown as PartTask
    return messageOf({ ...rest, rows: '', after: '', seconds: 0, waited, error, rollout: rest.from, actor })
  }

  async #open(): Promise<Place> {
    const { seed, numMembers, schema, cohort: given } = this.#given
    const options = { cohorts: [episodeOptions(this.#joined)], seed, kernels: this.#joined.kernels }
    const world = await openWorld(options, { index: 1 })
    const draft = world.draft()
    if (draft.kind !== 'episodes') throw new InputError('environment', draft.kind, 'an environment whose lanes step')
    world.reserve(draft, { numSteps: given.numSteps, learner: {}, numBuffers: 1 })
    world.split(1 + numMembers, numMembers)
    const cohort = world.cohort() as EpisodeCohort
    const own = schemaOf(cohort)
    if (own !== schema) {
      const expected = `${schema}, as the learner's: the same code of environment and policy`
      throw new InputError('columns of the actor', own, expected)
    }
    return { world, cohort, watched: new WatchedRollouts(), member: 0, state: '', weights: '' }
  }

  async collect(given: Message, { actor, store, waited, put, during }: WorkTools): Promise<void> {
    const task = given as unknown as PartTask
    const { id, member, version, weights, until } = task
    this.#place ??= await during(() => this.#open())
    const place = this.#place
    const { cohort, world } = place
    const share = shareOfMember(cohort, member, this.#given.numMembers)
    if (place.weights !== weights) {
      const bytes = await store.get(weights)
      const [target] = cohort.ahead!.published
      const own = new Uint8Array(target!.buffer, target!.byteOffset, target!.byteLength)
      if (bytes.length !== own.length) throw new InputError('weights', `${bytes.length} bytes`, `${own.length}`)
      own.set(bytes)
      place.weights = weights
    }
    if (place.member !== member || place.state !== task.before) {
      place.member = member
      collectFor(cohort, member)
      const write = await readState(cohort, share, await store.get(task.before))
      write(0, true)
      place.watched.restart() // These are not the observations that its last step left.
    }
    for (let rollout = task.from, before = task.before; rollout < until; rollout++) {
      const began = performance.now()
      place.state = ''
      world.clock.start()
      await during(async () => {
        for (const waiting of collectAhead(world, cohort, 0, version, place.watched, turns())) await waiting
      })
      const seconds = (performance.now() - began) / 1000
      const blobs = [await rowsToBytes(cohort, 0, member, share), await stateToBytes(cohort, 0, share)]
      const [rows, after] = (await Promise.all(blobs.map((bytes) => store.put(bytes)))) as [string, string]
      const result: PartResult = {
        ...{ id, actor, member, rollout, version, weights, before, rows, after, seconds, error: null },
        waited: rollout === task.from ? waited : 0,
      }
      const lanes = share.to - share.from
      await put(`${id}.${rollout}`, messageOf(result), { steps: cohort.numSteps * lanes, seconds, lanes, version })
      place.state = after
      before = after
    }
  }
}
