/** Threads over the lanes of episodes, all of them in this process. */
import { beforeEach, describe, expect, test, vi } from 'vitest'
import {
  type AlgorithmDefinition,
  cartPole,
  createTrainer,
  createWorld,
  type EpisodeCohort,
  mlp,
  pendulum,
  ppo,
  type Trainer,
  type TrainerOptions,
  type WorldOptions,
} from '../../src/index.ts'
import { savedTensors } from '../../src/training/folder/snapshot.ts'
import { Team } from '../../src/training/threads/team.ts'
import { type InProcessTeam, startTeamsInProcess } from '../support/in-process-team.ts'

let teams: InProcessTeam[]
beforeEach(() => {
  vi.restoreAllMocks()
  teams = startTeamsInProcess()
})

const policy = mlp({ hidden: [8] })
const learner = ppo({ numSteps: 8, numMinibatches: 2, updateEpochs: 2 })
/** Two cohorts that learn, the second by the policy of the first, and one that only acts. */
const options: WorldOptions = {
  seed: 3,
  cohorts: [
    { name: 'poles', environment: cartPole(), policy, numLanes: 7, autoreset: 'next-step' },
    { name: 'others', environment: cartPole({ maxEpisodeSteps: 9 }), policy: 'poles', numLanes: 3 },
    { name: 'pendulums', environment: pendulum(), policy, numLanes: 2, explore: false },
  ],
}
const algorithms: Record<string, AlgorithmDefinition> = { poles: learner, others: learner }
const STEPS = 80

async function trainerOf(threads: number, more: TrainerOptions = {}): Promise<Trainer<EpisodeCohort>> {
  return createTrainer((await createWorld(options)) as never, algorithms, {
    threads,
    ...more,
  }) as Trainer<EpisodeCohort>
}

async function train(trainer: Trainer<EpisodeCohort>, updates: number): Promise<void> {
  for await (const { update } of trainer.updates({ totalSteps: 5 * STEPS })) if (update === updates) break
}

function columnsOf(trainer: Trainer<EpisodeCohort>): Record<string, string> {
  return Object.fromEntries(
    savedTensors(trainer.world).map(({ name, bytes }) => [name, Buffer.from(bytes).toString('base64')]),
  )
}

describe('three threads', () => {
  test('come to the bits of one, with cohorts that learn, share a policy, and only act', async () => {
    const alone = await trainerOf(1)
    const drawn = alone.world.cohort('poles').weights.slice()
    await train(alone, 3)
    const together = await trainerOf(3)
    await train(together, 3)
    expect(teams).toHaveLength(1)
    expect(columnsOf(together)).toEqual(columnsOf(alone))
    expect(together.world.cohort('poles').weights).not.toEqual(drawn)
    for (const name of ['poles', 'others']) {
      const { solvedAtSeconds: _, ...progress } = alone.progress(name)
      expect(together.progress(name)).toMatchObject(progress)
    }
    together.close()
    expect(teams[0]!.isOver).toBe(true)
  })

  test('are described by their lanes, and hold the process while they work alone', async () => {
    const trainer = await trainerOf(3)
    const held: boolean[] = []
    for await (const _ of trainer.updates({ totalSteps: 2 * STEPS })) {
      held.push(teams[0]!.isHeld)
      teams[0]!.beforeMeeting = () => void held.push(teams[0]!.isHeld)
    }
    const [team] = teams
    expect(held[0]).toBe(false) // The first update is done.
    expect(held.at(-1)).toBe(false)
    expect(held.slice(1, -1).every(Boolean)).toBe(true)
    expect(held.length).toBeGreaterThan(2)
    expect(team!.describe(1)).toBe('3 threads (lanes 2–3 of poles, lanes 8–8 of others, lanes 10–10 of pendulums)')
    expect(trainer.shares[0]).toBe('3 threads (lanes 0–1 of poles, lanes 7–7 of others, no lanes of pendulums)')
    trainer.close()
  })

  test('each keep their intervals in a trace of their own, and beat where the watchdog looks', async () => {
    const trainer = await trainerOf(3, { profile: true })
    await train(trainer, 1)
    const { traceEvents } = JSON.parse(trainer.trace())
    const of = (tid: number) =>
      traceEvents.filter((event: { ph: string; tid: number }) => event.ph === 'X' && event.tid === tid)
    for (const thread of [0, 1, 2]) {
      expect(of(thread).length).toBeGreaterThan(20)
      expect(trainer.beats[2 * thread]).toBeGreaterThan(20)
    }
    expect(new Set(of(1).map(({ name }: { name: string }) => name))).toContain('waiting')
    trainer.close()
  })
})

describe('an update of three threads that nobody can finish', () => {
  async function failed(trainer: Trainer<EpisodeCohort>): Promise<unknown> {
    return train(trainer, 3).then(
      () => undefined,
      (error: unknown) => error,
    )
  }

  test('because the trainer is closed says so, and so does the next', async () => {
    const trainer = await trainerOf(3)
    await train(trainer, 1)
    teams[0]!.beforeMeeting = () => trainer.close()
    const error = await failed(trainer)
    expect(error).toBe(teams[0]!.failure)
    expect(await failed(trainer)).toBe(error)
    await expect(trainer.save('nowhere')).rejects.toBe(error)
  })

  test('because the trainer is closed while the workers are on their way', async () => {
    const start = vi.mocked(Team.start).getMockImplementation()!
    const trainer = await trainerOf(3)
    vi.mocked(Team.start).mockImplementation(async (...given) => {
      const team = await start(...given)
      trainer.close()
      return team
    })
    expect(await failed(trainer)).toBe(teams[0]!.failure)
    expect(teams[0]!.isOver).toBe(true)
    expect(teams[0]!.meetings).toBe(0)
  })

  test('because it is given up ends with the reason', async () => {
    const trainer = await trainerOf(3)
    const reason = new Error('stuck')
    await train(trainer, 1)
    teams[0]!.beforeMeeting = () => trainer.giveUp(reason)
    expect(await failed(trainer)).toBe(reason)
    expect(teams[0]!.isOver).toBe(true)
  })

  test('because the caller’s own thread throws ends with that error, and sends the workers home', async () => {
    const trainer = await trainerOf(3)
    await train(trainer, 1)
    trainer.world.cohort('others').policy.infer = () => {
      throw new Error('no action')
    }
    expect(await failed(trainer)).toEqual(new Error('no action'))
    expect(teams[0]!.isOver).toBe(true)
  })
})
