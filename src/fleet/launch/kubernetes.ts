import { actorCommand, helperCommand, type LaunchOptions, learnerCommand, PATH } from './job.ts'

/** A pod that was evicted, or whose node went, does not count as failed. */
const EVICTED = { action: 'Ignore', onPodConditions: [{ type: 'DisruptionTarget', status: 'True' }] }

/**
 * Manifests of jobs: the learner, the actors, and helpers if there are any. The job of the actors has no number of
 * completions: it is complete when its first actor ends, because actors end only with the run. `kubectl patch job
 * NAME-actors -p '{"spec":{"parallelism":40}}'` changes the number of actors.
 */
export async function kubernetesFile(options: LaunchOptions): Promise<string> {
  const { stringify } = await import('yaml')
  const { name, processes, helpers, nodes } = options
  const [label, value] = nodes.split('=')
  const spot =
    nodes === ''
      ? {}
      : { nodeSelector: { [label!]: value! }, tolerations: [{ key: label!, operator: 'Exists', effect: 'NoSchedule' }] }
  const learner = job(`${name}-learner`, options, learnerCommand(options), {}, {})
  const actors = job(`${name}-actors`, options, actorCommand(options), { parallelism: processes }, spot)
  const help = { parallelism: helpers }
  const helping = helpers === 0 ? [] : [job(`${name}-helpers`, options, helperCommand(options), help, spot)]
  return [learner, actors, ...helping].map((each) => stringify(each, { lineWidth: 0 })).join('---\n')
}

function job(name: string, options: LaunchOptions, command: string, more: object, pod: object): object {
  const { image, cpus, memory, claim, secret, folder } = options
  const volume = claim === '' ? {} : { volumes: [{ name: 'folder', persistentVolumeClaim: { claimName: claim } }] }
  const container = {
    name: 'colonnade',
    image,
    command: ['sh', '-c', `${PATH}\n${command}`],
    ...(folder === '' ? {} : { workingDir: folder }),
    ...(secret === '' ? {} : { envFrom: [{ secretRef: { name: secret } }] }),
    ...(claim === '' ? {} : { volumeMounts: [{ name: 'folder', mountPath: folder }] }),
    resources: { requests: { cpu: String(cpus), memory: `${memory}Mi` }, limits: { memory: `${memory}Mi` } },
  }
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: { name, labels: { app: 'colonnade', fleet: options.name } },
    spec: {
      ...more,
      backoffLimit: 1000,
      podFailurePolicy: { rules: [EVICTED] },
      template: {
        metadata: { labels: { app: 'colonnade', fleet: options.name } },
        spec: { restartPolicy: 'Never', terminationGracePeriodSeconds: 60, ...pod, ...volume, containers: [container] },
      },
    },
  }
}
