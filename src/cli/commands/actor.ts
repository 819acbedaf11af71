import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { runFleetActor, runFleetHelper } from '../../entries/orchestration.ts'
import { boolean, choice, strings } from '../../entries/settings.ts'

export const actorKeys = {
  modules: strings([], 'paths of modules that it may import; it imports no others'),
  role: choice(
    'collect',
    ['collect', 'learn'],
    'collect rollouts, or compute shares of gradients (learners=2 or more)',
  ),
  stay: boolean(false, 'wait for the next learner of this name when a run ends, such as the next seed'),
}

/** colonnade actor nats://host:4222/name */
export const actorCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'the address of a fleet, like nats://host:4222/name')
  const { modules, role, stay } = readKeys(actorKeys, texts)
  const stop = new AbortController()
  const onSignal = () => {
    if (stop.signal.aborted) process.exit(130)
    console.error(
      `the actor ends after this ${role === 'learn' ? 'gradient' : 'rollout'}; interrupt again to end at once`,
    )
    stop.abort()
  }
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, onSignal)
  const tell = (message: string) => {
    if (!quiet) console.error(`${subject}: ${message}`)
  }
  const options = { modules, stay, signal: stop.signal, tell }
  const summary = await (role === 'learn' ? runFleetHelper(subject, options) : runFleetActor(subject, options))
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, onSignal)
  const why = { run: 'the run has ended', drain: 'it was drained', signal: 'it was stopped' }[summary.end]
  const done =
    'shares' in summary ? `${summary.shares} shares` : `${summary.rollouts} parts of rollouts, ${summary.steps} steps`
  if (!json) console.log(`${done}; ${why}`)
  return summary
}
