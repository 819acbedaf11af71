/**
 * Environments of Python (`fromGymnasium`, `fromPettingZoo`). One Python process per thread serves its lanes over columns in a file, and
 * all lanes step in one request. As with objects (`led.ts`), a lane's state is its own columns: a process that has not seen an episode,
 * in another thread or after a resume, replays it from its seed and actions. A row of these columns is a game: the lanes of its players,
 * who are one if there are no others.
 */
import { InputError, show } from '../../base/errors.ts'
import { Stream } from '../../base/random.ts'
import type { Settings } from '../../base/settings.ts'
import { choiceSizes, type Space, spaceWidth } from '../../base/space.ts'
import { defineEnvironment, type EnvironmentFactory, type Lanes, type State } from '../environment.ts'
import { COURSE_START, checkOnFault, type FAULTS, faultTeller, type LedOptions, ledColumns, mix } from './led.ts'
import { ask, GoneError, observationSpaceOf, Process, RaisedError, type Script, spaceOf } from './python-process.ts'

/** Options of every environment of Python. */
export interface ServedOptions<I extends string = string>
  extends Pick<LedOptions<Space, Settings, I>, 'module' | 'presets'> {
  readonly id: I
  /** The Python to run, with the packages that the environment needs. Default `python3`. */
  readonly python?: string
  /** Keyword arguments with which the environment is made, as JSON. Default: none. */
  readonly kwargs?: Readonly<Record<string, unknown>>
  /** Steps after which an episode is truncated. Default: the environment's own limit. A lane's columns store this many actions. */
  readonly maxEpisodeSteps?: number
  /** Seconds that Python may take for a step or reset of all lanes; after that its process is ended. Default 60. */
  readonly timeoutSeconds?: number
  /**
   * What happens if a step raises or returns a value that is not a number, and if the process dies or exceeds `timeoutSeconds`. `stop`
   * (default): the caller gets the error and the training ends. `end-episode`: the user gets a warning, and the lane's episode is
   * truncated at its state before the step, with reward 0; the failed environment is not used again. If the process died, this applies to
   * all lanes of the request, and new episodes begin in a new process. Other lanes continue. A failed reset always stops.
   */
  readonly onFault?: (typeof FAULTS)[number]
}

/** The names of these options, for checks. */
export const servedOptions = Object.keys({
  ...{ id: true, module: true, python: true, kwargs: true, maxEpisodeSteps: true, timeoutSeconds: true, presets: true },
  onFault: true,
} satisfies Record<keyof ServedOptions, true>)

/**
 * Defines an environment that Python steps by a script, which is told `request`.
 * @throws InputError for wrong options, and when it is made, if Python cannot run or cannot make it.
 */
export function defineServed<const I extends string>(
  options: ServedOptions<I>,
  script: Script,
  request: object,
): EnvironmentFactory<Record<never, never>, I> {
  const { id, module, python = 'python3', timeoutSeconds = 60, presets = [], onFault = 'stop' } = options
  if (!(Number.isFinite(timeoutSeconds) && timeoutSeconds > 0)) {
    throw new InputError(`${id} timeoutSeconds`, show(timeoutSeconds), 'seconds, more than 0')
  }
  checkOnFault(id, onFault)
  const learn = () => {
    const said = ask(id, python, script, request)
    const { actionSpace, maxEpisodeSteps } = said
    const steps = options.maxEpisodeSteps ?? maxEpisodeSteps
    if (!Number.isSafeInteger(steps) || steps! < 1) {
      const expected = 'a whole number ≥ 1, since a lane stores the actions of its episode'
      throw new InputError(`${id} maxEpisodeSteps`, show(steps), expected)
    }
    const spaces = { observationSpace: observationSpaceOf(said), actionSpace: spaceOf(actionSpace) }
    return { numPlayers: 1, ...said, ...spaces, maxEpisodeSteps: steps! }
  }
  type Declared = ReturnType<typeof ledColumns> & { readonly seen: readonly ['f32', number]; readonly moves: 'u8' }
  type Columns = State<Declared>

  return defineEnvironment({
    id,
    ...(module === undefined ? {} : { module }),
    settings: {},
    presets,
    state: () => {
      const { observationSpace, actionSpace, maxEpisodeSteps, moves } = learn()
      // The last observation of each lane, where a fault truncates the episode; not needed otherwise.
      const seen = onFault === 'stop' ? {} : { seen: ['f32', spaceWidth(observationSpace)] as const }
      return { ...ledColumns(actionSpace, maxEpisodeSteps), ...seen, ...(moves ? { moves: 'u8' } : {}) } as Declared
    },
    make: () => {
      const { observationSpace, actionSpace, maxEpisodeSteps, returnThreshold, numPlayers, ...said } = learn()
      const [width, size] = [spaceWidth(observationSpace), spaceWidth(actionSpace)]
      const numChoices = said.actionMask ? choiceSizes(actionSpace).reduce((sum, each) => sum + each, 0) : 0
      /** The process of each cohort in this thread. */
      const processes = new WeakMap<Columns, Process>()
      const processOf = ({ state, lane }: Lanes<Columns>): Process => {
        const numRows = lane.length / numPlayers
        const found =
          processes.get(state) ?? new Process(id, python, script, { ...request, numLanes: numRows, timeoutSeconds })
        processes.set(state, found)
        return found
      }
      const end = (state: Columns): void => {
        processes.get(state)?.close()
        processes.delete(state)
      }
      const where = ({ lane, episode, step }: Lanes<Columns>) => {
        return (game: number) => {
          const n = game * numPlayers
          return `lane ${lane[n]} (episode ${episode[n]}, step ${step[n]})`
        }
      }

      /** Begins the episodes of the first `count` rows of a process. */
      const begin = (process: Process, lanes: Lanes<Columns>, count: number): void => {
        const { lane, episode, random } = lanes
        for (let i = 0; i < count; i++) {
          const n = process.row[i]! * numPlayers
          random.draw(Stream.reset, lane[n]!, episode[n]!, 0)
          process.seed[i] = random.words[0]!
        }
        process.ask('reset', count, where(lanes))
        for (let i = 0; i < count; i++) {
          const game = process.row[i]!
          const n = game * numPlayers
          const course = courseOf(process, i, COURSE_START)
          process.at[game] = { lane: lane[n]!, episode: episode[n]!, step: 0, course }
        }
      }

      /**
       * Makes a step in the first `count` rows of a process, with the actions in `lanes.state` at their step. Returns the exception of
       * the environment after the last completed row, if there is one.
       */
      const move = (process: Process, lanes: Lanes<Columns>, count: number): RaisedError | null => {
        const { actions } = lanes.state
        for (let i = 0; i < count; i++) {
          const game = process.row[i]!
          for (let player = 0; player < numPlayers; player++) {
            const first = ((game * numPlayers + player) * maxEpisodeSteps + process.at[game]!.step) * size
            const to = (i * numPlayers + player) * size
            for (let k = 0; k < size; k++) process.action[to + k] = actions[first + k]!
          }
        }
        let raised: RaisedError | null = null
        try {
          process.ask('step', count, where(lanes))
        } catch (error) {
          if (!(error instanceof RaisedError)) throw error
          raised = error
        }
        for (let i = 0; i < (raised?.done ?? count); i++) {
          const at = process.at[process.row[i]!]!
          let { course } = at
          for (let k = i * numPlayers * size; k < (i + 1) * numPlayers * size; k++)
            course = mix(course, process.action[k]!)
          course = courseOf(process, i, course)
          for (let p = i * numPlayers; p < (i + 1) * numPlayers; p++) {
            course = mix(mix(course, process.reward[p]!), process.terminated[p]! + 2 * process.truncated[p]!)
          }
          at.course = course
          at.step++
        }
        return raised
      }

      /** The course extended by the observations of row i of a process. */
      const courseOf = ({ observation }: Process, i: number, course: number): number => {
        let sum = course
        for (let k = i * numPlayers * width; k < (i + 1) * numPlayers * width; k++) sum = mix(sum, observation[k]!)
        return sum
      }

      /** Replays the episode of a game up to its current step. */
      const leadTo = (process: Process, lanes: Lanes<Columns>, game: number): void => {
        const { state, step } = lanes
        const n = game * numPlayers
        process.row[0] = game
        begin(process, lanes, 1)
        for (let s = 0; s < step[n]!; s++) {
          const raised = move(process, lanes, 1)
          if (raised !== null) throw raised
        }
        if (process.at[game]!.course === state.course[n]) return
        const got = 'different answers when the episode was replayed'
        const expected = 'equal answers: they must depend only on the seed and the actions'
        throw new InputError(`environment ${id}, ${where(lanes)(game)}`, got, expected)
      }

      /** Writes the result of row i of a process into its lanes. */
      const put = (process: Process, { state, observation, actionMask }: Lanes<Columns>, i: number): void => {
        const game = process.row[i]!
        for (let player = 0; player < numPlayers; player++) {
          const [from, n] = [i * numPlayers + player, game * numPlayers + player]
          const seen = process.observation.subarray(from * width, (from + 1) * width)
          observation.set(seen, n * width)
          if (onFault !== 'stop') state.seen.set(seen, n * width)
          for (let k = 0; k < numChoices; k++) {
            actionMask[n * numChoices + k] = process.actionMask[from * numChoices + k]!
          }
          if (said.moves) state.moves[n] = process.moves[from]!
          state.course[n] = process.at[game]!.course
        }
      }

      /**
       * Returns the error of a result in row i that is not a number; undefined if all are numbers. The step system checks those of `stop`.
       */
      const unnumbered = (
        { row, reward, observation }: Process,
        lanes: Lanes<Columns>,
        i: number,
      ): Error | undefined => {
        if (onFault === 'stop') return undefined
        const subject = `environment ${id}, step in ${where(lanes)(row[i]!)}`
        for (let p = i * numPlayers; p < (i + 1) * numPlayers; p++) {
          if (!Number.isFinite(reward[p]!))
            return new InputError(`${subject}, reward`, show(reward[p]), 'a finite number')
          for (let k = 0; k < width; k++) {
            const value = observation[p * width + k]!
            if (!Number.isFinite(value))
              return new InputError(`${subject}, observation[${k}]`, show(value), 'a finite number')
          }
        }
        return undefined
      }

      const warn = faultTeller()

      /** Truncates the episode of a game at its state before this step. */
      const cutOff = (lanes: Lanes<Columns>, game: number): void => {
        const { state, observation, actionMask, reward, terminated, truncated } = lanes
        for (let n = game * numPlayers; n < (game + 1) * numPlayers; n++) {
          observation.set(state.seen.subarray(n * width, (n + 1) * width), n * width)
          actionMask.fill(1, n * numChoices, (n + 1) * numChoices) // No one chooses by it.
          if (said.moves) state.moves[n] = 0
          reward[n] = 0
          terminated[n] = 0
          truncated[n] = 1
          state.isOver[n] = 1
        }
      }

      /** Writes the rewards and ends of row i of a process: an episode ends when it has ended for all players. */
      const settle = (process: Process, lanes: Lanes<Columns>, i: number): void => {
        const { state, step, reward, terminated, truncated } = lanes
        const [first, from] = [process.row[i]! * numPlayers, i * numPlayers]
        let isOver = true
        for (let p = from; p < from + numPlayers; p++) {
          if (process.terminated[p] === 0 && process.truncated[p] === 0) isOver = false
        }
        // No room for more actions, even if a wrapper has a longer limit.
        const isCut = step[first]! + 1 === maxEpisodeSteps
        isOver ||= isCut
        for (let player = 0; player < numPlayers; player++) {
          const [n, p] = [first + player, from + player]
          reward[n] = process.reward[p]!
          terminated[n] = isOver ? process.terminated[p]! : 0
          truncated[n] = isCut || (isOver && process.truncated[p] === 1) ? 1 : 0
          state.isOver[n] = isOver ? 1 : 0
        }
      }

      /** Makes the step of the first `count` rows of a process whose environments match their lanes. */
      const moveAll = (process: Process, lanes: Lanes<Columns>, count: number): void => {
        let left = count
        while (left > 0) {
          const raised = move(process, lanes, left)
          if (raised !== null && onFault === 'stop') throw raised
          const done = raised?.done ?? left
          for (let i = 0; i < done; i++) {
            const fault = unnumbered(process, lanes, i)
            if (fault !== undefined) {
              warn(fault)
              cutOff(lanes, process.row[i]!)
              continue
            }
            put(process, lanes, i)
            settle(process, lanes, i)
          }
          if (raised === null) return
          warn(raised)
          cutOff(lanes, process.row[done]!)
          process.row.copyWithin(0, done + 1, left) // The rows after it have not been requested.
          left -= done + 1
        }
      }

      return {
        ...{ observationSpace, actionSpace, maxEpisodeSteps, returnThreshold },
        ...(numPlayers > 1 && { numPlayers }),
        ...(said.actionMask && { actionMask: true }),
        ...(said.moves && { moves: ({ moves }: Columns, n: number) => moves[n] === 1 }),
        allocates: true,
        reset(lanes, rows, count) {
          const { state } = lanes
          const process = processOf(lanes)
          const numGames = count / numPlayers
          for (let i = 0; i < numGames; i++) process.row[i] = rows[i * numPlayers]! / numPlayers
          begin(process, lanes, numGames)
          for (let i = 0; i < numGames; i++) put(process, lanes, i)
          for (let i = 0; i < count; i++) {
            const n = rows[i]!
            state.actions.fill(0, n * size * maxEpisodeSteps, (n + 1) * size * maxEpisodeSteps)
            state.isOver[n] = 0
          }
        },
        step(lanes, from, to) {
          const { state, lane, episode, step, action } = lanes
          const [firstGame, endGame] = [from / numPlayers, to / numPlayers]
          try {
            const process = processOf(lanes)
            for (let game = firstGame; game < endGame; game++) {
              const n = game * numPlayers
              if (state.isOver[n] === 1) continue
              const at = process.at[game]
              const isThere =
                at !== undefined && at.lane === lane[n] && at.episode === episode[n] && at.step === step[n]
              if (!isThere || at.course !== state.course[n]) leadTo(process, lanes, game)
            }
            let count = 0
            for (let game = firstGame; game < endGame; game++) {
              if (state.isOver[game * numPlayers] === 1) continue
              process.row[count++] = game
              for (let n = game * numPlayers; n < (game + 1) * numPlayers; n++) {
                const first = (n * maxEpisodeSteps + step[n]!) * size
                for (let k = 0; k < size; k++) state.actions[first + k] = action[n * size + k]!
              }
            }
            moveAll(process, lanes, count)
          } catch (error) {
            if (onFault === 'stop' || !(error instanceof GoneError)) throw error
            warn(error)
            end(state)
            for (let game = firstGame; game < endGame; game++) {
              if (state.isOver[game * numPlayers] === 0) cutOff(lanes, game)
            }
          }
        },
        close: end,
      }
    },
  })
}
