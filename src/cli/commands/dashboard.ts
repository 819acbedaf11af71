import { type Command, readKeys, readTexts } from '../../base/invocation.ts'
import { isPair } from '../../base/pair.ts'
import { openDashboard } from '../../entries/loggers.ts'
import { boolean, integer, text } from '../../entries/settings.ts'
import { stopped } from '../show/signals.ts'

export const dashboardKeys = {
  port: integer(6060, 'port to listen at; 0: any free port', { min: 0, max: 65_535 }),
  host: text('127.0.0.1', 'address to listen at; 127.0.0.1: reachable from this machine only'),
  readOnly: boolean(
    false,
    'change no file: neither notes nor indexes; always so at an address that other machines reach',
  ),
}

/** colonnade dashboard [runs] [port=6060] */
export const dashboardCommand: Command = async ({ words, json, quiet }) => {
  const [first = '', ...rest] = words
  const isFolder = first !== '' && !isPair(first)
  const folder = isFolder ? first : 'runs'
  const dashboard = await openDashboard({ folder, ...readKeys(dashboardKeys, readTexts(isFolder ? rest : words)) })
  const { url, numRuns } = dashboard
  const say = (line: string) => (json || quiet ? console.error(line) : console.log(line))
  say(`${numRuns === 1 ? '1 run' : `${numRuns} runs`} of ${folder} at ${url}; Ctrl-C stops it`)
  await stopped(() => dashboard.close())
  return { folder, url, numRuns }
}
