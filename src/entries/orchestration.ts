/**
 * `colonnade/orchestration`: scheduling of sampling and learning: admission of groups, the loop, and its simulation in
 * virtual time; and fleets, whose actors are processes of other machines.
 *
 * @module colonnade/orchestration
 */

export { parseFleet } from '../fleet/address.ts'
export {
  Admission,
  type AdmissionSettings,
  type Delivery,
  type DeliveryOrder,
  type FailurePolicy,
  RolloutStarvedError,
  type SavedAdmission,
  type Ticket,
} from '../fleet/admission.ts'
export { natsPermissions } from '../fleet/bus/nats-permissions.ts'
export type { LaunchOptions } from '../fleet/launch/job.ts'
export { launchFile, schedulers } from '../fleet/launch/launch.ts'
export {
  type LoopOptions,
  type LoopParts,
  runLoop,
  type SampledGroup,
  type SavedLoop,
  type UpdateRecord,
} from '../fleet/loop.ts'
export { drawSimulations } from '../fleet/picture.ts'
export {
  type EngineSpeed,
  type Simulation,
  type SimulationSettings,
  simulate,
  simulationSettings,
} from '../fleet/simulation.ts'
export { realTime, type Time, VirtualTime } from '../fleet/time.ts'
export type { FleetActorStatus, FleetHelperStatus, FleetStatus } from '../telemetry/fleet-record.ts'
export type { Acknowledgement } from '../training/fleet/acknowledgement.ts'
export type { ActorOptions, ActorSummary } from '../training/fleet/fleet-actor.ts'
export { describeFleet } from '../training/fleet/fleet-status.ts'
export {
  fleetOrders,
  fleetStatus,
  type JoinFleetOptions,
  joinFleet,
  orderFleet,
  runFleetActor,
  runFleetHelper,
} from '../training/fleet/join-fleet.ts'
export type { CrewDefinition } from '../training/threads/crew.ts'
