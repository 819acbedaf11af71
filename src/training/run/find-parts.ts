/** Finds the definitions of a run: by id or module path from its keys, and from its `config.json`. */
import type { AlgorithmDefinition, AlgorithmFactory } from '../../algorithms/algorithm.ts'
import { algorithmFactory, algorithms } from '../../algorithms/registry.ts'
import {
  type DefinitionRecord,
  type Factory,
  findFactory,
  isModulePath,
  remake,
  revive,
} from '../../base/definition.ts'
import { InputError, show } from '../../base/errors.ts'
import { pathToFileURL } from '../../base/files/path.ts'
import { parseSetting, type Setting, type Settings, strings, text } from '../../base/settings.ts'
import type { ModuleTrust } from '../../base/trust.ts'
import type { EnvironmentDefinition, EnvironmentFactory } from '../../environments/environment.ts'
import { environmentFactory } from '../../environments/registry.ts'
import { type WrapperDefinition, type WrapperFactory, wrap } from '../../environments/wrapper.ts'
import { wrapperFactory, wrappers } from '../../environments/wrappers.ts'
import type { PolicyDefinition } from '../../policies/policy.ts'
import { type PolicyFactory, policies, policyFactory } from '../../policies/registry.ts'
import { ownSystems, systemFactory } from '../../systems/registry.ts'
import type { SystemDefinition, SystemFactory } from '../../world/system.ts'
import { recordFrom } from '../folder/run-folder.ts'
import { presetOf } from './presets.ts'

/** Keys that name the policy, algorithm, systems and wrappers. These have further keys. */
const [POLICY, ALGORITHM, SYSTEMS, WRAPPERS] = ['policy', 'algorithm', 'systems', 'wrappers'] as const

const systemsSetting = strings(
  [],
  `systems to run in addition to the four, in this order:  ${ownSystems.map(({ id }) => id).join(', ')}, or paths of modules that export one`,
)

const wrappersSetting = strings(
  [],
  `wrappers around the environment, innermost first:  ${wrappers.map(({ id }) => id).join(', ')}, or paths of modules that export one`,
)

/** A run's parts. Default policy and algorithm: the environment's. */
export interface NamedParts {
  readonly policy?: PolicyFactory
  readonly algorithm?: AlgorithmFactory
  readonly systems?: readonly SystemFactory[]
  readonly wrappers?: readonly WrapperFactory[]
}

/** The parts of a run with defaults, and their tuned settings. */
export function usualParts(
  factory: EnvironmentFactory,
  { policy, algorithm, systems = [], wrappers = [] }: NamedParts,
) {
  const preset = presetOf(factory.presets, { policy: policy?.id, algorithm: algorithm?.id })
  return {
    preset,
    policy: policy ?? policyFactory(preset.policy.id),
    algorithm: algorithm ?? algorithmFactory(preset.algorithm.id),
    systems,
    wrappers,
  }
}

/** The keys by which a run names its parts. */
export function partKeys(policy: { readonly id: string }, algorithm: { readonly id: string }): Settings {
  return {
    [POLICY]: partSetting(policy, policies),
    [ALGORITHM]: partSetting(algorithm, algorithms),
    [SYSTEMS]: systemsSetting,
    [WRAPPERS]: wrappersSetting,
  }
}

function partSetting({ id }: { id: string }, known: readonly { id: string }[]): Setting {
  const words = known.map((each) => each.id)
  return { ...text(id, `${words.join(', ')}, or the path of a module that exports one`), words }
}

/** Finds the named parts, like those of a command line. */
export async function partsOf(given: Readonly<Record<string, string>>): Promise<NamedParts> {
  const { [POLICY]: policy, [ALGORITHM]: algorithm } = given
  const namesOf = (key: typeof SYSTEMS | typeof WRAPPERS, setting: Setting) =>
    given[key] === undefined ? [] : (parseSetting(key, setting, given[key]) as string[])
  return {
    systems: await Promise.all(namesOf(SYSTEMS, systemsSetting).map(findSystem)),
    wrappers: await Promise.all(namesOf(WRAPPERS, wrappersSetting).map(findWrapper)),
    ...(policy === undefined ? {} : { policy: await findPolicy(policy) }),
    ...(algorithm === undefined ? {} : { algorithm: await findAlgorithm(algorithm) }),
  }
}

/** The keys that do not name parts. */
export function withoutParts<V>(given: Readonly<Record<string, V>>): Record<string, V> {
  const parts: readonly string[] = [POLICY, ALGORITHM, SYSTEMS, WRAPPERS]
  return Object.fromEntries(Object.entries(given).filter(([key]) => !parts.includes(key)))
}

/** Finds factories by built-in id or module path; throws an InputError with the nearest id, or the module's fault. */
export function finderOf<F extends { readonly id: string }>(
  noun: string,
  builtIn: (id: string, otherwise: string) => F,
) {
  return async (name: string): Promise<F> =>
    isModulePath(name)
      ? findFactory<F>(noun, pathToFileURL(name).href, 'caller')
      : builtIn(name, 'the path of a module that exports one')
}

const findPolicy = finderOf<PolicyFactory>('policy', policyFactory)
const findAlgorithm = finderOf<AlgorithmFactory>('algorithm', algorithmFactory)
const findSystem = finderOf<SystemFactory>('system', systemFactory)
const findWrapper = finderOf<WrapperFactory>('wrapper', wrapperFactory)
/** A built-in environment's factory by id, or your own by the path of its module. */
export const findEnvironment = finderOf<EnvironmentFactory>('environment', environmentFactory)

interface RecordedParts {
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly algorithm: DefinitionRecord
  readonly systems: readonly DefinitionRecord[]
}

/** The definitions of the records in a folder. @throws InputError for an unknown id or an untrusted module. */
export async function reviveParts(
  { environment, policy, algorithm, systems }: RecordedParts,
  folder: string,
  trust: ModuleTrust,
) {
  const made = <D extends DefinitionRecord>(
    noun: string,
    record: DefinitionRecord,
    builtIn: (id: string) => unknown,
  ): Promise<D> => {
    const origin = { ...trust, folder }
    const named = recordFrom(folder, record)
    if (record.module) return revive<D>(noun, named, origin)
    const factory = builtIn(record.id) as Factory<Settings, D>
    return remake(factory, factory.settings, named, origin)
  }
  const { wrappers = [], ...inside } = environment
  if (!Array.isArray(wrappers)) throw new InputError(`wrappers of ${folder}`, show(wrappers), 'a list')
  const around: WrapperDefinition[] = []
  for (const wrapper of wrappers) around.push(await made<WrapperDefinition>('wrapper', wrapper, wrapperFactory))
  return {
    environment: wrap(await made<EnvironmentDefinition>('environment', inside, environmentFactory), ...around),
    policy: await made<PolicyDefinition>('policy', policy, policyFactory),
    algorithm: await made<AlgorithmDefinition>('algorithm', algorithm, algorithmFactory),
    systems: await Promise.all(systems.map((system) => made<SystemDefinition>('system', system, systemFactory))),
  }
}
