import { actorCommand, helperCommand, type LaunchOptions, learnerCommand, PATH, quoted } from './job.ts'

/** A shell script: it starts the learner on the first machine and the actors on all in turn, and leaves them running. */
export function sshFile(options: LaunchOptions): string {
  const { hosts, processes, helpers, name, folder } = options
  const start = (i: number, host: string, command: string) => `
ssh ${host} 'cat > ${name}-${i}.sh; nohup sh ${name}-${i}.sh >> ${name}-${i}.log 2>&1 < /dev/null &' << 'END'
${folder === '' ? '' : `cd ${folder}\n`}${PATH}
for try in 1 2 3 4 5 6 7 8 9 10; do
  sh -c ${quoted(command)}
  code=$?
  case $code in 0|130|143) exit $code ;; esac
  sleep 5
done
exit $code
END
`
  const others = Array.from({ length: processes + helpers }, (_, i) => {
    const command = i < processes ? actorCommand(options) : helperCommand(options)
    return start(i + 1, hosts[i % hosts.length]!, command)
  })
  return `#!/bin/sh
# Process 0 is the learner, ${helpers === 0 ? 'the others are actors' : `1 to ${processes} are actors, the others help to learn`}. Each is started again when it fails, at most 10 times, but not after a signal.
set -e
${[start(0, hosts[0]!, learnerCommand(options)), ...others].join('')}`
}
