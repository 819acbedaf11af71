import { actorCommand, helperCommand, type LaunchOptions, learnerCommand, PATH, quoted } from './job.ts'

/**
 * A batch file for `sbatch`: an array whose task 0 is the learner, then come the actors, then the learner's helpers. Each task begins when
 * there is room for it, and is queued again by itself when it was preempted, its node failed, or it failed.
 */
export function slurmFile(options: LaunchOptions): string {
  const { name, processes, helpers, cpus, memory, partition, time, folder } = options
  const more = Object.entries({ partition, time, chdir: folder })
    .filter(([, value]) => value !== '')
    .map(([key, value]) => `#SBATCH --${key}=${value}\n`)
    .join('')
  return `#!/bin/sh
#SBATCH --job-name=${name}
#SBATCH --array=0-${processes + helpers}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=${cpus}
#SBATCH --mem=${memory}M
${more}#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=${name}-%a.log
# Task 0 is the learner, ${helpers === 0 ? 'the others are actors' : `1 to ${processes} are actors, the others help to learn`}. A step gets the signals of Slurm.
${PATH}
part() { srun --ntasks=1 --cpus-per-task=${cpus} sh -c "$1"; }
again() {
  # After SIGTERM or SIGINT, Slurm decides.
  case $1 in 130|143) exit "$1" ;; esac
  [ "\${SLURM_RESTART_COUNT:-0}" -lt 20 ] && scontrol requeue "\${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
  exit "$1"
}
${helpers === 0 ? '' : among('-gt', processes, helperCommand(options))}${among('-ne', 0, actorCommand(options))}part ${quoted(learnerCommand(options))} || again $?
`
}

/** A part of the script for the tasks whose number compares so. */
function among(comparison: string, number: number, command: string): string {
  return `if [ "$SLURM_ARRAY_TASK_ID" ${comparison} ${number} ]; then
  part ${quoted(command)} || again $?
  exit 0
fi
`
}
