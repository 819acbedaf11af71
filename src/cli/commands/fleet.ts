import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { type FleetStatus, fleetOrders, fleetStatus, natsPermissions, orderFleet } from '../../entries/orchestration.ts'
import { boolean, choice } from '../../entries/settings.ts'
import { alignWords } from '../show/table.ts'

export const fleetKeys = {
  order: choice(
    'none',
    ['none', ...fleetOrders],
    'drain: actors end after their rollouts; stop: the learner ends with a checkpoint, and then the actors',
  ),
  permissions: boolean(false, "print the users of this run for the server's configuration, and ask nobody"),
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

function describe({ learner, environment, policy, actors, helpers, queue }: FleetStatus): string {
  const rows = actors.map((actor) => [
    ...[actor.name, String(actor.lanes), String(actor.rollouts), String(Math.round(actor.stepsPerSecond))],
    ...[String(actor.weightsAge), String(actor.failures), actor.lastError.split('\n')[0]!],
  ])
  const help = helpers.map((helper) => [
    ...[helper.name, String(helper.shares), String(helper.failures), helper.lastError.split('\n')[0]!],
  ])
  const heads = ['actor', 'lanes', 'parts', 'steps/s', 'weights age', 'failures', 'last error']
  return [
    `${environment} by ${policy}: learner ${learner.state}, update ${learner.update}, ${learner.steps} steps`,
    `queue: ${queue.tasks} parts to collect, ${queue.results} results not acknowledged`,
    ...(rows.length === 0 ? ['no actors'] : alignWords([heads, ...rows], 1)),
    ...(help.length === 0 ? [] : alignWords([['helper', 'shares', 'failures', 'last error'], ...help], 1)),
  ].join('\n')
}
