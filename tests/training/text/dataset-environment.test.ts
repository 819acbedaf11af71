import { writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { Turn } from '../../../src/environments/text.ts'
import { defineReward, judgesTogether } from '../../../src/language/rewards/reward.ts'
import { dataset } from '../../../src/training/text/collect/dataset-environment.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const turn: Turn = {
  example: { prompt: 'p', answer: 'four' },
  exampleIndex: 0,
  completion: 'a four',
  raw: 'a four',
  turn: 0,
  stopReason: 'stop',
  messages: [{ role: 'user', content: 'p' }],
}
const signal = new AbortController().signal

describe('the reward of a dataset', () => {
  test('is set on the command line, the address of a reward model too', async () => {
    const server = createServer((_, response) => response.end('{"rewards": [0.75]}'))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const url = `url=http://127.0.0.1:${(server.address() as AddressInfo).port}/reward?a=b`
    const { respond } = dataset({ reward: 'remote', rewardSettings: [url, 'retries=0'] })
    expect(await respond(turn, signal)).toEqual({ reward: 0.75, components: {} })
    server.close()
  })

  test('may have lists, whose entries have bars between them', async () => {
    const { respond } = dataset({ reward: 'keyword', rewardSettings: ['keywords=four|score|and', 'bonusMultiplier=2'] })
    expect(await respond(turn, signal)).toMatchObject({ reward: 1 / 3 })
  })

  test('is checked when the environment is made', () => {
    const made =
      (reward: string, ...rewardSettings: string[]) =>
      () =>
        dataset({ reward, rewardSettings })
    expect(made('remote')).toThrow(/remote\.url.*http/)
    expect(made('remote', 'http://127.0.0.1')).toThrow(/rewardSettings.*key=value/)
    expect(made('remote', 'uri=http://127.0.0.1')).toThrow(/url/)
    expect(made('remote', 'url=http://a', 'url=http://b')).toThrow(/url twice/)
    expect(made('code', 'maxSteps=12')).toThrow(/code\.maxSteps/)
    expect(made('accuracy', 'toString=1')).toThrow(/toString/)
  })

  test('that ends by itself has no time limit from outside, and that of a server has', () => {
    expect(dataset({ reward: 'code' }).repliesInTime).toBe(true)
    expect(dataset({ reward: 'mathAccuracy' }).repliesInTime).toBe(true)
    expect(dataset({ reward: 'remote', rewardSettings: ['url=http://127.0.0.1'] }).repliesInTime).toBe(false)
  })

  test('judges several answers in one call where it takes them, and tries again those that have none', async () => {
    expect(dataset({ reward: 'accuracy' }).together).toBeUndefined()
    const remote = dataset({ reward: 'remote', rewardSettings: ['url=http://127.0.0.1', 'batchSize=5'] })
    expect(remote.together?.size).toBe(5)
    const seen: string[][] = []
    const judgeAll = (inputs: readonly { completion: string; prompt: string }[]) => {
      seen.push(inputs.map(({ prompt, completion }) => `${prompt} ${completion}`))
      return inputs.map(({ completion }) =>
        completion === 'two' && seen.length === 1 ? null : completion.length,
      ) as number[]
    }
    const turns = ['one', 'two', 'three'].map((completion) => ({ ...turn, completion }))
    for (const [size, again] of [
      [3, ['p two']],
      ['group', ['p one', 'p two', 'p three']],
    ] as const) {
      seen.length = 0
      const own = defineReward({ id: 'own', settings: {}, make: () => judgesTogether(judgeAll, size) })
      const { together } = dataset({ retries: 1 }, { reward: own })
      expect(together!.size).toBe(size)
      const replies = await together!.respond(turns, signal)
      expect(replies.map(({ reward }) => reward)).toEqual([3, 3, 5])
      expect(seen).toEqual([['p one', 'p two', 'p three'], again])
    }
  })
})

describe('the examples of a dataset', () => {
  const text = [
    '{"prompt": "1+1=", "answer": "2"}',
    '{"prompt": "1+2=", "answer": "3"}',
    '{"prompt": "1+3=", "answer": "4"}',
  ]

  test('are those of its file, as many as the limit lets through', async () => {
    const path = join(await temporaryFolder(), 'sums.jsonl')
    await writeFile(path, text.join('\n'))
    const all = await dataset({ path }).open!()
    expect(all.numExamples).toBe(3)
    expect(all.example(2)).toMatchObject({ prompt: '1+3=', answer: '4' })
    expect((await dataset({ path, limit: 2 }).open!()).numExamples).toBe(2)
  })

  test('are at least one, of a file that is named', async () => {
    const path = join(await temporaryFolder(), 'empty.jsonl')
    await writeFile(path, '')
    await expect(async () => dataset({ path }).open!()).rejects.toThrow(`${path}: got no row, expected at least one`)
    await expect(async () => dataset().open!()).rejects.toThrow(/text\/dataset path: got nothing/)
    expect(() => dataset({ path }).example(0)).toThrow('got an environment that was not opened')
  })
})
