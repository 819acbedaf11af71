import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { InputError } from '../../base/errors.ts'
import { writeWhole } from '../../base/files/files.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { group } from '../../base/metrics.ts'
import { encodeGif, gridPicture, isGrid, type Picture, pictureColors } from '../../entries/environments.ts'
import { boolean, integer, optionalNumber } from '../../entries/settings.ts'
import { kindOfRun, loadPolicy, recordEpisodes } from '../../index.ts'
import { replayPage } from '../show/replay-page.ts'
import { askForModule, trustKeys } from '../words/trust.ts'

export const replayKeys = {
  seed: integer(30_000, 'seed of the episode', { min: 0 }),
  from: optionalNumber(null, 'number of the checkpoint; null: the newest', { min: 0 }),
  explore: boolean(false, 'sample actions instead of taking the most probable'),
  delayMs: integer(100, 'milliseconds to show each step', { min: 20, max: 10_000 }),
  ...trustKeys,
}

const RETURN_DIGITS = 5

/** colonnade replay <run> [out=FILE.gif|FILE.html]: shows an episode as pictures, also in a large enough terminal. */
export const replayCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'a run folder')
  const { out: told, ...rest } = texts
  const { trust, from, delayMs, ...keys } = readKeys(replayKeys, rest)
  // The dashboard shows a picture of an earlier checkpoint at its update.
  const out = told ?? join(subject, from === null ? 'replay.gif' : `replay-${from}.gif`)
  if (!/\.(gif|html)$/.test(out)) throw new InputError('out', out, 'a name that ends in .gif or .html')
  const modules = { allowModule: askForModule(trust), from: from ?? undefined }
  return showEpisode(subject, out, { ...keys, delayMs, isShown: !json && !quiet, isTold: !json }, modules)
}

/** Plays an episode of a run in the terminal, if it is one with room, and writes it as a GIF or a page. */
export async function showEpisode(
  run: string,
  out: string,
  options: {
    readonly seed: number
    readonly explore: boolean
    readonly delayMs: number
    readonly isShown: boolean
    readonly isTold: boolean
  },
  modules: Parameters<typeof loadPolicy>[1],
) {
  const { delayMs, isShown, isTold, ...keys } = options
  const episode = await pictureEpisode(run, keys, modules)
  const { pictures, episodeReturn, update, environment, actions } = episode
  const hasRoom = 2 * pictures[0]!.columns <= process.stdout.columns && pictures[0]!.rows < process.stdout.rows
  if (process.stdout.isTTY && hasRoom && isShown) await play(pictures, delayMs)
  const shownReturn = Number(episodeReturn.toPrecision(RETURN_DIGITS))
  const title = `${environment}, update ${update}, return ${shownReturn}`
  await writeWhole(out, [
    out.endsWith('.gif') ? encodeGif(pictures, { delayMs }) : replayPage({ ...episode, title }, delayMs),
  ])
  if (isTold) console.log(`${group(actions.length)} steps of update ${update}, return ${shownReturn} → ${out}`)
  return { run, out, update, steps: actions.length, episodeReturn }
}

/**
 * An episode of the trained policy as pictures: as the environment draws them, with its end; or the observations before
 * each step, in a game those of its first lane.
 * @throws InputError for a run of a language model, and for an environment that draws nothing and whose observations
 * are not grids.
 */
export async function pictureEpisode(
  run: string,
  keys: { readonly seed: number; readonly explore: boolean },
  options: Parameters<typeof loadPolicy>[1],
) {
  if ((await kindOfRun(run)) === 'conversations') {
    throw new InputError('run', `${run}, of a language model`, 'a run of an environment')
  }
  const { environment, policy, systems, weights, shared, update } = await loadPolicy(run, options)
  const { observationSpace, numPlayers = 1, draw, id } = environment
  const isDrawn = draw !== undefined
  if (!isDrawn && !isGrid(observationSpace)) {
    const expected = 'draw(state, n), which returns a picture'
    throw new InputError(`environment ${id}`, 'no draw, and observations that are not grids', expected)
  }
  const pictures: Picture[] = []
  const table = await recordEpisodes({
    ...{ environment, policy, systems, weights, shared, episodes: numPlayers, ...keys },
    ...(isDrawn && {
      watch({ environmentLanes, episode, t }) {
        // An ended episode is drawn once more, to show its end.
        if (episode.episode[0] === 0 && pictures.length === t) pictures.push(draw(environmentLanes.state, 0))
      },
    }),
  })
  const columnOf = (name: string) => table.fields.find((field) => field.name === name)!
  const { column: lanes } = columnOf('lane')
  const { column: observation, width } = columnOf('observation')
  const { column: action, width: actionWidth } = columnOf('action')
  const { column: reward } = columnOf('reward')
  const actions: string[] = []
  const rewards: number[] = []
  for (let row = 0; row < table.numRows && lanes[row] === lanes[0]; row++) {
    const seen = observation.subarray(row * width, (row + 1) * width)
    if (!isDrawn) pictures.push(gridPicture(observationSpace, seen as Float32Array | Uint8Array))
    const chosen = Array.from(action.subarray(row * actionWidth, (row + 1) * actionWidth) as Float32Array)
    actions.push(chosen.map((value) => String(Number(value.toPrecision(4)))).join(', '))
    rewards.push(Number(reward[row]))
  }
  const episodeReturn = rewards.reduce((sum, each) => sum + each, 0)
  return { environment: id, pictures: pictures.slice(0, actions.length + 1), actions, rewards, episodeReturn, update }
}

async function play(pictures: readonly Picture[], delayMs: number): Promise<void> {
  for (const text of terminalTexts(pictures)) {
    process.stdout.write(text)
    await wait(delayMs)
  }
}

/** Draws pictures over one another in a terminal. A cell is two spaces, which are about square. */
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
