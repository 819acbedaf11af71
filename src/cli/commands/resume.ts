import { InputError, printable } from '../../base/errors.ts'
import { disk, isThere, readWhole } from '../../base/files/files.ts'
import { unzipFolder } from '../../base/files/zip.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { integer, parseSetting } from '../../base/settings.ts'
import { joinListeners } from '../../entries/loggers.ts'
import { resumeRun } from '../../index.ts'
import { follow, tellPlan } from '../show/follow.ts'
import { askForModule, trustKeys } from '../words/trust.ts'
import { findCallbacks, trainKeys } from './train.ts'

export const resumeKeys = {
  from: integer(0, 'number of the checkpoint to continue from, by default the newest; younger ones are deleted', {
    min: 0,
  }),
  callbacks: trainKeys.callbacks,
}

/** A run's folder. A zip file, as a web page saves it, is unpacked into a folder beside it. */
async function folderOf(name: string): Promise<string> {
  if (!name.endsWith('.zip') || ((await isThere(name)) && (await disk.isFolder(name)))) return name
  const folder = name.slice(0, -'.zip'.length)
  if (await isThere(folder)) {
    throw new InputError(
      name,
      `${folder}, which exists already`,
      `a zip file that was not unpacked yet: \`colonnade resume ${folder}\` continues the run`,
    )
  }
  await unzipFolder(await readWhole(name, 'the zip of a run'), folder)
  return folder
}

/** colonnade resume <run> [trust=MODULE] [from=N] [totalSteps=…] [rl.updates=…] */
export const resumeCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'a run folder, or the zip of one')
  const { from: number, trust: modules, callbacks = '', ...settings } = texts
  const { trust } = readKeys(trustKeys, modules === undefined ? {} : { trust: modules })
  const from = number === undefined ? undefined : (parseSetting('from', resumeKeys.from, number) as number)
  const options = { from, settings, allowModule: askForModule(trust) }
  const own = await findCallbacks(parseSetting('callbacks', resumeKeys.callbacks, callbacks) as string[])
  const folder = await folderOf(subject)
  const run = await resumeRun(folder, options, tellPlan(quiet)).catch(async (error) => {
    if (folder !== subject) await disk.remove(folder) // So that the same command can be corrected.
    throw error
  })
  if (run.ended !== null && !quiet) {
    const further = run.definition.kind === 'episodes' ? 'totalSteps=…' : 'rl.updates=…'
    process.stderr.write(
      `${printable(folder)} is ${run.ended}: there is nothing to do; to continue, give it more (${further})\n`,
    )
  }
  return follow(run, { json, quiet }, joinListeners(own.map((listen) => listen(run))))
}
