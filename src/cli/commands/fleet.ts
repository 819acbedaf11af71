import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import {
  describeFleet,
  type FleetStatus,
  fleetOrders,
  fleetStatus,
  natsPermissions,
  orderFleet,
} from '../../entries/orchestration.ts'
import { boolean, choice } from '../../entries/settings.ts'
import { alignWords } from '../show/table.ts'

export const fleetKeys = {
  order: choice(
    'none',
    ['none', ...fleetOrders],
    'drain: actors end after their rollouts; stop: the learner ends with a checkpoint, and then the actors',
  ),
  permissions: boolean(false, "print the users of this run for the NATS server's configuration, without connecting"),
}

/** colonnade fleet nats://host:4222/name [order=drain|stop] */
export const fleetCommand: Command = async ({ words, json }) => {
  const { subject, texts } = splitWords(words, 'the address of a fleet, like nats://host:4222/name')
  const { order, permissions } = readKeys(fleetKeys, texts)
  if (permissions) {
    const configuration = natsPermissions(subject.slice(subject.lastIndexOf('/') + 1))
    if (!json) process.stdout.write(configuration)
    return { configuration }
  }
  if (order !== 'none') await orderFleet(subject, order as (typeof fleetOrders)[number])
  const status = await fleetStatus(subject)
  if (!json) console.log(describe(status))
  return status
}

function describe(status: FleetStatus): string {
  const { lines, tables } = describeFleet(status)
  return [...lines, ...tables.flatMap((rows) => alignWords(rows, 1))].join('\n')
}
