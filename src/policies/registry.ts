/** The policies that come with Colonnade. */
import type { Factory } from '../base/definition.ts'
import { byId } from '../base/errors.ts'
import type { Settings } from '../base/settings.ts'
import { mlp } from './mlp.ts'
import { convolutional, dense, recurrent } from './network/ready-made.ts'
import type { PolicyDefinition } from './policy.ts'
import { qNetwork } from './q-network.ts'
import { sacNetwork } from './sac-network.ts'

/** Makes a policy from its parameters, like `mlp`; `id` and `settings` say which. */
export type PolicyFactory = Factory<Settings, PolicyDefinition>

/** Every built-in policy's factory. */
export const policies: readonly PolicyFactory[] = [
  mlp,
  dense,
  convolutional,
  recurrent,
  qNetwork,
  sacNetwork,
] as unknown as PolicyFactory[]

/**
 * The factory of a built-in policy. `otherwise` is what the caller would take besides.
 * @throws InputError that names the nearest id.
 */
export function policyFactory(id: string, otherwise?: string): PolicyFactory {
  return byId('policy', policies, id, otherwise)
}
