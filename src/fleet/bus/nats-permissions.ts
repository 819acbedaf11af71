/**
 * The permissions that the learner and the actors of a run need on a NATS server, as its configuration. An actor can only take parts, put
 * results and its own state, and read the run's values. A helper of the learner needs those of the learner.
 */
import { checkName } from './bus.ts'

/** The subjects of a user. */
interface Permissions {
  readonly publish: readonly string[]
  readonly subscribe: readonly string[]
}

const INBOX = ['_INBOX.>']
const VALUES = ['leases', 'actors', 'run', 'gradients']

function learnerOf(name: string): Permissions {
  const streams = ['tasks', 'results'].map((queue) => `colonnade_${name}_${queue}`)
  const buckets = VALUES.map((values) => `KV_colonnade_${name}_${values}`)
  return {
    publish: [
      `colonnade.${name}.>`,
      ...VALUES.map((values) => `$KV.colonnade_${name}_${values}.>`),
      ...[...streams, ...buckets].flatMap((stream) => [
        ...['CREATE', 'UPDATE', 'INFO', 'PURGE', 'DELETE', 'MSG.GET'].map((verb) => `$JS.API.STREAM.${verb}.${stream}`),
        ...['CREATE', 'DURABLE.CREATE', 'DELETE', 'INFO', 'MSG.NEXT'].map(
          (verb) => `$JS.API.CONSUMER.${verb}.${stream}.>`,
        ),
        ...[`$JS.API.CONSUMER.CREATE.${stream}`, `$JS.API.DIRECT.GET.${stream}`, `$JS.API.DIRECT.GET.${stream}.>`],
        ...[`$JS.ACK.${stream}.>`, `$JS.FC.${stream}.>`],
      ]),
    ],
    subscribe: INBOX,
  }
}

function actorOf(name: string): Permissions {
  const [tasks, results] = [`colonnade_${name}_tasks`, `colonnade_${name}_results`]
  const [run, actors] = [`KV_colonnade_${name}_run`, `KV_colonnade_${name}_actors`]
  return {
    publish: [
      ...[`colonnade.${name}.results`, `$KV.colonnade_${name}_actors.>`],
      ...[`$JS.API.CONSUMER.INFO.${tasks}.work`, `$JS.API.CONSUMER.MSG.NEXT.${tasks}.work`, `$JS.ACK.${tasks}.>`],
      `$JS.API.CONSUMER.INFO.${results}.work`,
      ...[run, actors].map((stream) => `$JS.API.STREAM.INFO.${stream}`),
      ...[`$JS.API.STREAM.MSG.GET.${run}`, `$JS.API.DIRECT.GET.${run}.>`, `$JS.FC.${run}.>`],
      ...[`$JS.API.CONSUMER.CREATE.${run}.>`, `$JS.API.CONSUMER.DELETE.${run}.>`, `$JS.API.CONSUMER.INFO.${run}.>`],
    ],
    subscribe: INBOX,
  }
}

/**
 * The users of a run for the configuration of nats-server (`include "cart.conf"`), with passwords that it reads from the
 * environment variables LEARNER_PASSWORD and ACTOR_PASSWORD. @throws InputError for an invalid name.
 */
export function natsPermissions(name: string): string {
  checkName('name of the fleet', name)
  const lines = Object.entries({ learner: learnerOf(name), actor: actorOf(name) }).map(([user, permissions]) => {
    const password = `$${user.toUpperCase()}_PASSWORD`
    return `    { user: "${user}", password: ${password}, permissions: ${JSON.stringify(permissions)} }`
  })
  return `authorization {\n  users: [\n${lines.join(',\n')}\n  ]\n}\n`
}
