/** The training of a language model with somebody watching: progress, Ctrl-C, and what came of it. */
import { formatBytes, type TextMetrics, type TextRun, type TextRunPlan, type TextRunSummary } from '../index.ts'
import { interruption } from './follow.ts'
import { group, progressLine } from './progress.ts'

/** Says what a run will take of the memory and what was chosen for it, before weights are read. */
export function tellPlan(quiet: boolean): (plan: TextRunPlan) => void {
  return ({ bytes, parts, notes }) => {
    if (quiet) return
    const largest = Object.entries(parts).slice(0, 4)
    const words = largest.map(([name, size]) => `${name} ${formatBytes(size)}`).join(', ')
    process.stderr.write(`plan: ${formatBytes(bytes)} (${words})\n`)
    for (const note of notes) process.stderr.write(`${note}\n`)
  }
}

/** Trains the run to its end, or until Ctrl-C: then it ends after the tick, writes a checkpoint and says how to go on. */
export async function followText(
  run: TextRun,
  { json, quiet }: { json: boolean; quiet: boolean },
): Promise<TextRunSummary> {
  const { environment, sft, rl, settings } = run.definition
  const interrupt = interruption(run, quiet, 'this tick')
  if (!quiet) {
    const parts = [
      sft === null ? '' : `${group(sft.settings.steps)} supervised steps`,
      rl === null ? '' : `${group(rl.settings.updates)} updates of ${rl.settings.loss}`,
    ]
    const { model, adapter } = run.trainer.world.cohort()
    const trained = adapter === null ? '' : `, ${group(adapter.lora.numParameters)} of adapters trained`
    const bytes = run.trainer.world.plan().reduce((sum, column) => sum + column.bytes, 0)
    const size = `${group(model.numParameters)} parameters${trained}, ${formatBytes(bytes)}`
    process.stderr.write(
      `${environment.id}: ${parts.filter(Boolean).join(', ')}, ${size}, seed ${settings.seed} → ${run.folder}\n`,
    )
  }
  const { skipped, cut } = run.trainer.progress().tooLong
  if (!quiet && skipped + cut > 0) {
    const { context } = run.trainer.world.cohort()
    process.stderr.write(
      `longer than the context of ${group(context)} tokens: ${group(skipped)} examples passed over, ${group(cut)} cut\n`,
    )
  }
  const progress = progressLine(run.totalSteps, 'steps', quiet)
  try {
    const onStep = (metrics: TextMetrics): void => {
      progress.update(run.trainer.update, figuresOf(metrics))
    }
    const summary = await run.train({ onStep, signal: interrupt.signal })
    progress.end()
    if (!json) console.log(describe(summary))
    return summary
  } catch (error) {
    progress.end()
    throw error
  } finally {
    interrupt.forget()
  }
}

function figuresOf({ phase, loss, rl }: TextMetrics): string[] {
  if (rl === null) return [phase, `loss ${loss.toFixed(3)}`]
  const reward = rl.reward === null ? 'no reward known' : `reward ${rl.reward.toFixed(3)}`
  const rate = rl.sampledTokens / rl.rolloutSeconds
  const unheard = rl.unheard > 0 ? `${rl.unheard} replies unheard, ${rl.cutTurns} turns cut` : ''
  const rewrites = rl.rewrites > 0 ? `${rl.rewrites} rows more by the chat template` : ''
  const unknown = rl.numUnknown > 0 ? `${rl.numUnknown} rewards unknown (${rl.firstError})` : ''
  return [
    phase,
    reward,
    `entropy ${rl.entropy.toFixed(2)}`,
    `${group(Math.round(rate))} tokens/s`,
    unheard,
    rewrites,
    unknown,
  ].filter(Boolean)
}

function describe(summary: TextRunSummary): string {
  const { status, folder, sftSteps, updates, trajectories, seconds, tokensPerSecond, reward } = summary
  const steps = [`${group(sftSteps)} supervised steps`, `${group(updates)} updates`].join(' and ')
  const lines = [`${status}: ${steps} in ${seconds.toFixed(1)} s`]
  if (reward !== null && tokensPerSecond !== null) {
    const [rollout, update] = [tokensPerSecond.rollout, tokensPerSecond.update].map((rate) => group(Math.round(rate)))
    lines.push(
      `reward ${reward.first.toFixed(3)} in the first 100 groups, ${reward.last.toFixed(3)} in the last`,
      `${group(trajectories)} conversations; ${rollout} tokens/s sampled, ${update} tokens/s trained`,
    )
  }
  if (summary.rewrites > 0) {
    lines.push(
      `the chat template rewrote earlier turns ${group(summary.rewrites)} times: the conversation went on in a row of its own`,
    )
  }
  if (summary.unheard > 0) {
    lines.push(
      `${group(summary.unheard)} conversations ended with a turn that was cut off, or without room, and did not hear the reply (cutTurn)`,
    )
  }
  for (const [name, path] of Object.entries(summary.files)) lines.push(`  ${name.padEnd(14)} ${path}`)
  lines.push(
    status === 'interrupted' ? `to go on: colonnade resume ${folder}` : `to judge it: colonnade evaluate ${folder}`,
  )
  return lines.join('\n')
}
