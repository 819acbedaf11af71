import { InputError } from '../../base/errors.ts'
import { type Command, readKeys, refuseKeys, splitWords } from '../../base/invocation.ts'
import { group } from '../../base/metrics.ts'
import { fraction } from '../../base/settings.ts'
import { evaluateOffline, type LoadOptions, readEpisodes } from '../../entries/data.ts'
import { boolean, choice, integer, optionalNumber, text } from '../../entries/settings.ts'
import { heldOutOf, loadTrainedModel } from '../../entries/text.ts'
import { evaluate, evaluateText, kindOfRun, loadPolicy, readArrow } from '../../index.ts'
import { returnFormat } from '../show/progress.ts'
import { askForModule, trustKeys } from '../words/trust.ts'

export const evaluateKeys = {
  episodes: integer(100, 'number of episodes', { min: 1 }),
  seed: integer(10_000, 'seed of initial states and sampled actions', { min: 0 }),
  from: optionalNumber(null, "number of the checkpoint, such as the best evaluation's; null: the newest", {
    min: 0,
  }),
  explore: boolean(false, 'sample actions instead of taking the most probable'),
  questions: choice(
    'auto',
    ['auto', 'all', 'training', 'held-out'],
    'questions for a language model; auto: the held-out ones, or all if the run held out none',
  ),
  data: text(
    '',
    "estimate the policy's return from another policy's recorded episodes instead of playing: a table of episodes (.arrow), trajectories (.jsonl), or the folder of a Minari dataset",
  ),
  gamma: fraction(1, 'discount factor of returns, with data='),
  fittedSteps: integer(0, 'with data=: gradient steps of fitted Q evaluation, a second estimate; 0: none', { min: 0 }),
  ...trustKeys,
}

/** colonnade evaluate <run> [episodes=100] */
export const evaluateCommand: Command = async ({ words, json }) => {
  const { subject, texts } = splitWords(words, 'a run folder')
  const { trust, questions, from, data, gamma, fittedSteps, ...keys } = readKeys(evaluateKeys, texts)
  const modules = { allowModule: askForModule(trust), from: from ?? undefined }
  if (data === '') refuseKeys(texts, ['gamma', 'fittedSteps'], 'data= too')
  else refuseKeys(texts, ['episodes', 'explore', 'questions'], 'no such key: with data= no episodes are played')
  if (data !== '') return judgeOffline(subject, { data, gamma, fittedSteps, seed: keys.seed }, modules, json)
  if ((await kindOfRun(subject)) === 'conversations') return judgeText(subject, { questions, ...keys }, modules, json)
  if (questions !== 'auto') throw new InputError('questions', questions, 'auto, for a run of an environment')
  const { environment, policy, systems, weights, shared, update } = await loadPolicy(subject, modules)
  const evaluation = await evaluate({ environment, policy, systems, weights, shared, ...keys })
  const { mean, std, min, max } = evaluation.episodeReturn
  if (!json) {
    console.log(`${environment.id}, weights of update ${update}, ${evaluation.episodes} episodes`)
    const format = returnFormat(mean, std, min, max)
    console.log(`return ${format(mean)} ± ${format(std)}, from ${format(min)} to ${format(max)}`)
    console.log(`length ${evaluation.episodeLength.mean.toFixed(1)} ± ${evaluation.episodeLength.std.toFixed(1)} steps`)
  }
  return { run: subject, update, ...evaluation }
}

/** With fewer effective episodes a few weights dominate, and the bootstrap interval is too narrow. */
const FEW = 20

async function judgeOffline(
  run: string,
  { data, ...keys }: Readonly<Record<'gamma' | 'fittedSteps' | 'seed', number>> & { readonly data: string },
  modules: LoadOptions,
  json: boolean,
) {
  if ((await kindOfRun(run)) === 'conversations') {
    throw new InputError('data', `${data}, for ${run} of a language model`, 'a run of an environment')
  }
  const { environment, policy, weights, update } = await loadPolicy(run, modules)
  const table = data.endsWith('.arrow') ? await readArrow(data) : await readEpisodes(data, environment)
  const evaluation = await evaluateOffline({ environment, policy, weights, table, ...keys })
  if (!json) {
    const { episodes, rows, recordedReturn, episodeReturn, effectiveEpisodes, agreement, actionError } = evaluation
    console.log(
      `${environment.id}, weights of update ${update}, by ${group(episodes)} episodes of ${data}, ${group(rows)} rows`,
    )
    console.log(`return of the recorded episodes ${recordedReturn.toFixed(2)}`)
    console.log(
      episodeReturn === null
        ? 'return of this policy unknown: the episodes do not say how likely their actions were'
        : `return of this policy ${episodeReturn.mean.toFixed(2)}, 95 % from ${episodeReturn.low.toFixed(2)} to ${episodeReturn.high.toFixed(2)}; the episodes are worth ${effectiveEpisodes!.toFixed(1)} of its own${effectiveEpisodes! < FEW ? ', so few that this says little' : ''}`,
    )
    const { fittedReturn: fitted } = evaluation
    if (fitted !== null) {
      const [mean, low, high] = [fitted.mean, fitted.low, fitted.high].map((value) => value.toFixed(2))
      console.log(`return of this policy by fitted values ${mean}, 95 % from ${low} to ${high}`)
    }
    const near =
      agreement === null
        ? `mean squared distance of actions ${actionError!.toFixed(4)}`
        : `same action in ${(100 * agreement).toFixed(1)} % of rows`
    console.log(`${near}, −log π ${evaluation.negativeLogLikelihood.toFixed(4)} nats a row`)
  }
  return { run, update, data, ...evaluation }
}

interface ConversationKeys {
  readonly episodes: number
  readonly seed: number
  readonly explore: boolean
  readonly questions: (typeof evaluateKeys)['questions']['default']
}

async function judgeText(run: string, { questions, ...keys }: ConversationKeys, modules: LoadOptions, json: boolean) {
  const { environment, policy, weights, adapter, sftSteps, updates, settings } = await loadTrainedModel(run, modules)
  const { tooLong, cutTurn, rewardReduction } = settings
  if (settings.heldOutFraction === 0 && (questions === 'training' || questions === 'held-out')) {
    throw new InputError('questions', questions, `auto or all: ${run} was trained with heldOutFraction=0`)
  }
  const asked = questions === 'auto' ? (settings.heldOutFraction > 0 ? 'held-out' : 'all') : questions
  const heldOut = asked === 'all' ? {} : heldOutOf(settings, asked === 'training' ? 'training' : 'evaluation')
  const told = { tooLong, cutTurn, rewardReduction, ...heldOut }
  const evaluation = await evaluateText({ environment, policy, weights, adapter, ...told, ...keys })
  const { reward, episodes, components, samples, completionLength, numUnknown, firstError, numQuestions } = evaluation
  if (!json) {
    const trained = `${group(sftSteps)} supervised steps and ${group(updates)} updates`
    console.log(`${environment.id}, weights after ${trained}, ${group(episodes)} conversations`)
    if (numQuestions !== null) console.log(`about ${asked} questions, of which there are ${group(numQuestions)}`)
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
  return { run, sftSteps, updates, questions: asked, ...evaluation }
}
