import { boolean, integer, type ModuleTrust } from '../entries/settings.ts'
import { loadTrainedModel } from '../entries/text.ts'
import { evaluate, evaluateText, kindOfRun, loadPolicy } from '../index.ts'
import { type Command, readKeys, splitWords } from './invocation.ts'
import { group, returnFormat } from './progress.ts'
import { askForModule, trustKeys } from './trust.ts'

export const evaluateKeys = {
  episodes: integer(100, 'how many episodes', { min: 1 }),
  seed: integer(10_000, 'keys starting states and sampled actions', { min: 0 }),
  explore: boolean(false, 'sample actions instead of taking the most probable'),
  ...trustKeys,
}

/** colonnade evaluate <run> [episodes=100] */
export const evaluateCommand: Command = async ({ words, json }) => {
  const { subject, texts } = splitWords(words, 'a run folder')
  const { trust, ...keys } = readKeys(evaluateKeys, texts)
  const modules = { allowModule: askForModule(trust) }
  if ((await kindOfRun(subject)) === 'conversations') return judgeText(subject, keys, modules, json)
  const { environment, policy, weights, update } = await loadPolicy(subject, modules)
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

async function judgeText(
  run: string,
  keys: { episodes: number; seed: number; explore: boolean },
  modules: ModuleTrust,
  json: boolean,
) {
  const { environment, policy, weights, adapter, sftSteps, updates, settings } = await loadTrainedModel(run, modules)
  const { tooLong, cutTurn, rewardReduction } = settings
  const told = { tooLong, cutTurn, rewardReduction }
  const evaluation = await evaluateText({ environment, policy, weights, adapter, ...told, ...keys })
  const { reward, episodes, components, samples, completionLength, numUnknown, firstError } = evaluation
  if (!json) {
    const trained = `${group(sftSteps)} supervised steps and ${group(updates)} updates`
    console.log(`${environment.id}, weights after ${trained}, ${group(episodes)} conversations`)
    const figures =
      reward === null ? [] : [reward.mean, reward.std, reward.min, reward.max].map((value) => value.toFixed(3))
    console.log(
      figures.length === 0
        ? 'no reward known'
        : `reward ${figures[0]} ± ${figures[1]}, from ${figures[2]} to ${figures[3]}`,
    )
    const parts = Object.entries(components).map(([name, mean]) => `${name} ${mean.toFixed(3)}`)
    if (parts.length > 0) console.log(parts.join('  '))
    if (numUnknown > 0) console.log(`${numUnknown} rewards unknown (${firstError})`)
    console.log(`length ${completionLength.toFixed(1)} tokens`)
    for (const { prompt, completion, reward } of samples) {
      console.log(
        `  ${reward === null ? 'unknown' : reward.toFixed(3)}  ${JSON.stringify(prompt)} → ${JSON.stringify(completion)}`,
      )
    }
  }
  return { run, sftSteps, updates, ...evaluation }
}
