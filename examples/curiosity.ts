/**
 * Curiosity as your own system, in one file: in a hallway that pays only at its far end, an agent gets a bonus for
 * cells that it has rarely visited. The system counts visits per lane, adds the bonus to the reward, and records it for
 * each row. Checkpoints keep the counts.
 */
import { realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { box, createTrainer, createWorld, defineEnvironment, defineSystem, discrete, mlp, ppo } from 'colonnade'
import { integer, number } from 'colonnade/settings'

export const hallway = defineEnvironment({
  id: 'Hallway-v0',
  module: import.meta.url, // Lets other threads make it.
  settings: { length: integer(80, 'cells', { min: 2 }) },
  state: () => ({ cell: 'i32' }),
  make: ({ length }) => ({
    observationSpace: box({ low: 0, high: 1, shape: [1] }),
    actionSpace: discrete(2), // 0 left, 1 right
    maxEpisodeSteps: 3 * length,
    returnThreshold: null,
    reset({ state, observation }, rows, count) {
      for (let i = 0; i < count; i++) state.cell[rows[i]!] = observation[rows[i]!] = 0
    },
    step({ state, observation, reward, terminated, action }, from, to) {
      for (let n = from; n < to; n++) {
        state.cell[n] = Math.max(0, state.cell[n]! + (action[n] === 1 ? 1 : -1))
        observation[n] = state.cell[n]! / (length - 1)
        reward[n] = terminated[n] = state.cell[n] === length - 1 ? 1 : 0
      }
    },
  }),
})

export const curiosity = defineSystem({
  id: 'curiosity',
  module: import.meta.url,
  settings: {
    scale: number(0.02, 'bonus of a cell that the lane was never in', { min: 0 }),
    cells: integer(64, 'cells that are told apart', { min: 1 }),
  },
  state: ({ cells }) => ({ visits: ['u32', cells] }), // A component of each lane.
  recorded: () => ({ bonus: 'f32' }), // A column of the rollout, and of its table.
  make: ({ scale, cells }) => ({
    after: 'store', // The episode's return has already been counted, without the bonus.
    run({ own, recorded, observation, reward, valid }, from, to) {
      for (let n = from; n < to; n++) {
        recorded.bonus[n] = 0
        if (valid[n] === 0) continue
        const cell = n * cells + Math.min(cells - 1, Math.floor(observation[n]! * cells)) // The lane's position, from 0 to 1.
        own.visits[cell]!++
        recorded.bonus[n] = scale / Math.sqrt(own.visits[cell]!)
        reward[n]! += recorded.bonus[n]!
      }
    },
  }),
})

if (realpathSync(process.argv[1]!) === fileURLToPath(import.meta.url)) {
  for (const scale of [0, 0.02]) {
    const returns: string[] = []
    let rarest = 0
    for (const seed of [1, 2, 3]) {
      const systems = [curiosity({ scale, cells: 80 })]
      const policy = mlp({ hidden: [16] })
      const world = await createWorld({ environment: hallway(), policy, numLanes: 16, systems, seed })
      const settings = { learningRate: 3e-3, learningRateSchedule: 'constant', entropyCoef: 0.01 } as const
      const trainer = createTrainer(world, ppo({ numSteps: 128, ...settings }))
      for await (const _ of trainer.updates({ totalSteps: 80_000 }));
      returns.push(trainer.progress().episodeReturnLast100.mean.toFixed(2))
      const { fields } = trainer.rollout.table
      const bonus = fields.find(({ name }) => name === 'curiosity.bonus')!.column as Float32Array
      rarest = bonus.reduce((most, each) => Math.max(most, each), rarest)
    }
    console.log(`scale ${scale}: returns ${returns.join(' ')}, last bonuses up to ${rarest.toFixed(4)}`)
  }
}
