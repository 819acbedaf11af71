/** The definitions that a run is made of: by an id or the path of a module, as its keys name them, and from its `config.json`. */
import { pathToFileURL } from 'node:url'
import type { AlgorithmDefinition, AlgorithmFactory } from '../algorithms/algorithm.ts'
import { algorithmFactory } from '../algorithms/registry.ts'
import type { SystemDefinition, SystemFactory } from '../cohorts/system.ts'
import { type DefinitionRecord, findFactory, isModulePath, revive } from '../definition.ts'
import type { EnvironmentDefinition, EnvironmentFactory } from '../environments/environment.ts'
import { environmentFactory } from '../environments/registry.ts'
import type { PolicyDefinition } from '../policies/policy.ts'
import { type PolicyFactory, policyFactory } from '../policies/registry.ts'
import { systemFactory } from '../systems/registry.ts'
import type { ModuleTrust } from '../trust.ts'
import { recordFrom } from './run-folder.ts'

/**
 * The factory of a built-in policy by its id, or of one's own by the path of the module that exports it.
 * @throws InputError that names the nearest id, or says what is wrong with the module.
 */
export async function findPolicy(name: string): Promise<PolicyFactory> {
  if (isModulePath(name)) return findFactory<PolicyFactory>('policy', pathToFileURL(name).href, 'caller')
  return policyFactory(name)
}

/**
 * The factory of a built-in algorithm by its id, or of one's own by the path of the module that exports it.
 * @throws InputError that names the nearest id, or says what is wrong with the module.
 */
export async function findAlgorithm(name: string): Promise<AlgorithmFactory> {
  if (isModulePath(name)) return findFactory<AlgorithmFactory>('algorithm', pathToFileURL(name).href, 'caller')
  return algorithmFactory(name)
}

/**
 * The factory of a built-in system by its id, or of one's own by the path of the module that exports it.
 * @throws InputError that names the nearest id, or says what is wrong with the module.
 */
export async function findSystem(name: string): Promise<SystemFactory> {
  if (isModulePath(name)) return findFactory<SystemFactory>('system', pathToFileURL(name).href, 'caller')
  return systemFactory(name)
}

/**
 * The factory of a built-in environment by its id, or of one's own by the path of the module that exports it.
 * @throws InputError that names the nearest id, or says what is wrong with the module.
 */
export async function findEnvironment(name: string): Promise<EnvironmentFactory> {
  if (isModulePath(name)) {
    return findFactory<EnvironmentFactory>('environment', pathToFileURL(name).href, 'caller')
  }
  return environmentFactory(name)
}

/** The records of a run's `config.json`. */
interface RecordedParts {
  readonly environment: DefinitionRecord
  readonly policy: DefinitionRecord
  readonly algorithm: DefinitionRecord
  readonly systems: readonly DefinitionRecord[]
}

/**
 * The definitions that records in a folder stand for.
 * @throws InputError for an id that no built-in one has, and for a module that may not be run.
 */
export async function reviveParts(
  { environment, policy, algorithm, systems }: RecordedParts,
  folder: string,
  trust: ModuleTrust,
) {
  const made = <D extends DefinitionRecord>(
    noun: string,
    record: DefinitionRecord,
    builtIn: (id: string) => unknown,
  ): D | Promise<D> =>
    record.module
      ? revive<D>(noun, recordFrom(folder, record), { ...trust, folder })
      : (builtIn(record.id) as (parameters: object) => D)(record.parameters)
  return {
    environment: await made<EnvironmentDefinition>('environment', environment, environmentFactory),
    policy: await made<PolicyDefinition>('policy', policy, policyFactory),
    algorithm: await made<AlgorithmDefinition>('algorithm', algorithm, algorithmFactory),
    systems: await Promise.all(systems.map((system) => made<SystemDefinition>('system', system, systemFactory))),
  }
}
