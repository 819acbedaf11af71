import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { encodeGif, gridPicture, type Picture, pictureColors } from '../entries/environments.ts'
import { boolean, integer, optionalNumber } from '../entries/settings.ts'
import { InputError } from '../errors.ts'
import { kindOfRun, loadPolicy, recordEpisodes } from '../index.ts'
import { group } from '../metrics.ts'
import { type Command, readKeys, splitWords } from './invocation.ts'
import { askForModule, trustKeys } from './trust.ts'

export const replayKeys = {
  seed: integer(30_000, 'keys the episode', { min: 0 }),
  from: optionalNumber(null, 'the number of the checkpoint; null: the newest', { min: 0 }),
  explore: boolean(false, 'sample actions instead of taking the most probable'),
  delayMs: integer(100, 'milliseconds that each step is shown', { min: 20, max: 10_000 }),
  ...trustKeys,
}

/** colonnade replay <run> [out=FILE.gif]: an episode of the trained policy as pictures, also in the terminal, if there is one. */
export const replayCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'a run folder')
  const { out = join(subject, 'replay.gif'), ...rest } = texts
  if (!out.endsWith('.gif')) throw new InputError('out', out, 'a name that ends in .gif')
  const { trust, from, delayMs, ...keys } = readKeys(replayKeys, rest)
  const { pictures, episodeReturn, update } = await pictureEpisode(subject, keys, {
    allowModule: askForModule(trust),
    from: from ?? undefined,
  })
  if (process.stdout.isTTY && !json && !quiet) await play(pictures, delayMs)
  await writeFile(out, encodeGif(pictures, { delayMs }))
  if (!json) console.log(`${group(pictures.length)} steps of update ${update}, return ${episodeReturn} → ${out}`)
  return { run: subject, out, update, steps: pictures.length, episodeReturn }
}

/**
 * An episode of the trained policy as pictures; a game is played whole, and shown as its first lane sees it.
 * @throws InputError for a run of a language model, and for observations that are no grid.
 */
export async function pictureEpisode(
  run: string,
  keys: { readonly seed: number; readonly explore: boolean },
  options: Parameters<typeof loadPolicy>[1],
): Promise<{ pictures: Picture[]; episodeReturn: number; update: number }> {
  if ((await kindOfRun(run)) === 'conversations') {
    throw new InputError('run', `${run}, of a language model`, 'one whose lanes step')
  }
  const { environment, policy, systems, weights, shared, update } = await loadPolicy(run, options)
  const { observationSpace, numAgents = 1 } = environment
  const table = await recordEpisodes({ environment, policy, systems, weights, shared, episodes: numAgents, ...keys })
  const columnOf = (name: string) => table.fields.find((field) => field.name === name)!
  const { column: lanes } = columnOf('lane')
  const { column: observation, width } = columnOf('observation')
  const { column: rewards } = columnOf('reward')
  const pictures: Picture[] = []
  let episodeReturn = 0
  for (let row = 0; row < table.numRows && lanes[row] === lanes[0]; row++) {
    const seen = observation.subarray(row * width, (row + 1) * width)
    pictures.push(gridPicture(observationSpace, seen as Float32Array))
    episodeReturn += rewards[row]!
  }
  return { pictures, episodeReturn, update }
}

async function play(pictures: readonly Picture[], delayMs: number): Promise<void> {
  for (const text of terminalTexts(pictures)) {
    process.stdout.write(text)
    await wait(delayMs)
  }
}

/** Pictures as a terminal draws them, one over the other. A field is two spaces: together about as wide as they are high. */
export function terminalTexts(pictures: readonly Picture[]): string[] {
  return pictures.map(({ rows, columns, fields }, i) => {
    const lines = Array.from({ length: rows }, (_, row) =>
      Array.from(
        fields.subarray(row * columns, (row + 1) * columns),
        (field) => `\x1b[48;2;${pictureColors[field]!.join(';')}m  `,
      ).join(''),
    )
    const back = i === 0 ? '' : `\x1b[${rows}A`
    return back + lines.map((line) => `${line}\x1b[0m\n`).join('')
  })
}
