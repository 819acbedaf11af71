/** Terminal colors. */
import type { WriteStream } from 'node:tty'
import { environmentVariable } from '../../base/environment-variables.ts'

const CODES = { bold: [1, 22], dim: [2, 22], green: [32, 39], cyan: [36, 39] } as const
export type Style = keyof typeof CODES

/** Whether a stream has colors: by `FORCE_COLOR`, otherwise not with `NO_COLOR`, otherwise as the terminal supports. */
export function hasColors(stream: WriteStream): boolean {
  const forced = environmentVariable('FORCE_COLOR')
  if (forced) return forced !== '0' && forced !== 'false'
  return !environmentVariable('NO_COLOR') && stream.isTTY === true && stream.hasColors()
}

/** A function that styles text for a stream. */
export function styleFor(stream: WriteStream): (style: Style, text: string) => string {
  if (!hasColors(stream)) return (_, text) => text
  return (style, text) => (text === '' ? '' : `\u001b[${CODES[style][0]}m${text}\u001b[${CODES[style][1]}m`)
}
