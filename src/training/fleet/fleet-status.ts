/** Reads the state of a fleet from its bus. */
import { checkGiven } from '../../base/errors.ts'
import type { Bus, Values } from '../../fleet/bus/bus.ts'
import {
  type FleetActorStatus,
  type FleetHelperStatus,
  type FleetStatus,
  fleetInWords,
} from '../../telemetry/fleet-record.ts'
import { GRADIENTS, HELPER, type HelperReport } from './fleet-pool.ts'

/** The lines and tables that `colonnade fleet` prints of a state. @throws InputError for anything else. */
export function describeFleet(status: FleetStatus): ReturnType<typeof fleetInWords> {
  checkGiven('state of a fleet', status, ['learner', 'environment', 'policy', 'actors', 'helpers', 'queue'])
  return fleetInWords(status)
}

/** Opens what a state is read from; each call of the result reads it. @throws NoRunError if no learner has begun on this bus. */
export async function statusReader(bus: Bus): Promise<() => Promise<FleetStatus>> {
  const closed = { isOwner: false, seconds: 1 }
  const run = await bus.values('run', closed)
  const [leases, alive] = [await bus.values('leases', closed), await bus.values('actors', closed)]
  const [tasks, results] = [await bus.queue('tasks', closed), await bus.queue('results', closed)]
  return async () => {
    const { state, update, steps } = (await run.get('learner'))!.value as Record<string, never>
    const { environment, policy, gradients } = (await run.get('description'))!.value as Record<string, { id: string }>
    const isAlive = (await leases.get('learner')) !== null
    const helpers = gradients == null ? [] : await reportsOf(await bus.values(GRADIENTS, closed), HELPER)
    return {
      learner: { state: state === 'ended' ? 'ended' : isAlive ? 'running' : 'silent', update, steps },
      environment: environment!.id,
      policy: policy!.id,
      actors: (await reportsOf(alive, '')).map(([name, report]) => actorOf(name, report as ActorReport, update)),
      helpers: helpers.map(([name, report]) => helperOf(name, report as unknown as HelperReport)),
      queue: { tasks: await tasks.size(), results: await results.size() },
    }
  }
}

/** The values whose keys have this prefix, by the key without it. */
async function reportsOf(values: Values, prefix: string) {
  const keys = (await values.keys()).filter((each) => each.startsWith(prefix)).sort()
  const found = await Promise.all(keys.map(async (key) => [key.slice(prefix.length), await values.get(key)] as const))
  return found.flatMap(([name, value]) => (value === null ? [] : [[name, value.value] as const])) // Some have just gone.
}

/** The report of an actor. */
type ActorReport = Omit<FleetActorStatus, 'name' | 'stepsPerSecond' | 'weightsAge'> &
  Readonly<Record<'steps' | 'seconds' | 'version', number>>

function actorOf(name: string, report: ActorReport, update: number): FleetActorStatus {
  const { host, lanes, rollouts, failures, lastError, steps, seconds, version } = report
  const stepsPerSecond = seconds === 0 ? 0 : steps / seconds
  return { name, host, lanes, rollouts, stepsPerSecond, weightsAge: Math.max(0, update - version), failures, lastError }
}

function helperOf(name: string, { host, shares, failures, error }: HelperReport): FleetHelperStatus {
  return { name, host, shares, failures, lastError: error ?? '' }
}
