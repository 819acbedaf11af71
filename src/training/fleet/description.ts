/**
 * The description of a run, by which actors join it: definitions by id and parameters, never code. Colonnade's modules are named by their
 * path in the package. A user's modules are named by file name and checksum, and the actor's own command line must allow the same file.
 */
import { basename } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { AlgorithmDefinition } from '../../algorithms/algorithm.ts'
import { type DefinitionRecord, recordOf, revive } from '../../base/definition.ts'
import { InputError } from '../../base/errors.ts'
import { ownUrl } from '../../base/files/own-files.ts'
import { checksumOfModule } from '../../base/trust.ts'
import { VERSION } from '../../base/version.ts'
import type { StoreAddress } from '../../fleet/address.ts'
import type { Message } from '../../fleet/bus/bus.ts'
import { haveSameBits, kernelBuilds } from '../../kernels/bind.ts'
import type { KernelBuild } from '../../kernels/kernels.ts'
import type { Cohort } from '../../world/cohort.ts'
import type {
  ConversationCohort,
  ConversationCohortOptions,
  ConversationDraft,
} from '../../world/conversations/cohort.ts'
import type { EpisodeCohort } from '../../world/episodes/cohort.ts'
import type { World } from '../../world/world.ts'
import { schemaOfConversations } from './group-parts.ts'
import { schemaOf } from './parts.ts'

interface DescriptionOfAll {
  readonly colonnade: string
  /** Identifies this start of the learner. */
  readonly session: string
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly seed: number
  readonly kernels: KernelBuild
  /** A fingerprint of what actors must have in common with the learner besides the definitions. */
  readonly schema: string
  readonly store: StoreAddress
  /** Seconds without news after which a part goes to another actor. */
  readonly seconds: number
}

export interface EpisodeDescription extends DescriptionOfAll {
  readonly kind: 'episodes'
  readonly cohort: Pick<
    EpisodeCohort,
    'name' | 'numLanes' | 'firstLane' | 'seed' | 'autoreset' | 'explore' | 'numSteps'
  >
  readonly numMembers: number
  /** The inputs of the learner's helpers; null if it computes gradients alone. */
  readonly gradients: {
    readonly algorithm: DefinitionRecord
    /** One of `shareCounts`. */
    readonly shareCount: number
  } | null
}

export interface ConversationDescription extends DescriptionOfAll {
  readonly kind: 'conversations'
  /** With the lanes that a part needs. */
  readonly cohort: Omit<ConversationCohortOptions, 'environment' | 'policy' | 'engine'>
  /** The source of its rows. */
  readonly source: string
  /** What helpers of the learner need; null if it computes gradients alone. */
  readonly gradients: {
    /** One of `shareCounts`. */
    readonly shareCount: number
    /** Slots of the gradient. */
    readonly numSlots: number
    /** Maximum rows of a micro-batch. */
    readonly rows: number
  } | null
}

export type Description = EpisodeDescription | ConversationDescription

/** Describes a training of episodes for its actors. @throws InputError for a definition without a module. */
export async function describeEpisodes(
  world: World,
  cohort: EpisodeCohort,
  pooled: { readonly algorithm: AlgorithmDefinition; readonly shareCount: number } | null,
  rest: Pick<EpisodeDescription, 'session' | 'numMembers' | 'store' | 'seconds'>,
): Promise<EpisodeDescription> {
  const { name, numLanes, firstLane, seed, autoreset, explore, numSteps } = cohort
  return {
    kind: 'episodes',
    ...rest,
    ...(await describeParts(world, cohort)),
    cohort: { name, numLanes, firstLane, seed, autoreset, explore, numSteps },
    gradients: pooled && {
      algorithm: await withModules(recordOf(pooled.algorithm), nameModule),
      shareCount: pooled.shareCount,
    },
    schema: schemaOf(cohort),
  }
}

/** Describes a training of conversations for its actors. @throws InputError for an engine, and a definition without a module. */
export async function describeConversations(
  world: World,
  cohort: ConversationCohort,
  rest: Pick<ConversationDescription, 'session' | 'store' | 'seconds' | 'gradients'> & { readonly numLanes: number },
): Promise<ConversationDescription> {
  const draft = world.draft(cohort.name) as ConversationDraft
  const { environment: _, policy: __, engine, ...options } = draft.options
  if (engine !== undefined) {
    const expected = 'local: each actor generates with an engine of its own'
    throw new InputError('engine of the fleet', engine.id, expected)
  }
  const { numLanes, ...common } = rest
  return {
    kind: 'conversations',
    ...common,
    ...(await describeParts(world, cohort)),
    cohort: { ...options, numLanes: Math.min(numLanes, cohort.numLanes) },
    source: cohort.source,
    schema: schemaOfConversations(cohort),
  }
}

async function describeParts(world: World, { environment, policyDefinition }: Cohort) {
  return {
    colonnade: VERSION,
    environment: await withModules(recordOf(environment), nameModule),
    policy: await withModules(recordOf(policyDefinition), nameModule),
    seed: world.seed,
    kernels: world.kernelBuild,
  }
}

/** The same record with other modules. */
async function withModules(
  record: DefinitionRecord,
  map: (module: string) => Promise<string>,
): Promise<DefinitionRecord> {
  const { module, modules = {}, wrappers, ...rest } = record
  const named = await Promise.all(Object.entries(modules).map(async ([key, each]) => [key, await map(each)] as const))
  return {
    ...rest,
    ...(module === undefined ? {} : { module: await map(module) }),
    ...(named.length === 0 ? {} : { modules: Object.fromEntries(named) }),
    ...(wrappers === undefined ? {} : { wrappers: await Promise.all(wrappers.map((each) => withModules(each, map))) }),
  }
}

const OWN = 'colonnade:'

async function nameModule(module: string): Promise<string> {
  const home = ownUrl('')
  if (module.startsWith(home)) return `${OWN}${module.slice(home.length)}`
  const path = fileURLToPath(module)
  return `${basename(path)} ${await checksumOfModule(path)}`
}

/** Finds the modules of a description: Colonnade's own, and the allowed ones by their checksums. */
function finderOf(allowed: readonly string[]) {
  const known = Promise.all(allowed.map(async (path) => [await checksumOfModule(path), path] as const))
  return async (module: string): Promise<string> => {
    if (module.startsWith(OWN)) {
      const path = module.slice(OWN.length)
      if (/^[\w/-]+\.m?[jt]s$/.test(path)) return ownUrl(path)
      throw new InputError('module of the fleet', JSON.stringify(path), "a module of Colonnade's own")
    }
    const [name, checksum] = module.split(' ')
    const found = (await known).find(([each]) => each === checksum)
    if (found !== undefined) return pathToFileURL(found[1]).href
    const same = allowed.find((path) => basename(path) === name)
    const got =
      same === undefined ? `no ${name} among the allowed modules` : `${same} with other code than the learner's`
    throw new InputError('modules', got, `modules=…/${name}, the same file as the learner's (SHA-256 ${checksum})`)
  }
}

/** The definitions that an actor makes from a description. */
export interface JoinedRun {
  readonly description: Description
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly kernels: KernelBuild
  /** Makes an algorithm from its record. */
  algorithm(record: DefinitionRecord): Promise<AlgorithmDefinition>
}

/** Makes the definitions of a run. `allowed`: paths of modules. @throws InputError for another version, or other code. */
export async function joinRun(message: Message, allowed: readonly string[]): Promise<JoinedRun> {
  const description = message as unknown as Description
  const { colonnade, environment, policy, kernels } = description
  if (colonnade !== VERSION) {
    throw new InputError(
      'version of the actor',
      VERSION,
      `${colonnade}, as the learner's: install colonnade@${colonnade}`,
    )
  }
  const find = finderOf(allowed)
  const builds = kernelBuilds()
  const build = builds.findLast((each) => haveSameBits(each, kernels))
  if (build === undefined)
    throw new InputError('kernels of the actor', builds.join(', '), `${kernels}, as the learner's`)
  const made = <D extends DefinitionRecord>(noun: string, record: DefinitionRecord) =>
    withModules(record, find).then((found) => revive<D>(noun, found, 'caller'))
  return {
    description,
    kernels: builds.includes(kernels) ? kernels : build,
    algorithm: (record) => made('algorithm', record),
    environment: await made('environment', environment),
    policy: await made('policy', policy),
  }
}
