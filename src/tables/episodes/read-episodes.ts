/**
 * Reads whole episodes from other sources as a table like that of `recordEpisodes`: Minari datasets (a folder) and trajectories in JSON
 * Lines, an episode per line. Their log-probabilities are unknown, so only imitation can learn from them.
 */
import { checkCount, checkGiven, InputError, show, unknownWord } from '../../base/errors.ts'
import { disk, readJsonObject } from '../../base/files/files.ts'
import { extname, join } from '../../base/files/path.ts'
import { type Space, spaceWidth } from '../../base/space.ts'
import { readJsonLines } from '../json-lines.ts'
import { arrowPlain, readArrow } from '../read-arrow.ts'
import type { Table } from '../table.ts'
import { LAYOUT_OF_EPISODES, UNKNOWN_LOGPROB } from './episode-rows.ts'

/** Observation and action space, as of an environment. */
export interface EpisodeSpaces {
  readonly observationSpace: Space
  readonly actionSpace: Space
}

/** An episode in a file: lists of T steps, and T + 1 observations; a terminated episode may lack the last. */
interface RecordedEpisode {
  readonly observations: readonly unknown[]
  readonly actions: readonly unknown[]
  readonly rewards: readonly unknown[]
  readonly terminated: boolean
}

/** Whether `readEpisodes` reads this path: a folder, or a name that ends in .jsonl or .ndjson. */
export async function isOfOthers(path: string): Promise<boolean> {
  const isFolder = (): Promise<boolean> =>
    disk.isFolder(path).catch(
      () => false, // Not a folder; reading it as a file reports a missing path.
    )
  return ['.jsonl', '.ndjson'].includes(extname(path)) || isFolder()
}

/**
 * Reads a Minari dataset (format `arrow`) or trajectories in JSON Lines. A line is an episode: `observations` (T + 1, or T if it
 * terminated), `actions` and `rewards` (T each), and `terminated`; otherwise it was truncated.
 * @throws InputError for a file that cannot be read, and for an episode that does not fit the spaces, with its line or folder.
 * @example await readEpisodes('cartpole-expert-v0', cartPole())
 */
export async function readEpisodes(path: string, spaces: EpisodeSpaces): Promise<Table> {
  checkGiven('path of readEpisodes', path, 'a text')
  checkGiven('spaces of readEpisodes', spaces, ['observationSpace', 'actionSpace'])
  const table = new EpisodeColumns(spaces)
  const isLines = ['.jsonl', '.ndjson'].includes(extname(path))
  const episodes = isLines ? episodesOfLines(path) : episodesOfMinari(path, spaces)
  for await (const { place, episode } of episodes) table.append(place, episode)
  return table.finish(path)
}

const COLUMNS = ['observations', 'actions', 'rewards', 'terminated', 'truncated'] as const

async function* episodesOfLines(path: string) {
  for await (const { place, value } of readJsonLines(path)) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      throw new InputError(place, show(value), 'an episode, as an object')
    }
    const line = value as Readonly<Record<string, unknown>>
    const unknown = Object.keys(line).find((name) => !(COLUMNS as readonly string[]).includes(name))
    if (unknown !== undefined) throw unknownWord(`${place}, column`, unknown, COLUMNS)
    for (const name of COLUMNS.slice(0, 3)) {
      if (!Array.isArray(line[name])) throw new InputError(`${place}, ${name}`, show(line[name]), 'a list')
    }
    if (typeof line.terminated !== 'boolean') {
      throw new InputError(`${place}, terminated`, show(line.terminated), 'true or false: whether the task ended')
    }
    const { truncated = !line.terminated } = line
    if (typeof truncated !== 'boolean') {
      throw new InputError(`${place}, truncated`, show(truncated), 'true or false: whether it was cut off')
    }
    if (!line.terminated && !truncated) {
      const expected = 'one of them true, for a whole episode'
      throw new InputError(`${place}, terminated and truncated`, 'false and false', expected)
    }
    yield { place, episode: line as unknown as RecordedEpisode }
  }
}

async function* episodesOfMinari(path: string, { actionSpace }: EpisodeSpaces) {
  const place = join(path, 'data', 'metadata.json')
  const metadata = await readJsonObject(place, 'the metadata of a dataset of Minari')
  const { total_episodes: count, data_format: format, action_space: space } = metadata
  if (format !== 'arrow') {
    throw new InputError(`data_format of ${place}`, show(format), '"arrow": minari writes it with data_format="arrow"')
  }
  checkCount(`total_episodes of ${place}`, count)
  const [, start = '0'] = /"start": *(-?\d+)/.exec(String(space)) ?? []
  if (actionSpace.kind === 'discrete' && start !== '0') {
    throw new InputError(`action_space of ${place}`, `a first action of ${start}`, '0')
  }
  const plain = await arrowPlain()
  for (let id = 0; id < (count as number); id++) {
    const file = join(path, 'data', String(id), 'part-0.arrow')
    const table = await readArrow(file)
    const column = (name: string): unknown[] => {
      const found = table.getChild(name)
      if (found === null) throw new InputError(file, `no column ${name}`, 'an episode of Minari')
      return Array.from(found, plain)
    }
    const ends = column('terminations')
    const steps = table.numRows - 1 // The last row only has the last observation.
    const early = ends.findIndex((ended, t) => ended === true && t < steps - 1)
    if (early !== -1) throw new InputError(file, `an end at step ${early} of ${steps}`, 'an end only at the last step')
    const [observations, actions, rewards] = ['observations', 'actions', 'rewards'].map(column) as [
      ...[unknown[], unknown[], unknown[]],
    ]
    const episode = { observations, actions: actions.slice(0, -1), rewards: rewards.slice(0, -1) }
    yield { place: file, episode: { ...episode, terminated: ends[steps - 1] === true } }
  }
}

class EpisodeColumns {
  readonly #spaces: EpisodeSpaces
  readonly #observation: number[] = []
  readonly #action: number[] = []
  readonly #reward: number[] = []
  readonly #step: number[] = []
  readonly #final: number[] = []
  /** Rows at which episodes end, with whether they terminated; rows with a final observation. */
  readonly #ends: (readonly [row: number, terminated: boolean])[] = []
  readonly #finalRows: number[] = []

  constructor(spaces: EpisodeSpaces) {
    this.#spaces = spaces
  }

  append(place: string, { observations, actions, rewards, terminated }: RecordedEpisode): void {
    const { observationSpace, actionSpace } = this.#spaces
    const steps = rewards.length
    if (steps === 0) throw new InputError(`${place}, rewards`, 'none', 'at least one')
    if (actions.length !== steps) {
      throw new InputError(`${place}, actions`, String(actions.length), `${steps}, one a reward`)
    }
    const hasFinal = observations.length === steps + 1
    if (!hasFinal && !(terminated && observations.length === steps)) {
      const expected = terminated ? `${steps} or ${steps + 1}` : `${steps + 1}: one more than rewards`
      throw new InputError(`${place}, observations`, String(observations.length), expected)
    }
    const seen = numbersOf(`${place}, observations`, observations, spaceWidth(observationSpace))
    const width = spaceWidth(observationSpace)
    append(this.#observation, hasFinal ? seen.slice(0, -width) : seen)
    append(this.#action, numbersOf(`${place}, actions`, actions, spaceWidth(actionSpace), actionSpace.kind !== 'box'))
    append(this.#reward, numbersOf(`${place}, rewards`, rewards, 1))
    for (let step = 0; step < steps; step++) this.#step.push(step)
    const row = this.#reward.length - 1
    this.#ends.push([row, terminated])
    if (!hasFinal) return
    append(this.#final, seen.slice(-width))
    this.#finalRows.push(row)
  }

  finish(path: string): Table {
    const numRows = this.#reward.length
    if (numRows === 0) throw new InputError(path, 'no episode', 'at least one')
    const { observationSpace, actionSpace } = this.#spaces
    const [terminated, truncated] = [new Uint8Array(numRows), new Uint8Array(numRows)]
    const episode = new Uint32Array(numRows)
    const episodeReturn = new Float32Array(numRows)
    let from = 0
    for (const [number, [row, isOver]] of this.#ends.entries()) {
      if (isOver) terminated[row] = 1
      else truncated[row] = 1
      episode.fill(number, from, row + 1)
      for (let sum = 0; from <= row; from++) {
        sum += this.#reward[from]!
        episodeReturn[from] = sum
      }
    }
    const Actions = actionSpace.kind === 'box' ? Float32Array : Int32Array
    const width = spaceWidth(observationSpace)
    return {
      numRows,
      fields: [
        { name: 'step', column: Int32Array.from(this.#step), width: 1 },
        { name: 'lane', column: episode.slice(), width: 1 },
        { name: 'episode', column: episode, width: 1 },
        { name: 'observation', column: Float32Array.from(this.#observation), width },
        {
          name: 'finalObservation',
          column: Float32Array.from(this.#final),
          width,
          rows: Uint32Array.from(this.#finalRows),
        },
        { name: 'action', column: Actions.from(this.#action), width: spaceWidth(actionSpace) },
        { name: 'reward', column: Float32Array.from(this.#reward), width: 1 },
        { name: 'terminated', column: terminated, width: 1 },
        { name: 'truncated', column: truncated, width: 1 },
        { name: 'valid', column: new Uint8Array(numRows).fill(1), width: 1 },
        { name: 'logprob', column: new Float32Array(numRows), width: 1 },
        { name: 'episodeReturn', column: episodeReturn, width: 1 },
      ],
      metadata: { ...LAYOUT_OF_EPISODES, ...UNKNOWN_LOGPROB },
    }
  }
}

/**
 * Flattens values to `width` numbers each, from lists of any depth.
 * @throws InputError for another number of them, and for a choice that is not a whole number.
 */
function numbersOf(subject: string, values: readonly unknown[], width: number, areChoices = false): number[] {
  const all: number[] = []
  for (const [t, value] of values.entries()) {
    const numbers: unknown[] = Array.isArray(value) ? value.flat(Number.POSITIVE_INFINITY) : [value]
    const isRight = (number: unknown) => typeof number === 'number' || typeof number === 'bigint'
    if (numbers.length !== width || !numbers.every(isRight)) {
      throw new InputError(`${subject}[${t}]`, show(value), width === 1 ? 'a number' : `${width} numbers`)
    }
    for (const number of numbers as (number | bigint)[]) {
      const isHeld = !areChoices || (Number.isInteger(Number(number)) && Math.abs(Number(number)) < 2 ** 31)
      if (!isHeld) throw new InputError(`${subject}[${t}]`, show(value), 'a choice: a whole number')
      all.push(Number(number))
    }
  }
  return all
}

function append(to: number[], values: readonly number[]): void {
  for (const value of values) to.push(value)
}
