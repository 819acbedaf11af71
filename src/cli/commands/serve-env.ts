import { truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import { InputError } from '../../base/errors.ts'
import {
  ColumnFile,
  columnFolder,
  Doorbell,
  PROTOCOL,
  PROTOCOL_VERSION,
  planFile,
  removeColumnFolder,
} from '../../base/files/column-file.ts'
import type { Command } from '../../base/invocation.ts'
import { spaceToJson, spaceType, spaceWidth } from '../../base/space.ts'
import { choice, integer } from '../../entries/settings.ts'
import { createWorld, type EpisodeCohort, mlp, reset, restart, step, store, type World } from '../../index.ts'
import { readEnvironment } from '../words/environment-keys.ts'

export const serveEnvKeys = {
  numLanes: integer(0, 'lanes; 0 for those of one game', { min: 0 }),
  seed: integer(0, 'seed of all random numbers', { min: 0 }),
  autoreset: choice('next-step', ['next-step', 'same-step'], 'when a lane begins a new episode after one has ended'),
}

/**
 * colonnade serve-env <environment>: serves its lanes to a program in another language, by columns in a file
 * (`column-file.ts`), with standard input and output as the doorbell. `python/colonnade.py` starts it. Ends with its
 * input.
 */
export const serveEnvCommand: Command = async ({ words }) => {
  const { values, environment } = await readEnvironment(words, serveEnvKeys, ['wrappers'])
  const { autoreset } = values
  const { numPlayers = 1, moves } = environment
  const numLanes = values.numLanes === 0 ? numPlayers : values.numLanes
  const policy = { ...mlp({ hidden: [1] }), id: 'client' } // Never called: the client chooses.
  const make = (seed: number) => createWorld({ environment, policy, numLanes, seed, autoreset })
  const { observationSpace, actionSpace, maxEpisodeSteps, returnThreshold } = environment
  if (observationSpace.kind !== 'box')
    throw new InputError(`${environment.id} observationSpace`, observationSpace.kind, 'a box')

  let world = await make(values.seed)
  /** Cleanup when the command ends in any way, in reverse order. */
  const ends = [() => world.close()]
  try {
    const mask = lanesOf(world).actionMask.current.length / numLanes
    const seen = [numLanes, ...observationSpace.shape]
    const acted = actionSpace.kind === 'discrete' ? [numLanes] : [numLanes, spaceWidth(actionSpace)]
    const { columns, bytes } = planFile({
      action: [spaceType(actionSpace), actionSpace.kind === 'box' ? [numLanes, ...actionSpace.shape] : acted],
      observation: ['f32', seen],
      ...(mask > 0 ? { actionMask: ['u8', [numLanes, mask]] } : {}),
      ...(moves ? { moves: ['u8', [numLanes]] } : {}),
      reward: ['f32', [numLanes]],
      terminated: ['u8', [numLanes]],
      truncated: ['u8', [numLanes]],
      finalObservation: ['f32', seen],
    })
    const folder = columnFolder()
    ends.push(() => removeColumnFolder(folder))
    const path = join(folder, 'columns')
    writeFileSync(path, '', { mode: 0o600 })
    truncateSync(path, bytes)
    const file = new ColumnFile(path, columns, bytes)
    ends.push(() => file.close())
    const lastShown = moves ? 'moves' : mask > 0 ? 'actionMask' : 'observation'
    const last = autoreset === 'same-step' ? 'finalObservation' : 'truncated'
    const place = {
      action: file.column<'i32' | 'f32'>('action'),
      observation: file.column<'f32'>('observation'),
      actionMask: mask > 0 ? file.column<'u8'>('actionMask') : new Uint8Array(),
      moves: moves ? file.column<'u8'>('moves') : new Uint8Array(),
      reward: file.column<'f32'>('reward'),
      terminated: file.column<'u8'>('terminated'),
      truncated: file.column<'u8'>('truncated'),
      finalObservation: file.column<'f32'>('finalObservation'),
    }
    const show = () => {
      const { observation, actionMask, environmentLanes } = lanesOf(world)
      place.observation.set(observation.current)
      place.actionMask.set(actionMask.current)
      if (moves) for (let n = 0; n < numLanes; n++) place.moves[n] = moves(environmentLanes.state, n) ? 1 : 0
    }
    const answer = async (request: string): Promise<void> => {
      if (request === 'step') {
        const cohort = lanesOf(world)
        file.read('action', 'action')
        cohort.action.chosen.set(place.action)
        step(world)
        if (cohort.late.size > 0) {
          const expected = 'an answer at once: a client waits for it'
          throw new InputError(`environment ${environment.id}`, 'an answer that comes later', expected)
        }
        const { reward, terminated, truncated } = cohort.transition
        place.reward.set(reward)
        place.terminated.set(terminated)
        place.truncated.set(truncated)
        if (last === 'finalObservation') place.finalObservation.set(cohort.observation.next)
        store(world)
      } else {
        const seed = /^reset(?: (\d+))?$/.exec(request)
        if (seed === null) throw new InputError('request', JSON.stringify(request), 'reset, reset <seed> or step')
        if (seed[1] === undefined) restart(lanesOf(world))
        else {
          const next = await make(Number(seed[1]))
          world.close()
          world = next
          await turn() // The engine frees memory of former worlds in tasks, for which nothing else leaves time.
        }
      }
      reset(world)
      show()
      file.write('observation', request === 'step' ? last : lastShown)
    }

    const spaces = { observationSpace: plain(observationSpace), actionSpace: plain(actionSpace) }
    const known = {
      environment: environment.id,
      numLanes,
      numPlayers,
      autoreset,
      maxEpisodeSteps,
      returnThreshold,
      ...spaces,
    }
    const doorbell = new Doorbell(0, 1)
    doorbell.write(
      JSON.stringify({ protocol: PROTOCOL, version: PROTOCOL_VERSION, file: path, bytes, columns, ...known }),
    )
    let requests = 0
    for (let request = doorbell.read(); request !== null; request = doorbell.read()) {
      // The requester has opened the file: delete it now, since a signal may end this process while it waits.
      if (requests++ === 0) removeColumnFolder(folder)
      let said = 'ok'
      try {
        await answer(request)
      } catch (error) {
        said = `error ${JSON.stringify({ message: (error as Error).message })}`
      }
      if (!doorbell.write(said)) break
    }
    return { environment: environment.id, requests }
  } finally {
    for (const end of ends.reverse()) end()
  }
}

function lanesOf(world: World): EpisodeCohort {
  return world.cohorts[0] as EpisodeCohort
}

function plain(space: Parameters<typeof spaceToJson>[0]): unknown {
  return JSON.parse(spaceToJson(space))
}
