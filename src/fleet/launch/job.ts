/**
 * The processes that a scheduler starts for a training on several machines: a learner that continues after a kill, and
 * actors that may come and go. A process that ends with code 0 is done; with another code it starts again, except after
 * the scheduler's own signal, when the scheduler decides.
 */
import { shellWord } from '../../base/shell.ts'

/** A training on several machines. */
export interface LaunchOptions {
  /** The words of `colonnade train`, with `fleet`, `store` and `out`. */
  readonly train: readonly string[]
  /** The run's folder, which a learner that was started again must find. */
  readonly out: string
  /** `nats://host:4222/name` */
  readonly fleet: string
  /** The name in it. */
  readonly name: string
  /** Number of actor processes. */
  readonly processes: number
  /** Number of processes that compute gradients with the learner. */
  readonly helpers: number
  /** Paths of modules that the actors may import. */
  readonly modules: readonly string[]
  /** The folder in which all processes run; empty: the current one, or of the image. */
  readonly folder: string
  /** The command that is Colonnade, such as `npx colonnade`. */
  readonly program: string
  /** Processors of one process, and its memory in MB. */
  readonly cpus: number
  readonly memory: number
  /** Of Slurm: partition, and limit of time; empty: the cluster's. */
  readonly partition: string
  readonly time: string
  /** Of Kubernetes: the image, the claim of the volume that is `folder`, the secret with variables, and the label of the actors' nodes. */
  readonly image: string
  readonly claim: string
  readonly secret: string
  readonly nodes: string
  /** Of ssh: the machines; the first one has the learner. */
  readonly hosts: readonly string[]
}

/** Begins the run, or continues it, hands on SIGTERM, and ends the actors when the run has ended. */
export function learnerCommand({ program, train, out, fleet }: LaunchOptions): string {
  const run = shellWord(out)
  return `trap '[ -n "$!" ] || exit 143; kill $!' TERM
if [ -e ${run}/config.json ]; then ${program} resume ${run} --quiet & else
  ${program} train ${train.map(shellWord).join(' ')} --quiet &
fi
wait $!
code=$?
while kill -0 $! 2> /dev/null; do wait $!; code=$?; done
[ $code -ne 0 ] || ${program} fleet ${shellWord(fleet)} order=drain
exit $code`
}

/** Collects for the run's learner, and for the one that continues it. */
export function actorCommand({ program, fleet, modules }: LaunchOptions): string {
  const allowed = modules.length === 0 ? '' : ` modules=${shellWord(modules.join(','))}`
  return `exec ${program} actor ${shellWord(fleet)} stay=true${allowed}`
}

/** Computes gradients with the run's learner, and with the one that continues it. */
export function helperCommand(options: LaunchOptions): string {
  return `${actorCommand(options)} role=learn`
}

/** A command as one word of a shell. */
export function quoted(command: string): string {
  return `'${command.replaceAll("'", `'\\''`)}'`
}

/** Where a package installed in the working folder is found. */
export const PATH = 'export PATH="$PWD/node_modules/.bin:$PATH"'
