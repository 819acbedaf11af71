import { InputError } from '../../base/errors.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { runFleetActor, runFleetHelper } from '../../entries/orchestration.ts'
import { boolean, choice, strings } from '../../entries/settings.ts'
import { onEndSignal } from '../show/signals.ts'

export const actorKeys = {
  modules: strings([], 'paths of modules that it may import; it imports no others'),
  role: choice(
    'collect',
    ['collect', 'learn'],
    'collect rollouts, or compute shares of gradients (learners=2 or more)',
  ),
  stay: boolean(false, 'when a run ends, wait for the next learner at this address, until order=drain'),
}

/** colonnade actor nats://host:4222/name */
export const actorCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'the address of a fleet, like nats://host:4222/name')
  const { modules, role, stay } = readKeys(actorKeys, texts)
  const stop = new AbortController()
  const forget = onEndSignal(() => {
    const what = role === 'learn' ? 'gradient' : 'rollout'
    console.error(`the actor ends after this ${what}; interrupt again to end at once`)
    stop.abort()
  })
  const tell = (message: string) => {
    if (!quiet) console.error(`${subject}: ${message}`)
  }
  const options = { modules, stay, signal: stop.signal, tell }
  const begin = role === 'learn' ? runFleetHelper : runFleetActor
  const summary = await begin(subject, options)
    .finally(forget)
    .catch((error: Error) => {
      if (!stop.signal.aborted || !(error instanceof InputError)) throw error
      console.error(`colonnade: ${error.message}`) // It was asked to end while the broker is away.
      return null
    })
  if (summary === null) return { end: 'signal' }
  const why = { run: 'the run has ended', drain: 'it was drained', signal: 'it was stopped' }[summary.end]
  const done =
    'shares' in summary ? `${summary.shares} shares` : `${summary.rollouts} parts of rollouts, ${summary.steps} steps`
  if (!json) console.log(`${done}; ${why}`)
  return summary
}
