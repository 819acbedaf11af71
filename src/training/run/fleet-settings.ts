/** The settings of runs whose actors are on other machines. */
import { InputError, show } from '../../base/errors.ts'
import { choice, integer, type Settings, type SettingValues, text } from '../../base/settings.ts'
import { type Acknowledgement, acknowledgements } from '../fleet/acknowledgement.ts'
import type { JoinFleetOptions, joinFleet } from '../fleet/join-fleet.ts'

export const fleetRunSettings = {
  fleet: text(
    '',
    'address of a fleet, like nats://host:4222/name, whose actors (colonnade actor) collect; empty: this machine collects',
  ),
  store: text(
    '',
    'where the fleet keeps rollouts and weights: a folder that all machines mount, s3://bucket/prefix, or http://host:port, where this process serves them',
  ),
  acknowledge: choice(
    'checkpoint',
    acknowledgements,
    'when a rollout of the fleet is removed; checkpoint: when one contains what was learned from it; update: after its update',
  ),
  actorSeconds: integer(20, 'seconds without news of a part after which it goes to another actor', { min: 2 }),
} satisfies Settings

/** Those that may change on resuming. */
export const FLEET_RESUMED = [
  'actors',
  ...(Object.keys(fleetRunSettings) as (keyof typeof fleetRunSettings)[]),
] as const

/** The fleet that collects; undefined if this machine does. @throws InputError for a store without one. */
export async function fleetOf(
  { fleet, store, acknowledge, actorSeconds }: SettingValues<typeof fleetRunSettings>,
  more: Pick<JoinFleetOptions, 'learners' | 'actors' | 'onStop'>,
): Promise<ReturnType<typeof joinFleet> | undefined> {
  if (fleet === '' && store !== '') throw new InputError('store', show(store), "none, since fleet is ''")
  if (fleet === '') return undefined
  const fleets = await import('../fleet/join-fleet.ts')
  const given = { address: fleet, store, seconds: actorSeconds, acknowledge: acknowledge as Acknowledgement }
  return fleets.joinFleet({ ...given, ...more })
}
