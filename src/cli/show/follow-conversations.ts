import { group } from '../../base/metrics.ts'
import { formatBytes } from '../../entries/data.ts'
import type { ConversationRunDefinition } from '../../entries/text.ts'
import type { Words } from './follow-words.ts'
import { shares } from './progress.ts'

/** Progress and results of a language model's training. */
export const conversationWords: Words<ConversationRunDefinition> = {
  unit: 'this tick',
  header({ definition: { environment, sft, rl, settings }, trainer }) {
    const parts = [
      sft === null ? '' : `${group(sft.settings.updates)} supervised steps`,
      rl === null ? '' : `${group(rl.settings.updates)} updates of ${rl.settings.loss}`,
    ]
    const { model, adapter, context } = trainer.world.cohort()
    const trained = adapter === null ? '' : `, ${group(adapter.lora.numParameters)} of adapters trained`
    const bytes = trainer.world.plan().reduce((sum, column) => sum + column.bytes, 0)
    const { skipped, cut } = trainer.progress().tooLong
    const long = `context of ${group(context)} tokens: ${group(skipped)} examples skipped, ${group(cut)} cut`
    const from = trainer.update > 0 ? `, from step ${group(trainer.update)}` : ''
    return [
      ['learns', environment.id],
      ['policy', `a language model of ${group(model.numParameters)} parameters${trained}, ${formatBytes(bytes)}`],
      ['budget', `${parts.filter(Boolean).join(', ')}${from}, seed ${settings.seed}`],
      ...(skipped + cut > 0 ? [['too long', long] as const] : []),
    ]
  },
  total: ({ definition: { sft, rl } }) => (sft?.settings.updates ?? 0) + (rl?.settings.updates ?? 0),
  done: ({ trainer }) => trainer.update,
  noun: () => 'steps',
  figures({ phase, loss, rl }) {
    if (rl === null) return [`${phase} loss ${loss.toFixed(3)}`]
    const reward = rl.reward === null ? 'no reward known' : `reward ${rl.reward.toFixed(3)}`
    const dropped = rl.droppedReplies > 0 ? `${rl.droppedReplies} replies dropped, ${rl.cutTurns} turns cut` : ''
    const rewrites = rl.rewrites > 0 ? `${rl.rewrites} more rows by the chat template` : ''
    const stale = rl.staleness === null || rl.staleness.max === 0 ? '' : `stale ${shares(rl.staleness.counts)}`
    const unknown = rl.numUnknown > 0 ? `${rl.numUnknown} rewards unknown (${rl.firstError})` : ''
    return [`${phase} ${reward}`, `entropy ${rl.entropy.toFixed(2)}`, dropped, stale, rewrites, unknown].filter(Boolean)
  },
  rate: ({ rl }) => (rl === null ? null : { value: rl.sampledTokens / rl.rolloutSeconds, unit: 'tokens/s' }),
  curve: ({ rl }) => rl?.reward ?? null,
  summary(summary) {
    const { sftSteps, updates, trajectories, tokensPerSecond, reward } = summary
    const lines = ['']
    if (reward !== null && tokensPerSecond !== null) {
      const [rollout, update] = [tokensPerSecond.rollout, tokensPerSecond.update].map((rate) => group(Math.round(rate)))
      lines.push(
        `reward ${reward.first.toFixed(3)} in the first 100 groups, ${reward.last.toFixed(3)} in the last`,
        `${group(trajectories)} conversations; ${rollout} tokens/s sampled, ${update} tokens/s trained`,
      )
    }
    if (summary.heldOut !== null) {
      const { numQuestions, reward: judged, episodes } = summary.heldOut
      const worth = judged === null ? 'no reward known' : `reward ${judged.mean.toFixed(3)}`
      lines.push(
        `${worth} in ${group(episodes)} conversations about ${group(numQuestions!)} held-out questions, with the most probable tokens`,
      )
    }
    if (summary.rewrites > 0) {
      lines.push(
        `the chat template rewrote earlier turns ${group(summary.rewrites)} times: each time the conversation continued in a new row`,
      )
    }
    if (summary.droppedReplies > 0) {
      lines.push(
        `${group(summary.droppedReplies)} conversations ended with a turn that was cut off, or without room, and the reply was dropped (cutTurn)`,
      )
    }
    return { did: `${group(sftSteps)} supervised steps and ${group(updates)} updates`, lines }
  },
  next: (folder) => [
    ['evaluate', folder, 'fresh conversations'],
    ['generate', `${folder} prompt=…`, 'its answers'],
  ],
}
