import { InputError } from '../../base/errors.ts'
import type { Command } from '../../base/invocation.ts'
import { dataset, environments, type Space, textEnvironments } from '../../index.ts'

/** colonnade environments */
export const environmentsCommand: Command = async ({ words: rest, json }) => {
  if (rest.length > 0) throw new InputError('environments', JSON.stringify(rest[0]), 'no further word')
  const list = environments.map((factory) => {
    const { id, observationSpace, actionSpace, maxEpisodeSteps, returnThreshold } = factory()
    return { id, observation: words(observationSpace), action: words(actionSpace), maxEpisodeSteps, returnThreshold }
  })
  const texts = textEnvironments.map((factory) => {
    const { id, maxTurns, maxTokens, numExamples, example } = factory()
    const { prompt, answer } = example(0)
    return { id, numExamples, maxTurns, maxTokens, prompt, answer }
  })
  if (!json) {
    const widest = Math.max(...[...list, ...texts].map(({ id }) => id.length))
    for (const { id, observation, action, maxEpisodeSteps, returnThreshold } of list) {
      const solved = returnThreshold === null ? '' : `, solved at ${returnThreshold}`
      console.log(`${id.padEnd(widest)} ${observation} → ${action}, ${maxEpisodeSteps ?? 'unlimited'} steps${solved}`)
    }
    for (const { id, prompt, answer, maxTokens } of texts) {
      console.log(`${id.padEnd(widest)} ${JSON.stringify(prompt)} → ${JSON.stringify(answer)}, ${maxTokens} tokens`)
    }
    console.log(`${dataset.id.padEnd(widest)} prompts of your own: environment.path=FILE`)
  }
  return { environments: list, textEnvironments: texts }
}

function words(space: Space): string {
  if (space.kind === 'discrete') return `discrete(${space.n})`
  if (space.kind === 'multi-discrete') return `multi-discrete(${space.sizes})`
  const { parts, shape } = space
  return parts === undefined ? `box(${shape})` : parts.map((part) => `${part.name}: ${words(part.space)}`).join(', ')
}
