import { describe, expect, test } from 'vitest'
import { makeEnvironment, registerEnvironment } from '../../src/compat/environment-service.ts'
import { VirtualTime } from '../../src/fleet/time.ts'

describe('registered environments', () => {
  registerEnvironment('math', ({ right = 'four' }: { right?: string }) => ({
    reset: () => ({ observation: null }),
    step: async ([, answers]: readonly [qid: string, answers: readonly string[]]) => ({
      ...{ observation: null, reward: answers.map((answer) => Number(answer === right)) },
      ...{ terminated: true, truncated: false, info: {} },
    }),
  }))
  registerEnvironment('silent', () => ({ reset: () => new Promise(() => {}), step: () => new Promise(() => {}) }))

  test('are made by their name with their arguments, and judge several answers at once', async () => {
    const environment = makeEnvironment({ type: 'math', args: { right: '4' } })
    const { reward, terminated } = await environment.step(['q1', ['4', '5']])
    expect([reward, terminated]).toEqual([[1, 0], true])
    const other = await makeEnvironment({ type: 'math' }).step(['q1', ['4', 'four']])
    expect(other.reward).toEqual([0, 1])
  })

  test('that never answer are told of by their name', async () => {
    const time = new VirtualTime()
    const environment = makeEnvironment({ type: 'silent' }, { stepSeconds: 5, time })
    await expect(time.run(() => environment.reset())).rejects.toThrow(
      'reset of environment silent: got no answer in 5 s',
    )
    await expect(time.run(() => environment.step(1))).rejects.toThrow(/step 0 of environment silent/)
    await environment.close()
  })

  test('have one name each, and a wrong one names the nearest', () => {
    expect(() => makeEnvironment({ type: 'maths' })).toThrow(/environment: got "maths" .*did you mean "math"/)
    expect(() => registerEnvironment('math', () => ({}) as never)).toThrow(/environment math: got a second one/)
    expect(() => registerEnvironment('', () => ({}) as never)).toThrow(/name: got ""/)
    expect(() => registerEnvironment('other', {} as never)).toThrow(/other: got {}/)
    expect(() => makeEnvironment({ type: 'math', arguments: {} } as never)).toThrow(/"arguments"/)
    expect(() => makeEnvironment({ type: 'silent' }, { stepSeconds: 0 })).toThrow(/stepSeconds: got 0/)
  })
})
