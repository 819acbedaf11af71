/**
 * A buffer of episodes of text that a loop of one's own fills turn by turn, over the columns of trajectories. A step is a
 * token; an episode is in the buffer's samples when it has ended, and until then it waits, across calls of `sample` too.
 * Episodes that are added turn by turn and begin with the same ids are one group: there is one a prompt.
 */
import { checkCount, checkOptions, InputError, show, unknownWord } from '../../base/errors.ts'
import { type RewardReduction, reduceTurnRewards, rewardReductions, type StopReason } from '../../environments/text.ts'
import { Trajectories, type TrajectoryColumns } from '../trajectories/trajectories.ts'
import { checkTrajectory, type Trajectory } from '../trajectories/trajectory.ts'

/** One turn: what the model saw, what it said, and what came of it. */
export interface EpisodeTurn {
  /** All ids that the model saw, from the episode's beginning: the earlier ones, and the new ones. */
  readonly observation: readonly number[]
  /** Ids that the model said. */
  readonly action: readonly number[]
  /** Null where it cannot be told. What the episode's is of them the buffer's `rewardReduction` says. */
  readonly reward: number | null
  /** The episode ended; it was cut off. */
  readonly terminated: boolean
  readonly truncated: boolean
  /** Of each id that the model said, and the number of the weights that chose them: both, in all turns of an episode or none. */
  readonly logprob?: readonly number[]
  readonly version?: number
}

const TURN_KEYS = ['observation', 'action', 'reward', 'terminated', 'truncated', 'logprob', 'version'] as const
const REQUIRED_KEYS = TURN_KEYS.slice(0, 5)

/** Steps side by side, those of one sequence one after another. */
export interface StepColumns {
  readonly token: Int32Array
  readonly lossMask: Uint8Array
  readonly logprob: Float32Array
  readonly version: Int32Array
  readonly turn: Int32Array
}

/** Sequences of one length: step t of sequence b is element b × seqLen + t of every column. */
export interface StepSequences extends StepColumns {
  readonly batchSize: number
  readonly seqLen: number
  /** 1 for a step, 0 for padding: the other columns have no meaning there. */
  readonly validMask: Uint8Array
}

/** An episode that has not ended. */
interface OpenEpisode {
  /** The ids that it begins with, as text. */
  readonly prompt: string
  token: number[]
  lossMask: number[]
  logprob: number[]
  version: number[]
  turn: number[]
  turnReward: number[]
  hasLogprob: boolean
}

/** The last `maxEpisodes` episodes; older ones are dropped. */
export class EpisodeBuffer {
  readonly maxEpisodes: number
  /** What the reward of an episode that is added turn by turn is of its turns'. */
  readonly rewardReduction: RewardReduction
  #kept = new Trajectories()
  /** Rows before this one are gone; their memory goes when they are as many as those that stay. */
  #first = 0
  /** By the ids that an episode begins with: the prompt's number, and how many episodes it has had. */
  readonly #prompts = new Map<string, { readonly promptId: number; readonly members: number }>()
  #nextPromptId = 0
  #open: OpenEpisode | null = null

  constructor(options: { readonly maxEpisodes: number; readonly rewardReduction?: RewardReduction }) {
    checkOptions('EpisodeBuffer', options, ['maxEpisodes', 'rewardReduction'])
    const { maxEpisodes, rewardReduction = 'last' } = options
    checkCount('maxEpisodes', maxEpisodes)
    this.maxEpisodes = maxEpisodes
    if (!rewardReductions.includes(rewardReduction)) {
      throw unknownWord('rewardReduction', rewardReduction, rewardReductions)
    }
    this.rewardReduction = rewardReduction
  }

  /** Episodes that have ended and are kept. */
  get episodeCount(): number {
    return this.#kept.count - this.#first
  }

  /** Steps of those. */
  get length(): number {
    return this.#kept.numTokens - this.#kept.columns().offsets[this.#first]!
  }

  /** Steps of the episode that has not ended. */
  get openLength(): number {
    return this.#open?.token.length ?? 0
  }

  /** True if so many episodes have ended and are kept. */
  ready(minEpisodes = 1): boolean {
    checkCount('minEpisodes', minEpisodes)
    return this.episodeCount >= minEpisodes
  }

  /**
   * Adds a turn to the episode that has not ended, or begins one; whole or not at all.
   * @throws InputError for keys that are missing or unknown, an observation that does not begin with what stands, logprobs in
   * some turns and not in others, or of another number than the ids; and for what is no trajectory.
   */
  add(turn: EpisodeTurn): void {
    checkKeys(turn)
    const before = this.#open ?? emptyEpisode(turn)
    const after = extended(before, turn)
    if (!turn.terminated && !turn.truncated) {
      const { promptId, members } = this.#placeOf(after.prompt)
      checkTrajectory(this.#trajectoryOf(after, { promptId, member: members }, 'aborted')) // Refused now, not at its end.
      this.#open = after
      return
    }
    const stopReason = turn.terminated ? 'stop' : 'length'
    this.#addPlaced(after.prompt, (place) => this.#trajectoryOf(after, place, stopReason))
    this.#open = null
  }

  /** Adds an episode that has ended, as one row. @throws InputError for what is no trajectory, or a part of one. */
  addEpisodeFromDict(episode: Trajectory): void {
    if ((episode.segment ?? 0) !== 0) {
      throw new InputError('episode, segment', show(episode.segment), '0: the buffer counts rows as episodes')
    }
    this.#kept.append(episode)
    if (this.episodeCount > this.maxEpisodes) this.#first++
    this.#compact()
  }

  /** Gives back the memory of episodes that are gone, when they are as many as those that stay. */
  #compact(): void {
    if (2 * this.#first <= this.#kept.count) return
    this.#kept = this.#kept.take(this.#rows())
    this.#first = 0
    const kept = new Set(this.#kept.columns().promptId)
    for (const [prompt, { promptId }] of this.#prompts) if (!kept.has(promptId)) this.#prompts.delete(prompt)
  }

  /** Drops the unfinished episode; the next turn begins another. */
  dropOpen(): void {
    this.#open = null
  }

  /**
   * Moves episodes that have ended into another buffer, the oldest first, as far as it has room, and returns how many. Those that
   * were added turn by turn belong to that buffer's groups from then on.
   */
  moveTo(other: EpisodeBuffer): number {
    const count = Math.min(this.episodeCount, other.maxEpisodes - other.episodeCount)
    for (let i = 0; i < count; i++) {
      const row = this.#kept.row(this.#first++)
      if (row.source === TURNS) other.#addPlaced(promptOf(row), (place) => ({ ...row, ...place }))
      else other.addEpisodeFromDict(row)
    }
    this.#compact()
    return count
  }

  /** Adds an episode of this prompt, as the next member of its group. */
  #addPlaced(prompt: string, episodeOf: (place: { promptId: number; member: number }) => Trajectory): void {
    const place = this.#placeOf(prompt)
    this.addEpisodeFromDict(episodeOf({ promptId: place.promptId, member: place.members }))
    if (place.promptId === this.#nextPromptId) this.#nextPromptId++
    this.#prompts.set(prompt, { ...place, members: place.members + 1 })
  }

  #placeOf(prompt: string): { readonly promptId: number; readonly members: number } {
    return this.#prompts.get(prompt) ?? { promptId: this.#nextPromptId, members: 0 }
  }

  /** Forgets all episodes, and the one that has not ended. */
  clear(): void {
    this.#kept.clear()
    this.#prompts.clear()
    this.#first = 0
    this.#open = null
  }

  /** All episodes, the oldest first. @throws InputError where there is none. */
  sample(): TrajectoryColumns {
    return this.sampleEpisodes(Math.max(1, this.episodeCount))
  }

  /**
   * `k` episodes, or all where there are fewer: `asc` the oldest, the oldest first; `desc` the newest, the newest first.
   * @throws InputError where there is none.
   */
  sampleEpisodes(k: number, order: 'asc' | 'desc' = 'asc'): TrajectoryColumns {
    checkCount('k', k)
    if (order !== 'asc' && order !== 'desc') throw unknownWord('order', String(order), ['asc', 'desc'])
    const rows = this.#filled()
    return this.#kept.take((order === 'asc' ? rows : rows.reverse()).slice(0, k)).columns()
  }

  /** The last `n` steps, or all where there are fewer, the oldest first: views. @throws InputError where there is none. */
  sampleLatestSteps(n: number): StepColumns {
    checkCount('n', n)
    this.#filled()
    const { numTokens } = this.#kept
    return steps(this.#kept.columns(), Math.max(numTokens - this.length, numTokens - n), numTokens)
  }

  /**
   * `batchSize` sequences of `seqLen` steps, or all where there are fewer. Episodes are cut into one sequence after another; the
   * last may be shorter, and is filled up, with `validMask` 0 there, unless it is dropped.
   * @throws InputError where there is none.
   */
  sampleSequences(
    batchSize: number,
    seqLen: number,
    options: { readonly recentFirst?: boolean; readonly dropIncomplete?: boolean } = {},
  ): StepSequences {
    checkOptions('sampleSequences', options, ['recentFirst', 'dropIncomplete'])
    const { recentFirst = false, dropIncomplete = false } = options
    checkCount('batchSize', batchSize)
    checkCount('seqLen', seqLen)
    const { offsets, ...columns } = this.#kept.columns()
    const pieces = this.#filled().flatMap((i) => {
      const starts: { from: number; to: number }[] = []
      for (let from = offsets[i]!; from < offsets[i + 1]!; from += seqLen) {
        const to = Math.min(from + seqLen, offsets[i + 1]!)
        if (to - from === seqLen || !dropIncomplete) starts.push({ from, to })
      }
      return starts
    })
    if (pieces.length === 0) {
      const expected = 'one that is filled, or dropIncomplete: false'
      throw new InputError('seqLen', `${seqLen}, more than the steps of any episode`, expected)
    }
    const chosen = (recentFirst ? pieces.reverse() : pieces).slice(0, batchSize)
    const room = chosen.length * seqLen
    const sequences = {
      ...{ token: new Int32Array(room), lossMask: new Uint8Array(room), logprob: new Float32Array(room) },
      ...{ version: new Int32Array(room), turn: new Int32Array(room), validMask: new Uint8Array(room) },
    }
    chosen.forEach(({ from, to }, b) => {
      const piece = steps(columns, from, to)
      for (const name of STEP_COLUMNS) sequences[name].set(piece[name], b * seqLen)
      sequences.validMask.fill(1, b * seqLen, b * seqLen + to - from)
    })
    return { batchSize: chosen.length, seqLen, ...sequences }
  }

  /** Lengths and rewards of the episodes; null where none is known. @throws InputError where there is no episode. */
  getEpisodeStatistics() {
    const rows = this.#filled()
    const { offsets, reward, known } = this.#kept.columns()
    const lengths = rows.map((i) => offsets[i + 1]! - offsets[i]!)
    const rewards = rows.filter((i) => known[i] === 1).map((i) => reward[i]!)
    const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
    return {
      episodes: rows.length,
      length: {
        mean: mean(lengths),
        min: lengths.reduce((a, b) => Math.min(a, b)),
        max: lengths.reduce((a, b) => Math.max(a, b)),
      },
      reward: rewards.length === 0 ? null : mean(rewards),
      unknownRewards: rows.length - rewards.length,
    }
  }

  #rows(): number[] {
    return Array.from({ length: this.episodeCount }, (_, i) => this.#first + i)
  }

  #filled(): number[] {
    if (this.episodeCount === 0) throw new InputError('buffer', 'no episode that has ended', 'at least one')
    return this.#rows()
  }

  #trajectoryOf(
    { prompt: _, hasLogprob: __, ...columns }: OpenEpisode,
    place: { readonly promptId: number; readonly member: number },
    stopReason: StopReason,
  ): Trajectory {
    const identity = { source: TURNS, ...place, group: 0, epoch: 0 }
    const { turnReward } = columns
    const reward = reduceTurnRewards(turnReward, this.rewardReduction)
    return { ...identity, ...columns, turns: turnReward.length, reward, stopReason, error: null, components: {} }
  }
}

/** What episodes that were added turn by turn are from, so that they share no group with those that were added whole. */
const TURNS = 'turns'

const STEP_COLUMNS = ['token', 'lossMask', 'logprob', 'version', 'turn'] as const

function steps(columns: Omit<TrajectoryColumns, 'offsets'>, from: number, to: number): StepColumns {
  const { token, lossMask, logprob, version, turn } = columns
  return {
    token: token.subarray(from, to),
    lossMask: lossMask.subarray(from, to),
    logprob: logprob.subarray(from, to),
    version: version.subarray(from, to),
    turn: turn.subarray(from, to),
  }
}

/** The ids that an episode begins with, as text: those before the first that the model said. */
function promptOf({ token, lossMask }: Trajectory): string {
  const ids = Array.from(token)
  return ids.slice(0, Array.from(lossMask).indexOf(1)).join(' ')
}

function emptyEpisode({ observation, logprob }: EpisodeTurn): OpenEpisode {
  const columns = { token: [], lossMask: [], logprob: [], version: [], turn: [] }
  return { prompt: observation.join(' '), ...columns, turnReward: [], hasLogprob: logprob !== undefined }
}

/** The episode with another turn; the one that is given stays as it is. */
function extended(episode: OpenEpisode, { observation, action, reward, logprob, version }: EpisodeTurn): OpenEpisode {
  const { prompt, turnReward, hasLogprob } = episode
  const turns = turnReward.length
  const subject = `turn ${turns}`
  if (action.length === 0) throw new InputError(`${subject}, action`, 'no id', 'at least one')
  const stands = episode.token.length
  const parts = episode.token.findIndex((id, t) => observation[t] !== id)
  if (parts !== -1) {
    const got = parts < observation.length ? `id ${show(observation[parts])}` : 'its end'
    const expected = `id ${episode.token[parts]}, as it stands in the episode`
    throw new InputError(`${subject}, observation[${parts}]`, got, expected)
  }
  if ((logprob === undefined) !== (version === undefined)) {
    throw new InputError(`${subject}, logprob and version`, 'one of them', 'both or none')
  }
  if ((logprob !== undefined) !== hasLogprob) {
    const expected = `${hasLogprob ? 'some' : 'none'}, as in turn 0`
    throw new InputError(`${subject}, logprob`, hasLogprob ? 'none' : 'some', expected)
  }
  if (logprob !== undefined && logprob.length !== action.length) {
    throw new InputError(`${subject}, logprob`, `${logprob.length} numbers`, `${action.length}, as many as ids`)
  }
  const told = observation.slice(stands)
  const each = (value: number) => [...told, ...action].map(() => value)
  return {
    prompt,
    token: [...episode.token, ...told, ...action],
    lossMask: [...episode.lossMask, ...told.map(() => 0), ...action.map(() => 1)],
    logprob: [...episode.logprob, ...told.map(() => Number.NaN), ...(logprob ?? action.map(() => Number.NaN))],
    version: [...episode.version, ...told.map(() => -1), ...action.map(() => version ?? -1)],
    turn: [...episode.turn, ...each(turns)],
    turnReward: [...turnReward, rewardOf(reward, subject)],
    hasLogprob,
  }
}

/** A turn's reward; NaN where it cannot be told. */
function rewardOf(reward: number | null, subject: string): number {
  if (reward === null) return Number.NaN
  if (Number.isFinite(reward)) return reward
  throw new InputError(`${subject}, reward`, show(reward), 'a finite number, or null where it cannot be told')
}

function checkKeys(turn: EpisodeTurn): void {
  for (const key of Object.keys(turn)) {
    if (!(TURN_KEYS as readonly string[]).includes(key)) throw unknownWord('turn', key, TURN_KEYS)
  }
  for (const key of REQUIRED_KEYS) {
    if (turn[key] === undefined) throw new InputError(`turn, ${key}`, 'none', `one, beside ${REQUIRED_KEYS.join(', ')}`)
  }
  const { terminated, truncated } = turn
  for (const [name, flag] of Object.entries({ terminated, truncated })) {
    if (typeof flag !== 'boolean') throw new InputError(`turn, ${name}`, show(flag), 'true or false')
  }
  if (terminated && truncated) throw new InputError('turn', 'terminated and truncated', 'one of them, or neither')
}
