import { spawn } from 'node:child_process'
import { InputError } from '../../base/errors.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { launchFile, parseFleet, schedulers } from '../../entries/orchestration.ts'
import { boolean, integer, strings, text } from '../../entries/settings.ts'
import { configureRun } from '../../index.ts'

export const launchKeys = {
  submit: boolean(false, 'start the processes with sbatch, kubectl or ssh; otherwise print the file'),
  processes: integer(0, 'actor processes; 0: as many as actors', { min: 0, max: 10_000 }),
  helpers: integer(-1, 'number of processes that compute shares of gradients; -1: learners - 1', { min: -1, max: 15 }),
  modules: strings([], 'paths of modules that the actors may import'),
  folder: text('', "working directory of all processes; empty: the scheduler's default"),
  program: text(
    'colonnade',
    'command that runs Colonnade on those machines; it is also looked up in node_modules/.bin of folder',
  ),
  cpus: integer(1, 'processors of one process', { min: 1 }),
  memory: integer(2000, 'memory of one process, in MB', { min: 1 }),
  partition: text('', "Slurm: partition; empty: the cluster's default"),
  time: text('', "Slurm: time limit, like 12:00:00; empty: the partition's default"),
  image: text('', 'Kubernetes: image with Colonnade'),
  claim: text('', 'Kubernetes: claim of the volume that is mounted at folder'),
  secret: text('', 'Kubernetes: secret whose keys become environment variables of the processes'),
  nodes: text('', "Kubernetes: label of the actors' nodes, like cloud.google.com/gke-spot=true"),
  hosts: strings([], 'ssh: the machines; the first runs the learner'),
}

/** colonnade launch slurm|kubernetes|ssh <environment> fleet=… store=… [key=value …] */
export const launchCommand: Command = async ({ words, json }) => {
  const [scheduler = '', ...rest] = words
  const { subject, texts } = splitWords(rest, 'a scheduler and an environment, like slurm CartPole-v1')
  const isOwn = ([key]: [string, string]) => Object.hasOwn(launchKeys, key)
  const { submit, ...keys } = readKeys(launchKeys, Object.fromEntries(Object.entries(texts).filter(isOwn)))
  const { out: given, ...settings } = Object.fromEntries(Object.entries(texts).filter((entry) => !isOwn(entry)))
  const { fleet = '', store = '' } = settings
  if (store === '') throw new InputError('store', 'none', 'a folder of all machines, or s3://bucket/prefix')
  const { name } = parseFleet(fleet)
  const definition = await configureRun(subject, settings)
  const out = given ?? `runs/${name}`
  const train = [subject, ...Object.entries(settings).map(([key, value]) => `${key}=${value}`), `out=${out}`]
  const processes = keys.processes || (definition.settings as { actors?: number }).actors || 1
  const { learners = '1' } = definition.settings as { learners?: string }
  const helpers = keys.helpers === -1 ? Number(learners) - 1 : keys.helpers
  if (helpers > 0 && learners === '1') throw new InputError('helpers', `${helpers}`, '0, or learners=2 or more')
  const file = await launchFile(scheduler, { ...keys, train, out, fleet, name, processes, helpers })
  if (!submit) {
    if (!json) process.stdout.write(file)
    return { scheduler, file, submitted: null }
  }
  const submitted = await start(schedulers[scheduler]!, file)
  if (!json) process.stdout.write(submitted)
  return { scheduler, file, submitted }
}

/** Gives a file to a scheduler's command, and returns what it prints. */
function start([command, ...words]: readonly [string, ...string[]], file: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, words, { stdio: ['pipe', 'pipe', 'inherit'] })
    let text = ''
    child.stdout.on('data', (chunk) => {
      text += chunk
    })
    child.once('error', (cause) => {
      reject(new InputError('submit', (cause as Error).message, `${command} on this machine`, { cause }))
    })
    child.once('close', (code) => {
      if (code === 0) resolve(text)
      else reject(new Error(`${command} ended with ${code}`))
    })
    child.stdin.on('error', () => {}) // The exit code reports the error.
    child.stdin.end(file)
  })
}
