/**
 * What the threads of a team are told, and what every thread of a training asks of itself. `team.ts`, which starts threads, is loaded when a
 * training has several.
 */
import type { TokenThreadColumns } from '../../algorithms/tokens/token-thread.ts'
import type { DefinitionRecord } from '../../base/definition.ts'
import { InputError } from '../../base/errors.ts'
import type { WasmMemory } from '../../components/arena.ts'
import type { Sent } from '../../components/places.ts'
import type { DecodingColumns } from '../../engines/local/local-columns.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import type { TransformerConfig } from '../../language/transformer/config.ts'
import type { LoraSettings } from '../../language/transformer/lora.ts'
import type { TransformerOptions } from '../../language/transformer/model.ts'
import type { BaseWeights } from '../../language/transformer/quantized.ts'
import type { Sampling } from '../../language/transformer/sampling.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { Autoreset } from '../../world/episodes/options.ts'
import type { SelfPlayOptions } from '../../world/episodes/self-play.ts'
import { collecting, shareStart } from '../../world/episodes/shares.ts'
import type { SystemOrder } from '../../world/system.ts'
import type { World } from '../../world/world.ts'

/** The order of a worker of any team. */
export interface ThreadOrder {
  readonly memory: WasmMemory
  readonly control: Int32Array
  readonly command: Float64Array
  /** Index among the world's threads. */
  readonly index: number
  /** How many threads meet. */
  readonly count: number
  readonly seed: number
  readonly kernels: KernelBuild
  /** The bytes of the kernels' modules, where a thread cannot load them; `Team.start` adds them. */
  readonly modules?: Readonly<Record<string, Uint8Array<ArrayBuffer>>> | undefined
  /** Room for this thread's trace, if one is recorded. */
  readonly trace: Float64Array | undefined
}

/** The order from which a worker builds its part of a trainer of lanes. */
export interface LanesOrder extends ThreadOrder {
  readonly kind: 'lanes'
  /** The world's number of threads, and how many of them only collect. */
  readonly threads: { readonly count: number; readonly actors: number }
  /** Shared by an actor and the thread it works for; null for a learning thread. */
  readonly actor: ActorColumns | null
  /** How learning threads share work; null for an actor. */
  readonly sharing: SharingColumns | null
  /** How many rollouts have columns; undefined if all threads collect, then all learn. */
  readonly numBuffers: number | undefined
  /** This thread's progress mark. */
  readonly beat: Int32Array
  readonly cohorts: readonly {
    readonly name: string
    readonly environment: DefinitionRecord
    /** A policy, or the cohort whose policy it shares. */
    readonly policy: DefinitionRecord | string
    readonly numLanes: number
    /** The number of lanes, in a cohort with births and deaths. */
    readonly present?: number
    readonly firstLane: number
    /** If it is not the world's. */
    readonly seed?: number
    readonly autoreset: Autoreset
    readonly explore: boolean
    readonly weightSets?: number
    readonly learningSets?: number
    readonly selfPlay?: SelfPlayOptions
    readonly systems: readonly SystemOrder[]
  }[]
  readonly algorithms: Readonly<Record<string, DefinitionRecord>>
}

/** The order from which a worker builds its part of a trainer of language models, without environment or files. */
export interface TextOrder extends ThreadOrder {
  readonly kind: 'text'
  readonly config: TransformerConfig
  readonly options: Required<TransformerOptions>
  /** The adapter's settings; null without one. */
  readonly lora: LoraSettings | null
  readonly context: number
  readonly sampling: Sampling
  readonly explore: boolean
  /** Views of columns in `memory`, and places of those in `apart`: its own, and shared ones. */
  readonly columns: Sent<TextThreadColumns>
  /** As in the world's arena. */
  readonly apart: SharedArrayBuffer | null
}

/** The columns of a cohort of conversations that a worker uses. */
export interface TextThreadColumns {
  /** If threads help the engine. */
  readonly decoding?: DecodingColumns
  readonly learner?: TokenThreadColumns
  readonly weights: BaseWeights
  /** Empty without an adapter. */
  readonly adapter: Float32Array
}

export type WorkerOrder = LanesOrder | TextOrder

/** A worker's work for a command; at each `yield` all threads meet. */
export type WorkerProgram = (command: Float64Array) => Generator<void | Promise<void>, unknown>

/** Words of a team's barrier. */
export const CONTROL_WORDS = 3

let isWorker = false

/** Marks this thread as a worker of a team, before it imports anything else. */
export function joinTeam(): void {
  isWorker = true
}

/** Refuses a call in a worker, where an imported module would train again. @throws InputError in a team's worker. */
export function refuseInWorker(action: string): void {
  if (!isWorker) return
  const expected = 'a module that only defines things, or does the rest only as the main module'
  throw new InputError(action, 'a call from a module that a worker imports', expected)
}

/** Thrown out of a meeting that is canceled. */
export class Aborted extends Error {}

export function laneCohorts(world: World): EpisodeCohort[] {
  return world.cohorts.filter((cohort) => cohort.kind === 'episodes')
}

/** A thread's lanes as text. References the world, not its trainer. */
export function shareOf(world: World): (index: number) => string {
  return (index) => {
    const { count } = world.threads
    const collector = collecting({ ...world.threads, index })
    const shares = laneCohorts(world).map(({ name, present, episode, environment: { numPlayers } }) => {
      const [from, to] = [collector.index, collector.index + 1].map((i) =>
        shareStart(Math.max(0, i), collector.count, present, numPlayers),
      ) as [number, number]
      return from === to ? `no lanes of ${name}` : `lanes ${episode.lane[from]}–${episode.lane[to - 1]} of ${name}`
    })
    return `${count} threads (${shares.join(', ')})`
  }
}

/** How learning threads share work: see `sharing.ts`. */
export interface SharingColumns {
  readonly words: Int32Array
  /** The numbers of a run. */
  readonly told: Float64Array
}

/** Memory shared by actors and the thread that they work for. */
export interface ActorColumns {
  /** See `Word` of `thread-crew.ts`; then each actor's number of collected rollouts. */
  readonly words: Int32Array
  /** For each actor: seconds waited; then for each buffer: when each actor began its rollout, in ms since the epoch. */
  readonly times: Float64Array
}
