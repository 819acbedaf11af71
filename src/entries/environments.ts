/** `colonnade/environments`: the environments beyond those of the first hour, which are in `colonnade`. */
export * from '../environments/suite.ts'
