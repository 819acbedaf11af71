/** The state of a fleet: in `fleet.json` of a run's folder, which its learner writes every two seconds, and in words for the user. */

export const FLEET_FILE = 'fleet.json'

/** An actor of a fleet that is alive. */
export interface FleetActorStatus {
  readonly name: string
  readonly host: string
  /** Of its last part. */
  readonly lanes: number
  readonly rollouts: number
  readonly stepsPerSecond: number
  /** Number of updates, as of the learner's last report, since the weights that it last used. */
  readonly weightsAge: number
  readonly failures: number
  /** Empty without one. */
  readonly lastError: string
}

/** A helper of a fleet's learner that is alive. */
export interface FleetHelperStatus {
  readonly name: string
  readonly host: string
  /** Shares of gradients that it has computed. */
  readonly shares: number
  readonly failures: number
  /** Of its last task; empty without one. */
  readonly lastError: string
}

/** The state of a fleet: its members and its queues. */
export interface FleetStatus {
  readonly learner: { readonly state: 'running' | 'ended' | 'silent'; readonly update: number; readonly steps: number }
  readonly environment: string
  readonly policy: string
  readonly actors: readonly FleetActorStatus[]
  readonly helpers: readonly FleetHelperStatus[]
  /** Parts that wait for an actor or are being collected, and results that are not acknowledged. */
  readonly queue: { readonly tasks: number; readonly results: number }
}

/** The content of `fleet.json`. */
export interface FleetRecord extends FleetStatus {
  /** Of the fleet, like `nats://host:4222/name`. */
  readonly address: string
}

/** A state in words: lines, and tables whose first row has the heads. */
export function fleetInWords({ learner, environment, policy, actors, helpers, queue }: FleetStatus): {
  readonly lines: readonly string[]
  readonly tables: readonly (readonly (readonly string[])[])[]
} {
  const firstLine = (text: string) => text.split('\n')[0]!
  const rows = actors.map((actor) => [
    ...[actor.name, String(actor.lanes), String(actor.rollouts), String(Math.round(actor.stepsPerSecond))],
    ...[String(actor.weightsAge), String(actor.failures), firstLine(actor.lastError)],
  ])
  const help = helpers.map(({ name, shares, failures, lastError }) => {
    return [name, String(shares), String(failures), firstLine(lastError)]
  })
  const heads = ['actor', 'lanes', 'parts', 'steps/s', 'weights age', 'failures', 'last error']
  return {
    lines: [
      `${environment} by ${policy}: learner ${learner.state}, update ${learner.update}, ${learner.steps} steps`,
      `queue: ${queue.tasks} parts to collect, ${queue.results} results not acknowledged`,
      ...(rows.length === 0 ? ['no actors'] : []),
    ],
    tables: [
      ...(rows.length === 0 ? [] : [[heads, ...rows]]),
      ...(help.length === 0 ? [] : [[['helper', 'shares', 'failures', 'last error'], ...help]]),
    ],
  }
}
