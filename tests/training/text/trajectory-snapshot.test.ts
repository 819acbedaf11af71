import { describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import { Trajectories } from '../../../src/tables/trajectories/trajectories.ts'
import { packTrajectories, unpackTrajectories } from '../../../src/training/text/collect/trajectory-snapshot.ts'
import { plain, trajectory } from '../../support/trajectories.ts'

const rows = [
  trajectory({ turnReward: [0.5, Number.NaN], components: { right: 1 } }),
  trajectory({
    member: 1,
    reward: null,
    error: 'no judge',
    components: { right: null },
    token: [4, 5, 6, 7, 8, 9],
    ...sixTokens(),
  }),
]

function sixTokens() {
  return {
    lossMask: [0, 0, 1, 1, 0, 1],
    logprob: [Number.NaN, Number.NaN, -0.25, -2, Number.NaN, -4],
    version: [-1, -1, 3, 3, -1, 4],
    turn: [0, 0, 0, 0, 1, 1],
    candidateCount: [0, 0, 2, 1, 0, 0],
    candidateIds: [1, 2, 7],
  }
}

function tableOf(): Trajectories {
  const data = new Trajectories()
  for (const row of rows) data.append(row)
  return data
}

describe('trajectories in a checkpoint', () => {
  test('come back as they were, though the table goes on before they are written', () => {
    const data = tableOf()
    const { rows: kept, tensors } = packTrajectories(data, 'a')
    const written = JSON.parse(JSON.stringify(kept))
    data.clear()
    data.append(trajectory({ token: [1, 1, 1, 1] }))
    const again = new Trajectories()
    unpackTrajectories(again, 'a', written, new Map(tensors.map((tensor) => [tensor.name, tensor])))
    expect(again.count).toBe(2)
    expect([again.row(0), again.row(1)].map(plain)).toEqual(rows.map(plain))
  })

  test('without one of their columns are refused', () => {
    const { rows: kept, tensors } = packTrajectories(tableOf(), 'a')
    const some = new Map(tensors.filter(({ name }) => name !== 'a.turn').map((tensor) => [tensor.name, tensor]))
    expect(() => unpackTrajectories(new Trajectories(), 'a', kept, some)).toThrow(InputError)
    expect(() => unpackTrajectories(new Trajectories(), 'a', kept, some)).toThrow('no tensor a.turn')
  })
})
