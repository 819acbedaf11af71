/** An environment as the words of a command name it, like those of a run. */
import { InputError, show } from '../../base/errors.ts'
import { readKeys, splitWords } from '../../base/invocation.ts'
import type { Settings, SettingValues } from '../../base/settings.ts'
import { configureRun, type EnvironmentId } from '../../index.ts'

/** Keys of a run that say what something stands in it; the keys of that begin with its id. */
type Part = 'wrappers' | 'policy'

/**
 * What a command about an environment is told: its own keys, those of the environment, and as `parts` says of its wrappers and of its policy.
 * @throws InputError for an environment of text, and for every other key.
 */
export async function readEnvironment<S extends Settings>(
  words: readonly string[],
  declared: S,
  parts: readonly Part[],
): Promise<{ values: SettingValues<S> } & Pick<EpisodeRun, 'environment' | 'policy'>> {
  const { subject, texts } = splitWords(words, 'an environment')
  const isOfRun = (key: string) => key.includes('.') || (parts as readonly string[]).includes(key)
  const those = (ofRun: boolean) => Object.fromEntries(Object.entries(texts).filter(([key]) => isOfRun(key) === ofRun))
  const values = readKeys(declared, those(false))
  const ofRun = those(true)
  const run = await configureRun(subject as EnvironmentId, ofRun)
  if (run.kind !== 'episodes') throw new InputError('environment', subject, 'one whose lanes step, not one of text')
  const { environment, policy } = run
  const ids = {
    wrappers: (environment.wrappers ?? []).map(({ id }) => id),
    policy: [policy.id],
  }
  const read = ['environment', ...parts.flatMap((part) => ids[part])]
  for (const [key, text] of Object.entries(ofRun)) {
    if (!key.includes('.') || read.some((id) => key.startsWith(`${id}.`))) continue
    throw new InputError(key, show(text), `a key of ${read.join(', ')}: nothing else is asked here`)
  }
  return { values, environment, policy }
}

type EpisodeRun = Extract<Awaited<ReturnType<typeof configureRun>>, { readonly kind: 'episodes' }>
