/** The settings of runs whose actors are on other machines. */
import { shareCounts } from '../../algorithms/shared-gradient.ts'
import { InputError, show } from '../../base/errors.ts'
import { writeWhole } from '../../base/files/files.ts'
import { join } from '../../base/files/path.ts'
import { choice, integer, type Settings, type SettingValues, text } from '../../base/settings.ts'
import { FLEET_FILE } from '../../telemetry/fleet-record.ts'
import { type Acknowledgement, acknowledgements } from '../fleet/acknowledgement.ts'
import type { JoinFleetOptions, joinFleet } from '../fleet/join-fleet.ts'

export const fleetRunSettings = {
  fleet: text(
    '',
    'address of a fleet, like nats://host:4222/name; its actors (colonnade actor) collect; empty: this machine collects',
  ),
  store: text(
    '',
    'where the fleet stores rollouts and weights: a folder that all machines mount, s3://bucket/prefix, or http://host:port, at which this process then serves them',
  ),
  acknowledge: choice(
    'checkpoint',
    acknowledgements,
    'when a rollout is removed from the fleet; checkpoint: after a checkpoint contains its update; update: after its update',
  ),
  learners: choice(
    '1',
    shareCounts.map(String),
    'number of shares of each gradient; this process and helpers in the fleet (colonnade actor … role=learn) compute them',
  ),
  actorSeconds: integer(
    20,
    'seconds without a message from an actor after which its part of the rollout goes to another actor',
    { min: 2 },
  ),
} satisfies Settings

/** Those that may change on resuming. */
export const FLEET_RESUMED = [
  'actors',
  ...(Object.keys(fleetRunSettings) as (keyof typeof fleetRunSettings)[]),
] as const

/** A run's part in its fleet. */
interface RunFleet {
  /** Undefined if this machine collects. */
  readonly joined: ReturnType<typeof joinFleet> | undefined
  /** For `MadeTrainer`. */
  readonly hooks: { readonly stop?: AbortSignal; begun?(folder: string): void }
}

/** The fleet that collects, whose state the run's folder shows in `fleet.json`. @throws InputError for a store without one. */
export async function fleetOf(
  { fleet, store, acknowledge, learners, actorSeconds }: SettingValues<typeof fleetRunSettings>,
  more: Pick<JoinFleetOptions, 'actors'>,
): Promise<RunFleet> {
  if (fleet === '' && store !== '') throw new InputError('store', show(store), "none, since fleet is ''")
  if (fleet === '' && learners !== '1') throw new InputError('learners', learners, '1 without a fleet')
  if (fleet === '') return { joined: undefined, hooks: {} }
  const fleets = await import('../fleet/join-fleet.ts')
  const stop = new AbortController()
  let folder: string | null = null
  const joined = fleets.joinFleet({
    ...{ address: fleet, store, seconds: actorSeconds, acknowledge: acknowledge as Acknowledgement },
    ...more,
    learners: Number(learners),
    onStop: () => stop.abort(),
    onStatus: async (status) => {
      if (folder !== null)
        await writeWhole(join(folder, FLEET_FILE), [`${JSON.stringify({ address: fleet, ...status })}\n`])
    },
  })
  const begun = (path: string) => {
    folder = path
  }
  return { joined, hooks: { stop: stop.signal, begun } }
}
