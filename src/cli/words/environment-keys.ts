/** An environment from a command's words, as in runs. */
import { InputError, show } from '../../base/errors.ts'
import { readKeys, splitWords } from '../../base/invocation.ts'
import type { Settings, SettingValues } from '../../base/settings.ts'
import { configureRun, type EnvironmentId } from '../../index.ts'

/** Keys of a run that name a part; the part's own keys begin with its id. */
type Part = 'wrappers' | 'policy'

/** Reads a command's own keys and the environment's, with those of `parts`. @throws InputError for any other. */
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
  if (run.kind !== 'episodes')
    throw new InputError('environment', subject, 'an environment with lanes that step, not a text environment')
  const { environment, policy } = run
  const ids = {
    wrappers: (environment.wrappers ?? []).map(({ id }) => id),
    policy: [policy.id],
  }
  const read = ['environment', ...parts.flatMap((part) => ids[part])]
  for (const [key, text] of Object.entries(ofRun)) {
    if (!key.includes('.') || read.some((id) => key.startsWith(`${id}.`))) continue
    throw new InputError(key, show(text), `a key of ${read.join(', ')}: no other has an effect`)
  }
  return { values, environment, policy }
}

type EpisodeRun = Extract<Awaited<ReturnType<typeof configureRun>>, { readonly kind: 'episodes' }>
