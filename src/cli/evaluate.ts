import { evaluate, loadPolicy, toggle, whole } from '../index.ts'
import { type Command, readKeys, splitWords } from './invocation.ts'
import { returnFormat } from './progress.ts'

export const evaluateKeys = {
  episodes: whole(100, 'how many episodes', { min: 1 }),
  seed: whole(10_000, 'keys starting states and sampled actions', { min: 0 }),
  explore: toggle(false, 'sample actions instead of taking the most probable'),
}

/** colonnade evaluate <run> [episodes=100] */
export const evaluateCommand: Command = async ({ words, json }) => {
  const { subject, texts } = splitWords(words, 'a run folder')
  const keys = readKeys(evaluateKeys, texts)
  const { environment, policy, weights, update } = await loadPolicy(subject)
  const evaluation = await evaluate({ environment, policy, weights, ...keys })
  const { mean, std, min, max } = evaluation.episodeReturn
  if (!json) {
    console.log(`${environment.id}, weights of update ${update}, ${evaluation.episodes} episodes`)
    const format = returnFormat(mean, std, min, max)
    console.log(`return ${format(mean)} ± ${format(std)}, from ${format(min)} to ${format(max)}`)
    console.log(`length ${evaluation.episodeLength.mean.toFixed(1)} ± ${evaluation.episodeLength.std.toFixed(1)} steps`)
  }
  return { run: subject, update, ...evaluation }
}
