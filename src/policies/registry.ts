/** The built-in policies. */
import type { Factory } from '../base/definition.ts'
import { byId } from '../base/errors.ts'
import type { Settings } from '../base/settings.ts'
import { iqlNetwork } from './iql-network.ts'
import { mlp } from './mlp.ts'
import { convolutional, dense, recurrent } from './network/ready-made.ts'
import type { PolicyDefinition } from './policy.ts'
import { qNetwork } from './q-network.ts'
import { sacNetwork } from './sac-network.ts'
import { td3Network } from './td3-network.ts'

/** Creates a policy from its settings, like `mlp`. `id` and `settings` describe it. */
export type PolicyFactory = Factory<Settings, PolicyDefinition>

/** Every built-in policy's factory. */
export const policies: readonly PolicyFactory[] = [
  mlp,
  dense,
  convolutional,
  recurrent,
  qNetwork,
  sacNetwork,
  td3Network,
  iqlNetwork,
] as unknown as PolicyFactory[]

/**
 * Returns the factory of a built-in policy. `otherwise` describes, for the error, what the caller accepts besides.
 * @throws InputError with the nearest id.
 */
export function policyFactory(id: string, otherwise?: string): PolicyFactory {
  return byId('policy', policies, id, otherwise)
}
