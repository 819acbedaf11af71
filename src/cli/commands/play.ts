import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { InputError } from '../../base/errors.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { integer, number } from '../../entries/settings.ts'
import { configureRun, startRun } from '../../index.ts'
import { inTemporaryFolder } from '../show/signals.ts'
import { replayKeys, showEpisode } from './replay.ts'

export const playKeys = {
  seed: replayKeys.seed,
  explore: replayKeys.explore,
  delayMs: integer(50, replayKeys.delayMs.description, { min: 20, max: 10_000 }),
  seconds: number(20, 'seconds to train for, where no policy of the environment is packed', { above: 0, max: 86_400 }),
}

/** colonnade play <environment> [out=FILE.gif|FILE.html]: an episode of a packed policy or, without one, of a policy trained for some seconds. */
export const playCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'an environment, like CartPole-v1')
  const { out = `${subject.replaceAll('/', '-')}.html`, ...rest } = texts
  if (!/\.(gif|html)$/.test(out)) throw new InputError('out', out, 'a name that ends in .gif or .html')
  const { seconds, ...keys } = readKeys(playKeys, rest)
  const show = (run: string) => showEpisode(run, out, { ...keys, isShown: !json && !quiet, isTold: !json }, {})
  const packed = packedPolicy(subject)
  if (packed !== null) return { ...(await show(packed)), environment: subject, trained: 0 }
  const definition = await configureRun(subject)
  if (definition.kind !== 'episodes') {
    throw new InputError('environment', `${subject}, of a language model`, 'an environment whose lanes step')
  }
  if (!json && !quiet) console.error(`no policy of ${subject} is packed: training for ${seconds} s`)
  return inTemporaryFolder('play', async (folder) => {
    const run = await startRun(definition, join(folder, 'run'))
    const summary = await run.train({ signal: AbortSignal.timeout(1000 * seconds) })
    return { ...(await show(run.folder)), environment: subject, run: null, trained: summary.seconds }
  })
}

/** The folder of the policy that comes with the package; null where none does. */
function packedPolicy(environment: string): string | null {
  // From dist/src/cli/commands, or from src/cli/commands in the repository.
  for (const root of ['../../../../zoo/', '../../../zoo/']) {
    const folder = join(fileURLToPath(new URL(root, import.meta.url)), environment.replaceAll('/', '-'))
    if (existsSync(join(folder, 'config.json'))) return folder
  }
  return null
}
