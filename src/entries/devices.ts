/**
 * `colonnade/devices`: the backends of tfjs, and your own networks on them.
 *
 * @module colonnade/devices
 */

export type { Backend } from '../policies/devices/backend.ts'
export { type Device, type DeviceName, deviceNames, startDevice } from '../policies/devices/device.ts'
export { type DeviceReport, examineDevice } from '../policies/devices/examine.ts'
export type { Features, Module, NetworkParameter, SeenSteps, Weights } from '../policies/network/module.ts'
export { type NetworkFunction, type NetworkOptions, type NetworkResult, network } from '../policies/network/network.ts'
