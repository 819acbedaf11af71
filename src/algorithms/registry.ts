/** The built-in algorithms for environment lanes; those of language models are in `training/text/`. */
import { byId } from '../base/errors.ts'
import type { AlgorithmFactory } from './algorithm.ts'
import { cql } from './off-policy/cql.ts'
import { discreteCql } from './off-policy/discrete-cql.ts'
import { dqn } from './off-policy/dqn.ts'
import { iql } from './off-policy/iql.ts'
import { sac } from './off-policy/sac.ts'
import { td3 } from './off-policy/td3.ts'
import { td3bc } from './off-policy/td3bc.ts'
import { a2c } from './on-policy/a2c.ts'
import { awr } from './on-policy/awr.ts'
import { bc } from './on-policy/bc.ts'
import { ppo } from './on-policy/ppo.ts'

/** Every built-in algorithm's factory. */
export const algorithms: readonly AlgorithmFactory[] = [
  ppo,
  a2c,
  bc,
  dqn,
  sac,
  td3,
  td3bc,
  iql,
  cql,
  discreteCql,
  awr,
] as unknown as AlgorithmFactory[]

/**
 * Returns the factory of a built-in algorithm. `otherwise` describes, for the error, what the caller accepts besides.
 * @throws InputError with the nearest id.
 */
export function algorithmFactory(id: string, otherwise?: string): AlgorithmFactory {
  return byId('algorithm', algorithms, id, otherwise)
}
