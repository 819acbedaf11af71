/** Files by which schedulers start a training on several machines; `job.ts` has the processes. */
import { InputError, show, unknownWord } from '../../base/errors.ts'
import type { LaunchOptions } from './job.ts'
import { kubernetesFile } from './kubernetes.ts'
import { slurmFile } from './slurm.ts'
import { sshFile } from './ssh.ts'

/** Schedulers, and the command that reads their file from its input and starts it. */
export const schedulers: Readonly<Record<string, readonly [command: string, ...words: string[]]>> = {
  slurm: ['sbatch'],
  kubernetes: ['kubectl', 'apply', '-f', '-'],
  ssh: ['sh'],
}

const files: Readonly<Record<string, (options: LaunchOptions) => string | Promise<string>>> = {
  slurm: slurmFile,
  kubernetes: kubernetesFile,
  ssh: sshFile,
}

/**
 * Writes the file for `sbatch`, `kubectl apply -f` or `sh`: a learner that continues after a kill, and actors that come and go.
 * @throws InputError for another scheduler, and if one lacks what it needs.
 */
export async function launchFile(scheduler: string, options: LaunchOptions): Promise<string> {
  const write = Object.hasOwn(files, scheduler) ? files[scheduler] : undefined
  if (write === undefined) throw unknownWord('scheduler', scheduler, Object.keys(files))
  const store = options.train.find((word) => word.startsWith('store='))?.slice('store='.length) ?? ''
  if (scheduler !== 'ssh' && store.startsWith('http:')) {
    throw new InputError(
      'store',
      show(store),
      'a folder of all machines or s3://…: the scheduler chooses the machine of the learner',
    )
  }
  // These are written into files unquoted.
  const { partition, time, folder, nodes, hosts } = options
  const plain = [
    ...Object.entries({ partition, time, folder, nodes }),
    ...hosts.map((host) => ['hosts', host] as const),
  ]
  for (const [key, word] of plain) {
    if (!/^[\w./=:@-]*$/.test(word)) throw new InputError(key, show(word), 'letters, digits and ./=:@-_')
  }
  if (scheduler === 'ssh' && hosts.length === 0) throw new InputError('hosts', 'none', 'machines, like hosts=me@a,me@b')
  if (scheduler === 'kubernetes') checkKubernetes(options)
  return write(options)
}

function checkKubernetes({ image, claim, folder, name, nodes }: LaunchOptions): void {
  if (image === '') throw new InputError('image', 'none', 'an image with Colonnade, like image=registry/colonnade:1')
  if ((claim === '') !== (folder === '')) {
    throw new InputError('claim', show(claim), 'claim=… and folder=… together: a volume, and where the pods have it')
  }
  if (!/^[a-z\d]([a-z\d-]{0,50}[a-z\d])?$/.test(name)) {
    throw new InputError('name of the fleet', name, 'for Kubernetes, at most 52 small letters, digits and -')
  }
  if (nodes !== '' && !/^[^=]+=[^=]+$/.test(nodes))
    throw new InputError('nodes', show(nodes), 'one label, like spot=true')
}
