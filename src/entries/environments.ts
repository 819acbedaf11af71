/** `colonnade/environments`: the environments beyond those of the first hour, which are in `colonnade`, and those of objects. */
export {
  type FromObjectsOptions,
  fromObjects,
  type ObjectAction,
  type ObjectEnvironment,
  type ObjectObservation,
} from '../environments/from-objects.ts'
export * from '../environments/suite.ts'
