/** Files for schedulers: run by real shells with programs that record their words, checked by kubeconform, and started by a real Slurm. */
import { execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { launchFile } from '../../src/fleet/launch/launch.ts'
import { inProcess } from '../support/command.ts'
import { natsFolder, startNats, whyNoNats, whyNot } from '../support/fleet-carriers.ts'
import { findPython } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { isThorough, thorough } from '../support/tiers.ts'

const run = promisify(execFile)
const root = fileURLToPath(new URL('../..', import.meta.url))
const options = {
  ...{ train: ['CartPole-v1', 'seed=1', 'out=a run'], out: 'a run', fleet: 'nats://h:4222/cart', name: 'cart' },
  ...{ processes: 2, helpers: 0, modules: [], folder: '', program: 'colonnade', cpus: 1, memory: 100 },
  ...{ partition: '', time: '', image: '', claim: '', secret: '', nodes: '', hosts: [] },
}
const words = ['fleet=nats://h:4222/cart', 'store=/shared', 'actors=3']

describe('A file for', () => {
  let folder: string
  /** A program in the path that writes its words into `said`. */
  const fake = async (name: string, more = '') => {
    const path = join(folder, 'bin', name)
    await writeFile(path, `#!/bin/sh\necho "${name} $*" >> "${folder}/said"\n${more}`)
    await chmod(path, 0o755)
  }
  const said = async () => (await readFile(join(folder, 'said'), 'utf8')).trim().split('\n')
  const sh = async (file: string, env: Readonly<Record<string, string>> = {}) => {
    await rm(join(folder, 'said'), { force: true })
    const path = `${join(folder, 'bin')}${delimiter}${process.env.PATH}`
    const child = spawn('sh', ['-c', file], { cwd: folder, env: { ...process.env, ...env, PATH: path } })
    return new Promise<number | null>((resolve) => child.once('close', resolve))
  }
  beforeAll(async () => {
    folder = await temporaryFolder()
    await mkdir(join(folder, 'bin'))
    await fake('colonnade', `[ "$1" != train ] && [ "$1" != actor ] || exit \${CODE:-0}`)
    await fake('srun', 'shift 2; exec "$@"')
    await fake('scontrol')
    await fake('ssh', 'cd "$0-$1" && exec sh -c "$2"')
  })

  test('Slurm begins the learner, continues it where it was killed, and drains the actors at its end', async () => {
    const file = await launchFile('slurm', options)
    const task = (id: number, code = 0, restarts = 0) =>
      sh(file, {
        ...{ SLURM_ARRAY_TASK_ID: `${id}`, SLURM_ARRAY_JOB_ID: '7' },
        ...{ SLURM_RESTART_COUNT: `${restarts}`, CODE: `${code}` },
      })
    const ours = async () => (await said()).filter((line) => /^(colonnade|scontrol)/.test(line))
    expect(await task(0)).toBe(0)
    const [begin, drain] = [
      'colonnade train CartPole-v1 seed=1 out=a run --quiet',
      'colonnade fleet nats://h:4222/cart order=drain',
    ]
    expect(await ours()).toEqual([begin, drain])
    // A failure is tried again by Slurm, but not after its own signal, nor for ever.
    expect(await task(0, 1)).toBe(1)
    expect(await ours()).toEqual([begin, 'scontrol requeue 7_0'])
    expect(await task(0, 143)).toBe(143)
    expect(await ours()).toEqual([begin])
    expect(await task(2, 1, 20)).toBe(1)
    expect(await ours()).toEqual(['colonnade actor nats://h:4222/cart stay=true'])
    await mkdir(join(folder, 'a run'))
    await writeFile(join(folder, 'a run/config.json'), '{}')
    expect(await task(0)).toBe(0)
    expect(await ours()).toEqual(['colonnade resume a run --quiet', drain])
    await rm(join(folder, 'a run'), { recursive: true })
    const more = await launchFile('slurm', { ...options, partition: 'spot', time: '1:00:00', folder: '/shared' })
    expect(more).toContain('#SBATCH --partition=spot\n#SBATCH --time=1:00:00\n#SBATCH --chdir=/shared\n')
    expect(more).toContain('#SBATCH --array=0-2\n#SBATCH --ntasks=1\n#SBATCH --cpus-per-task=1\n#SBATCH --mem=100M\n')
  })

  test('helpers of the learner are the last tasks of Slurm, a job of Kubernetes and the last processes of ssh', async () => {
    const helper = 'colonnade actor nats://h:4222/cart stay=true role=learn'
    const slurm = await launchFile('slurm', { ...options, helpers: 2 })
    expect(slurm).toContain('#SBATCH --array=0-4\n')
    for (const [task, command] of [
      ['2', 'colonnade actor nats://h:4222/cart stay=true'],
      ['3', helper],
    ] as const) {
      expect(await sh(slurm, { SLURM_ARRAY_TASK_ID: task, SLURM_ARRAY_JOB_ID: '7' })).toBe(0)
      expect((await said()).at(-1)).toBe(command)
    }
    for (const [scheduler, given] of [
      ['kubernetes', { image: 'i' }],
      ['ssh', { hosts: ['a', 'b'] }],
    ] as const) {
      const file = await launchFile(scheduler, { ...options, ...given, helpers: 2 })
      expect(file.split(helper).length - 1, scheduler).toBe(scheduler === 'ssh' ? 2 : 1)
    }
    const words = [
      'launch',
      'kubernetes',
      'CartPole-v1',
      'fleet=nats://h:4222/cart',
      'store=/s',
      'image=i',
      'learners=4',
      '--json',
    ]
    const { file } = JSON.parse((await inProcess(words, folder)).stdout)
    expect(file).toMatch(/name: cart-helpers[\s\S]*parallelism: 3/)
    const alone = words.with(6, 'learners=1')
    expect((await inProcess([...alone, 'helpers=2'], folder)).stderr).toContain(
      'helpers: got 2, expected 0, or learners=2',
    )
  })

  test('ssh starts the learner on the first machine and the actors on all in turn', async () => {
    for (const host of ['a', 'b']) await mkdir(join(folder, `bin/ssh-${host}`))
    const file = await launchFile('ssh', { ...options, processes: 3, hosts: ['a', 'b'], modules: ['./my env.mjs'] })
    expect(await sh(file)).toBe(0)
    const actor = 'colonnade actor nats://h:4222/cart stay=true modules=./my env.mjs'
    await expect
      .poll(async () => (await said()).filter((line) => line.startsWith('colonnade')).sort(), { timeout: 20_000 })
      .toEqual([
        actor,
        actor,
        actor,
        'colonnade fleet nats://h:4222/cart order=drain',
        'colonnade train CartPole-v1 seed=1 out=a run --quiet',
      ])
    expect((await said()).filter((line) => line.startsWith('ssh')).map((line) => line.slice(0, 5))).toEqual([
      'ssh a',
      'ssh a',
      'ssh b',
      'ssh a',
    ])
    expect((await readdir(join(folder, 'bin/ssh-b'))).sort()).toEqual(['cart-2.log', 'cart-2.sh'])
  })

  test('Kubernetes hands SIGTERM to the learner, whose exit code is the pod’s', async () => {
    await fake(
      'colonnade',
      `trap 'echo asked >> "${folder}/said"; exit 143' TERM\ntouch "${folder}/begun"\nwhile :; do sleep 0.05; done`,
    )
    const { file } = JSON.parse(
      (await inProcess(['launch', 'kubernetes', 'CartPole-v1', ...words, 'image=i', 'out=new', '--json'], folder))
        .stdout,
    )
    const { parseAllDocuments } = await import('yaml')
    const [learner, actors] = parseAllDocuments(file).map((each) => each.toJS())
    expect([learner.metadata.name, actors.metadata.name, actors.spec.parallelism]).toEqual([
      'cart-learner',
      'cart-actors',
      3,
    ])
    const [, , script] = learner.spec.template.spec.containers[0].command
    await rm(join(folder, 'said'), { force: true })
    const path = `${join(folder, 'bin')}${delimiter}${process.env.PATH}`
    const pod = spawn('sh', ['-c', script], { cwd: folder, env: { ...process.env, PATH: path } })
    const ended = new Promise((resolve) => pod.once('close', resolve))
    await expect.poll(() => existsSync(join(folder, 'begun')), { timeout: 20_000 }).toBe(true)
    pod.kill('SIGTERM')
    expect(await ended).toBe(143)
    expect((await said()).slice(-1)).toEqual(['asked'])
  })

  test.each([
    ['pbs', [], 'scheduler: got "pbs", expected one of slurm, kubernetes, ssh'],
    ['ssh', [], 'hosts: got none, expected machines, like hosts=me@a,me@b'],
    ['ssh', ['hosts=a;b'], 'hosts: got "a;b", expected letters'],
    ['slurm', ['store=http://a:8100'], 'store: got "http://a:8100", expected a folder of all machines or s3://…'],
    ['kubernetes', [], 'image: got none, expected an image with Colonnade'],
    ['kubernetes', ['image=i', 'claim=c'], 'claim: got "c", expected claim=… and folder=… together'],
    ['kubernetes', ['image=i', 'nodes=spot'], 'nodes: got "spot", expected one label'],
    ['kubernetes', ['image=i', 'fleet=nats://h:4222/A_B'], 'name of the fleet: got A_B, expected for Kubernetes'],
    ['slurm', ['store='], 'store: got none, expected a folder of all machines, or s3://bucket/prefix'],
    ['slurm', ['fleet=nats://me:word@h:4222/x'], 'fleet: got an address with credentials'],
    ['slurm', ['numLanes=none'], 'numLanes: got "none"'],
  ])('%s with %s is refused', async (scheduler, given, message) => {
    const key = (word: string) => word.slice(0, word.indexOf('='))
    const rest = words.filter((word) => !given.some((each) => key(each) === key(word)))
    const { code, stdout, stderr } = await inProcess(['launch', scheduler, 'CartPole-v1', ...rest, ...given], folder)
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr).toContain(message)
  })
})

thorough('kubeconform accepts the manifests, and finds a key that Kubernetes does not have', async (context) => {
  const folder = join(root, 'node_modules/.cache/colonnade-kubeconform')
  const program = join(folder, 'kubeconform')
  const why = await whyNot('kubeconform', folder, program, 'github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0', [])
  const found = await findPython(['kubernetes-validate==1.37.0'], 'kubernetes_validate')
  if (why !== null || 'why' in found) return context.skip()
  const place = (await run(found.python, ['-c', 'import kubernetes_validate as k; print(k.__path__[0])'])).stdout.trim()
  const given = {
    ...options,
    name: 'cart',
    train: ['CartPole-v1', 'store=s3://b/x', 'out=r'],
    image: 'i:1',
    claim: 'c',
    folder: '/data',
  }
  const text = await launchFile('kubernetes', { ...given, secret: 's', nodes: 'cloud.google.com/gke-spot=true' })
  const schemas = await temporaryFolder()
  for (const version of ['1.26', '1.37']) {
    // The package's schemas refer to one file, which kubeconform does not find.
    const from = join(place, `kubernetes-json-schema/v${version}.0-local-strict`)
    const { $defs, definitions = $defs } = JSON.parse(await readFile(join(from, '_definitions.json'), 'utf8'))
    const whole = (value: unknown): unknown => {
      if (Array.isArray(value)) return value.map(whole)
      if (typeof value !== 'object' || value === null) return value
      const { $ref } = value as { $ref?: unknown }
      if (typeof $ref === 'string') return whole(definitions[$ref.split('/').at(-1)!])
      return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, whole(each)]))
    }
    const job = whole(JSON.parse(await readFile(join(from, 'job-batch-v1.json'), 'utf8')))
    await writeFile(join(schemas, 'job-batch-v1.json'), JSON.stringify(job))
    const check = async (manifests: string) => {
      const words = ['-strict', '-summary', '-schema-location', `${schemas}/{{ .ResourceKind }}{{ .KindSuffix }}.json`]
      await writeFile(join(schemas, 'fleet.yaml'), manifests)
      return run(program, [...words, join(schemas, 'fleet.yaml')]).catch(({ stdout }) => ({ stdout }))
    }
    expect((await check(text)).stdout).toContain('Valid: 2, Invalid: 0, Errors: 0')
    expect((await check(text.replace('backoffLimit', 'backofLimit'))).stdout).toContain("'backofLimit' not allowed")
  }
})

const SLURM = ['munged', 'slurmctld', 'slurmd', 'sbatch']
const noSlurm =
  isThorough && process.getuid?.() === 0
    ? SLURM.filter((name) => !existsSync(`/usr/sbin/${name}`) && !existsSync(`/usr/bin/${name}`))
    : ['the fast tier']
if (isThorough && noSlurm.length > 0)
  console.warn(`SKIPPED: Slurm, without ${noSlurm} (Debian: slurmctld slurmd munge, as root)`)

describe.skipIf(noSlurm.length > 0 || (await whyNoNats()) !== null)('Slurm on this machine', () => {
  let folder: string
  const ends: (() => Promise<unknown>)[] = []
  const slurm = async (command: string, ...words: string[]) => {
    const env = { ...process.env, SLURM_CONF: join(folder, 'slurm.conf') }
    return (await run(command, words, { env, cwd: folder })).stdout.trim()
  }
  const daemon = (command: string, ...words: string[]) => {
    const child = spawn(command, words, {
      env: { ...process.env, SLURM_CONF: join(folder, 'slurm.conf') },
      stdio: 'ignore',
    })
    const ended = new Promise((resolve) => child.once('exit', resolve))
    ends.unshift(async () => {
      child.kill()
      await ended
    })
  }
  beforeAll(async () => {
    folder = await temporaryFolder()
    await chmod(folder, 0o755)
    for (const name of ['state', 'spool', 'munge']) await mkdir(join(folder, name))
    await writeFile(join(folder, 'munge/key'), Buffer.alloc(128, 'a key of the test'), { mode: 0o400 })
    const host = hostname().split('.')[0]!
    const port = 20_000 + 2 * (process.pid % 5000)
    await writeFile(
      join(folder, 'slurm.conf'),
      `ClusterName=one
SlurmctldHost=${host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket=${folder}/munge/socket
CredType=cred/munge
SlurmctldPort=${port}
SlurmdPort=${port + 1}
StateSaveLocation=${folder}/state
SlurmdSpoolDir=${folder}/spool
SlurmctldPidFile=${folder}/slurmctld.pid
SlurmdPidFile=${folder}/slurmd.pid
SlurmctldLogFile=${folder}/slurmctld.log
SlurmdLogFile=${folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=${host} NodeAddr=127.0.0.1 CPUs=8 CoresPerSocket=8 RealMemory=20000
PartitionName=all Nodes=ALL Default=YES
`,
    )
    const munge = (name: string) => join(folder, 'munge', name)
    const files = ['key-file=key', 'socket=socket', 'pid-file=pid', 'log-file=log', 'seed-file=seed']
    daemon(
      'munged',
      '--foreground',
      '--force',
      ...files.map((each) => `--${each.replace(/=.*/, `=${munge(each.split('=')[1]!)}`)}`),
    )
    await vi.waitFor(() => expect(existsSync(munge('socket'))).toBe(true), { timeout: 30_000 })
    daemon('slurmctld', '-D', '-i')
    daemon('slurmd', '-D')
    await vi.waitFor(async () => expect(await slurm('sinfo', '-h', '-o', '%T')).toBe('idle'), {
      timeout: 60_000,
      interval: 500,
    })
  }, 120_000)
  afterAll(async () => {
    for (const end of ends) await end()
  })

  test('runs a learner and three actors, queues one of each again, and has the bits of one process', async () => {
    const nats = await startNats()
    ends.push(() => nats.end())
    // A copy of the package beside the client of NATS.
    const own = join(natsFolder, 'node_modules/colonnade-slurm')
    await rm(own, { recursive: true, force: true })
    await mkdir(own, { recursive: true })
    await cp(join(root, 'dist/src'), join(own, 'dist/src'), { recursive: true })
    await cp(join(root, 'package.json'), join(own, 'package.json'))
    await mkdir(join(folder, 'node_modules/.bin'), { recursive: true })
    const main = join(own, 'dist/src/cli/main.js')
    const bin = join(folder, 'node_modules/.bin/colonnade')
    await writeFile(bin, `#!/bin/sh\nexec ${process.execPath} ${main} "$@"\n`, { mode: 0o755 })
    const fleet = `fleet=${nats.address}/slurm`
    const training = ['CartPole-v1', 'totalSteps=300000', 'seed=1', 'checkpointEvery=10', 'rollouts=all']
    const launch = [
      'launch',
      'slurm',
      ...training,
      fleet,
      `store=${join(folder, 'store')}`,
      'actors=3',
      'actorSeconds=3',
      'submit=true',
    ]
    expect(await slurm(bin, ...launch)).toMatch(/^Submitted batch job 1$/)
    const state = async (task: number) =>
      (/JobState=(\w+)/.exec(await slurm('scontrol', 'show', 'job', `1_${task}`)) ?? [])[1]
    const update = async () =>
      JSON.parse(await slurm(bin, 'fleet', `${nats.address}/slurm`, '--json').catch(() => '{}')).learner?.update
    for (const task of [2, 0]) {
      const before = (await update()) ?? 0
      await expect.poll(update, { timeout: 120_000, interval: 300 }).toBeGreaterThan(before + 5)
      await slurm('scontrol', 'requeue', `1_${task}`)
      await expect.poll(() => state(task), { timeout: 60_000 }).toBe('PENDING')
      // Otherwise Slurm waits two minutes.
      await slurm('scontrol', 'update', `jobid=1_${task}`, 'StartTime=now')
      await expect.poll(() => state(task), { timeout: 60_000 }).toBe('RUNNING')
    }
    const states = () => Promise.all([0, 1, 2, 3].map(state))
    await expect.poll(states, { timeout: 300_000, interval: 1000 }).toEqual(Array(4).fill('COMPLETED'))
    const log = await readFile(join(folder, 'slurm-0.log'), 'utf8')
    expect(log).toContain('DUE TO JOB REQUEUE')
    await slurm(bin, 'train', ...training, 'out=alone', '--quiet')
    const files = (await readdir(join(folder, 'alone/rollouts'))).sort()
    expect((await readdir(join(folder, 'runs/slurm/rollouts'))).sort()).toEqual(files)
    for (const file of files) {
      const [one, other] = await Promise.all(
        ['alone', 'runs/slurm'].map((each) => readFile(join(folder, each, 'rollouts', file))),
      )
      expect(Buffer.compare(one!, other!), file).toBe(0)
    }
  }, 600_000)
})
