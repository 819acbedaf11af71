import { InputError } from '../../base/errors.ts'
import { type Invocation, readKeys, splitWords } from '../../base/invocation.ts'
import { shellWord } from '../../base/shell.ts'
import { resolveSweepKeys } from '../../entries/data.ts'
import { resolveRunKeys, type Settings } from '../../entries/settings.ts'
import { sweepKeys } from '../commands/sweep.ts'
import { trainKeys } from '../commands/train.ts'
import { type ConfigValue, nestKeys, writeConfigText } from './config-file.ts'

/** Prints the settings of `train` or `sweep` as YAML for `config=`, or JSON. @throws InputError for another command. */
export async function printConfig(command: string, { words, json }: Invocation): Promise<void> {
  const own: Settings | null = command === 'train' ? trainKeys : command === 'sweep' ? sweepKeys : null
  if (own === null) throw new InputError('--print-config', command, 'train or sweep')
  const { subject, texts } = splitWords(words, 'an environment, like CartPole-v1')
  const { out, ...others } = texts
  const part = (isOwn: boolean) =>
    Object.fromEntries(Object.entries(others).filter(([key]) => Object.hasOwn(own, key) === isOwn))
  const told = readKeys(own, part(true))
  const resolved = await (command === 'train' ? resolveRunKeys : resolveSweepKeys)(subject, part(false))
  if (told.seeds !== '') resolved.delete('seed') // The runs have the seeds.
  const values = new Map<string, ConfigValue>([
    ...(out === undefined ? [] : [['out', out] as const]),
    ...Object.entries(told),
    ...resolved,
  ])
  const nested = nestKeys(values)
  if (json) console.log(JSON.stringify(nested))
  else
    console.log(`# colonnade ${command} ${shellWord(subject)} config=FILE\n${await writeConfigText(nested)}`.trimEnd())
}
