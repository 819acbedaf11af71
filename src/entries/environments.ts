/** `colonnade/environments`: the environments beyond those of the first hour, which are in `colonnade`, those of objects, and whether one keeps its contract. */
export {
  type CheckOptions,
  type CheckResult,
  checkEnvironment,
  type EnvironmentCheck,
  type EnvironmentReport,
  environmentChecks,
} from '../environments/check.ts'
export {
  type FromObjectsOptions,
  fromObjects,
  type ObjectAction,
  type ObjectEnvironment,
  type ObjectObservation,
} from '../environments/from-objects.ts'
export * from '../environments/suite.ts'
