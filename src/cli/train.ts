import { dirname } from 'node:path'
import { type Dashboard, openDashboard } from '../entries/loggers.ts'
import { boolean } from '../entries/settings.ts'
import { configureRun, startRun } from '../index.ts'
import { follow, tellPlan, tellWarnings } from './follow.ts'
import { type Command, readKeys, splitWords } from './invocation.ts'

/** What is of the command, and no setting of the run. */
export const trainKeys = {
  dashboard: boolean(false, 'show the run, and those beside it, on a page while it trains'),
}

/** colonnade train <environment> [out=DIR] [dashboard=true] [key=value …] */
export const trainCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'an environment, like CartPole-v1')
  const { out, dashboard: asked, ...given } = texts
  const { dashboard } = readKeys(trainKeys, asked === undefined ? {} : { dashboard: asked })
  const run = await startRun(await configureRun(subject, given), out, tellPlan(quiet))
  tellWarnings(run.warnings)
  const page = dashboard ? await openPage(dirname(run.folder)) : null
  try {
    return await follow(run, { json, quiet })
  } finally {
    await page?.close()
  }
}

/** A page of the runs in a folder; where it cannot be opened the training goes on without. */
async function openPage(folder: string): Promise<Dashboard | null> {
  try {
    const page = await openDashboard({ folder, ownThread: true })
    process.stderr.write(`${page.url} shows it while it trains; later: colonnade dashboard ${folder}\n`)
    return page
  } catch (error) {
    tellWarnings([`dashboard: ${(error as Error).message}`])
    return null
  }
}
