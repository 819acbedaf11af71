/**
 * A buffer of text episodes that a custom loop fills turn by turn, over the columns of trajectories. A step is a token. An episode is in
 * the buffer's samples once it has ended; until then it waits, also across calls of `sample`. Episodes that are added turn by turn and
 * begin with the same ids form one group per prompt.
 */
import { checkCount, checkOptions, InputError, show, unknownWord } from '../../base/errors.ts'
import { type RewardReduction, reduceTurnRewards, rewardReductions, type StopReason } from '../../environments/text.ts'
import { Trajectories, type TrajectoryColumns, tokensAt } from '../trajectories/trajectories.ts'
import { checkTrajectory, TOKEN_COLUMNS, type Trajectory } from '../trajectories/trajectory.ts'

/** One turn: the model's input and output, and the result. */
export interface EpisodeTurn {
  /** All ids of the model's input since the start of the episode: the earlier ones and the new ones. */
  readonly observation: readonly number[]
  /** The model's output ids. */
  readonly action: readonly number[]
  /** Null if unknown. The buffer's `rewardReduction` computes the episode's reward. */
  readonly reward: number | null
  /** Whether the episode ended, and whether it was cut off. */
  readonly terminated: boolean
  readonly truncated: boolean
  /** Per output id, and the version of the weights that chose them: both in all turns of an episode, or in none. */
  readonly logprob?: readonly number[]
  readonly version?: number
}

const TURN_KEYS = ['observation', 'action', 'reward', 'terminated', 'truncated', 'logprob', 'version'] as const
const REQUIRED_KEYS = TURN_KEYS.slice(0, 5)

/** Columns of steps; the steps of a sequence are adjacent. */
export interface StepColumns extends Pick<TrajectoryColumns, (typeof TOKEN_COLUMNS)[number]> {}

/** Sequences of one length: step t of sequence b is element b × seqLen + t of every column. */
export interface StepSequences extends StepColumns {
  readonly batchSize: number
  readonly seqLen: number
  /** 1 for a step, 0 for padding, where the other columns are undefined. */
  readonly validMask: Uint8Array
}

interface OpenEpisode extends Record<keyof StepColumns | 'turnReward', number[]> {
  /** Its first ids, as text. */
  readonly prompt: string
  hasLogprob: boolean
}

/** Keeps the last `maxEpisodes` episodes and drops older ones. */
export class EpisodeBuffer {
  readonly maxEpisodes: number
  /** How the turns' rewards reduce to that of an episode added turn by turn. */
  readonly rewardReduction: RewardReduction
  #kept = new Trajectories()
  /** Earlier rows are dropped; their memory is freed when they outnumber the kept ones. */
  #first = 0
  /** The number of a prompt, and of its episodes so far, keyed by an episode's first ids. */
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

  get episodeCount(): number {
    return this.#kept.count - this.#first
  }

  get length(): number {
    return this.#kept.numTokens - this.#kept.columns().offsets[this.#first]!
  }

  /** Number of steps of the unfinished episode. */
  get openLength(): number {
    return this.#open?.token.length ?? 0
  }

  /** Whether the buffer has at least `minEpisodes` finished episodes. */
  ready(minEpisodes = 1): boolean {
    checkCount('minEpisodes', minEpisodes)
    return this.episodeCount >= minEpisodes
  }

  /**
   * Adds a turn to the unfinished episode, or begins one. On an error nothing changes.
   * @throws InputError for missing or unknown keys, an observation that does not begin with the episode's ids, logprobs in only some
   * turns or of another number than the ids, and an invalid trajectory.
   */
  add(turn: EpisodeTurn): void {
    checkKeys(turn)
    const before = this.#open ?? emptyEpisode(turn)
    const after = extended(before, turn)
    if (!turn.terminated && !turn.truncated) {
      const { promptId, members } = this.#placeOf(after.prompt)
      checkTrajectory(this.#trajectoryOf(after, { promptId, member: members }, 'aborted')) // Fails now, not at its end.
      this.#open = after
      return
    }
    const stopReason = turn.terminated ? 'stop' : 'length'
    this.#addPlaced(after.prompt, (place) => this.#trajectoryOf(after, place, stopReason))
    this.#open = null
  }

  /** Adds a finished episode as one row. @throws InputError for an invalid trajectory and for a segment. */
  addEpisodeFromDict(episode: Trajectory): void {
    if ((episode.segment ?? 0) !== 0) {
      throw new InputError('episode, segment', show(episode.segment), '0: the buffer counts rows as episodes')
    }
    this.#kept.append(episode)
    if (this.episodeCount > this.maxEpisodes) this.#first++
    this.#compact()
  }

  /** Frees the memory of dropped episodes when they outnumber the kept ones. */
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
   * Moves finished episodes into another buffer, oldest first, while it has room, and returns their number. Episodes that were added turn
   * by turn join that buffer's groups.
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

  /** Adds an episode of this prompt as the next member of its group. */
  #addPlaced(prompt: string, episodeOf: (place: { promptId: number; member: number }) => Trajectory): void {
    const place = this.#placeOf(prompt)
    this.addEpisodeFromDict(episodeOf({ promptId: place.promptId, member: place.members }))
    if (place.promptId === this.#nextPromptId) this.#nextPromptId++
    this.#prompts.set(prompt, { ...place, members: place.members + 1 })
  }

  #placeOf(prompt: string): { readonly promptId: number; readonly members: number } {
    return this.#prompts.get(prompt) ?? { promptId: this.#nextPromptId, members: 0 }
  }

  /** Removes all episodes, including the unfinished one. */
  clear(): void {
    this.#kept.clear()
    this.#prompts.clear()
    this.#first = 0
    this.#open = null
  }

  /** Returns all episodes, oldest first. @throws InputError if there is none. */
  sample(): TrajectoryColumns {
    return this.sampleEpisodes(Math.max(1, this.episodeCount))
  }

  /** Returns up to `k` episodes: `asc` the oldest, oldest first; `desc` the newest, newest first. @throws InputError if there is none. */
  sampleEpisodes(k: number, order: 'asc' | 'desc' = 'asc'): TrajectoryColumns {
    checkCount('k', k)
    if (order !== 'asc' && order !== 'desc') throw unknownWord('order', String(order), ['asc', 'desc'])
    const rows = this.#filled()
    return this.#kept.take((order === 'asc' ? rows : rows.reverse()).slice(0, k)).columns()
  }

  /** Returns up to `n` of the last steps, oldest first, as views. @throws InputError if there is none. */
  sampleLatestSteps(n: number): StepColumns {
    checkCount('n', n)
    this.#filled()
    const { numTokens } = this.#kept
    return tokensAt(this.#kept.columns(), Math.max(numTokens - this.length, numTokens - n), numTokens)
  }

  /**
   * Returns up to `batchSize` sequences of `seqLen` steps. Episodes are divided into consecutive sequences; a shorter last one is padded,
   * with `validMask` 0, unless it is dropped.
   * @throws InputError if there is none.
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
      const expected = 'a complete sequence, or dropIncomplete: false'
      throw new InputError('seqLen', `${seqLen}, more than the steps of any episode`, expected)
    }
    const chosen = (recentFirst ? pieces.reverse() : pieces).slice(0, batchSize)
    const room = chosen.length * seqLen
    const sequences = {
      ...{ token: new Int32Array(room), lossMask: new Uint8Array(room), logprob: new Float32Array(room) },
      ...{ version: new Int32Array(room), turn: new Int32Array(room), validMask: new Uint8Array(room) },
    }
    chosen.forEach(({ from, to }, b) => {
      const piece = tokensAt(columns, from, to)
      for (const name of TOKEN_COLUMNS) sequences[name].set(piece[name], b * seqLen)
      sequences.validMask.fill(1, b * seqLen, b * seqLen + to - from)
    })
    return { batchSize: chosen.length, seqLen, ...sequences }
  }

  /** Lengths and rewards of the episodes; null if no reward is known. @throws InputError if there is no episode. */
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
    if (this.episodeCount === 0) throw new InputError('buffer', 'no finished episode', 'at least one')
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

/** Source of episodes that were added turn by turn, so that they share no group with whole ones. */
const TURNS = 'turns'

/** An episode's ids before the model's first one, as text. */
function promptOf({ token, lossMask }: Trajectory): string {
  const ids = Array.from(token)
  return ids.slice(0, Array.from(lossMask).indexOf(1)).join(' ')
}

function emptyEpisode({ observation, logprob }: EpisodeTurn): OpenEpisode {
  const columns = { token: [], lossMask: [], logprob: [], version: [], turn: [] }
  return { prompt: observation.join(' '), ...columns, turnReward: [], hasLogprob: logprob !== undefined }
}

/** Returns a copy of the episode with another turn. */
function extended(episode: OpenEpisode, { observation, action, reward, logprob, version }: EpisodeTurn): OpenEpisode {
  const { prompt, turnReward, hasLogprob } = episode
  const turns = turnReward.length
  const subject = `turn ${turns}`
  if (action.length === 0) throw new InputError(`${subject}, action`, 'no id', 'at least one')
  const stands = episode.token.length
  const parts = episode.token.findIndex((id, t) => observation[t] !== id)
  if (parts !== -1) {
    const got = parts < observation.length ? `id ${show(observation[parts])}` : 'its end'
    const expected = `id ${episode.token[parts]}, as in the episode`
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
    throw new InputError(`${subject}, logprob`, `${logprob.length} numbers`, `${action.length}, one per id`)
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

/** A turn's reward; NaN if unknown. */
function rewardOf(reward: number | null, subject: string): number {
  if (reward === null) return Number.NaN
  if (Number.isFinite(reward)) return reward
  throw new InputError(`${subject}, reward`, show(reward), 'a finite number, or null if unknown')
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
  if (terminated && truncated) throw new InputError('turn', 'terminated and truncated', 'at most one of them')
}
