/** Threads over a language model's lanes and micro-batches, all of them in this process. */
import { beforeEach, describe, expect, test, vi } from 'vitest'
import {
  createTrainer,
  createWorld,
  languageModel,
  rl,
  sft,
  type Trainer,
  textEnvironmentFactory,
} from '../../../src/index.ts'
import { savedTensors } from '../../../src/training/folder/snapshot.ts'
import { TextCommand } from '../../../src/training/text/learn/team.ts'
import { Team } from '../../../src/training/threads/team.ts'
import type { ConversationCohort } from '../../../src/world/conversations/cohort.ts'
import { digits } from '../../support/conversations.ts'
import { type InProcessTeam, port, startTeamsInProcess } from '../../support/in-process-team.ts'

vi.mock('node:worker_threads', async (original) => ({
  ...(await original<typeof import('node:worker_threads')>()),
  get parentPort() {
    return port
  },
}))

let teams: InProcessTeam[]
beforeEach(() => {
  vi.restoreAllMocks()
  teams = startTeamsInProcess()
})

const reverse = textEnvironmentFactory('text/reverse')

/** Lanes and parameters enough for the lanes of a tick to be shared. */
async function trainerOf(
  threads: number,
  model: object,
  environment = reverse({ maxLength: 3 } as never),
): Promise<Trainer<ConversationCohort>> {
  const world = await createWorld({
    environment,
    policy: languageModel({ width: 64, layers: 1, ...model } as never),
    numLanes: 40,
    seed: 3,
    groupSize: 5,
    sampling: { topK: 8 },
  })
  const algorithm = rl({ groupsPerUpdate: 8, groupSize: 5, updates: 2, topK: 8, lossSettings: { klCoef: 0.1 } })
  return createTrainer(world, [sft({ updates: 1, batchSize: 40 }), algorithm], { threads })
}

/** Trains to the end; returns all columns, and figures without what a clock has a part in. */
async function outcome(trainer: Trainer<ConversationCohort>) {
  const metrics: unknown[] = []
  for await (const each of trainer.updates()) {
    metrics.push(JSON.parse(JSON.stringify(each, (key, value) => (/seconds?$/i.test(key) ? undefined : value))))
  }
  const columns = savedTensors(trainer.world).map(({ name, bytes }) => [name, Buffer.from(bytes).toString('base64')])
  return { metrics, columns: Object.fromEntries(columns) }
}

describe('three threads of a language model', () => {
  test.each([
    ['', {}],
    [' with an adapter and dropout', { loraRank: 2, loraDropout: 0.1 }],
    [' with a cache in bf16', { cacheBits: 16 }],
    [' with activations computed again', { layers: 2, loraRank: 2, loraDropout: 0.1, checkpointing: true }],
    [' frozen in 8 bits under its adapter', { loraRank: 2, quantize: 8, quantizeActivations: true }],
    [' frozen in bf16', { loraRank: 2, quantize: 16 }],
    [' frozen in 4 bits, with its embedding', { loraRank: 2, quantize: 4, embeddingBits: 4 }],
    [' frozen in 4 bits, its embedding in 8', { loraRank: 2, quantize: 4, embeddingBits: 8 }],
    [' frozen in 8 bits, its embedding in 4', { loraRank: 2, quantize: 8, embeddingBits: 4 }],
  ])('choose, evaluate and learn%s to the bits of one', async (_, model) => {
    const alone = await outcome(await trainerOf(1, model))
    const trainer = await trainerOf(3, model)
    const commands = new Set<number>()
    const start = vi.mocked(Team.start).getMockImplementation()!
    vi.mocked(Team.start).mockImplementationOnce(async (...given) => {
      const team = await start(...given)
      teams[0]!.beforeMeeting = () => void commands.add(teams[0]!.orders[0]!.command[0]!)
      return team
    })
    const together = await outcome(trainer)
    expect(teams).toHaveLength(1)
    expect(commands).toEqual(new Set([TextCommand.learn, TextCommand.decode]))
    expect(teams[0]!.isHeld).toBe(false)
    expect(together).toEqual(alone)
    trainer.close()
    expect(teams[0]!.isOver).toBe(true)
  })

  test('are told their numbers, and described by their cohort', async () => {
    const trainer = await trainerOf(3, {})
    await outcome(trainer)
    expect(teams[0]!.describe(1)).toBe('3 threads of languageModel')
    expect(teams[0]!.orders.map(({ index, count }) => [index, count])).toEqual([
      [1, 3],
      [2, 3],
    ])
    trainer.close()
  })
})

describe('a training by three threads in which something goes wrong', () => {
  async function failed(trainer: Trainer<ConversationCohort>): Promise<unknown> {
    return outcome(trainer).then(
      () => undefined,
      (error: unknown) => error,
    )
  }

  test('because it is closed at work ends with the reason of its team, and goes on with another to the same bits', async () => {
    const alone = await outcome(await trainerOf(1, {}))
    const trainer = await trainerOf(3, {})
    for await (const _ of trainer.updates()) break
    const [team] = teams
    let ticks = 0
    team!.beforeMeeting = () => {
      if (++ticks === 9) trainer.close()
    }
    expect(await failed(trainer)).toBe(team!.failure)
    expect(teams).toHaveLength(1)
    const { columns } = await outcome(trainer)
    expect(teams).toHaveLength(2)
    expect(columns).toEqual(alone.columns)
    trainer.close()
  })

  test('because it is closed while the workers are on their way', async () => {
    const start = vi.mocked(Team.start).getMockImplementation()!
    const trainer = await trainerOf(3, {})
    vi.mocked(Team.start).mockImplementationOnce(async (...given) => {
      const team = await start(...given)
      trainer.close()
      return team
    })
    expect(await failed(trainer)).toBe(teams[0]!.failure)
    expect(teams[0]!.isOver).toBe(true)
    expect(teams[0]!.meetings).toBe(0)
    expect(trainer.update).toBe(0)
    await outcome(trainer)
    expect(trainer.update).toBe(3)
    trainer.close()
  })

  test('because the caller’s own thread throws ends with that error, and sends the workers home', async () => {
    const silent = digits({
      respond: () => {
        throw new Error('no reply')
      },
    })
    const trainer = await trainerOf(3, {}, silent)
    expect(await failed(trainer)).toMatchObject({
      name: 'InputError',
      got: expect.stringMatching(/^no reward of 40 conversations known \(.*no reply\)$/),
    })
    expect(teams[0]!.isOver).toBe(true)
    expect(trainer.update).toBe(1)
  })
})
