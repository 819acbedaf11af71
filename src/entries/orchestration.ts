/**
 * `colonnade/orchestration`: scheduling of sampling and learning: admission of groups, the loop, and its simulation in
 * virtual time.
 *
 * @module colonnade/orchestration
 */

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
