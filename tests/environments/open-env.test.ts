/** Environments of OpenEnv: as its server speaks, and as it must not. */
import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import { type OpenEnvOptions, openEnv } from '../../src/environments/bridges/open-env.ts'
import { start } from '../support/command.ts'
import { talkUntil, talkWorld } from '../support/conversations.ts'
import { openEnvServer, type Saying } from '../support/open-env-server.ts'
import { freePort } from '../support/programs.ts'
import { findPython, PYTHON_MS } from '../support/python.ts'

const seen = (prompt: string, reward: unknown, done: boolean, metadata?: object) => ({
  type: 'observation',
  data: { observation: { prompt }, reward, done, ...(metadata === undefined ? {} : { metadata }) },
})
/** The answer to a digit is the next one; what a session was reset with is kept in it. */
function nextDigit(step: (right: boolean, count: number) => object | string | null | 'cut'): Saying {
  const digits: number[] = []
  let count = 0
  return (type, data, session) => {
    if (type === 'reset') {
      digits[session] = data.seed
      return seen(String(data.seed), null, false)
    }
    return step(data.message.startsWith(String(digits[session]! + 1)), count++)
  }
}
const options = (url: string, given: Partial<OpenEnvOptions> = {}): OpenEnvOptions => ({
  ...{ url, numEpisodes: 5, maxTurns: 1, maxTokens: 2, alphabet: '0123456789', seconds: 5 },
  tell: ({ observation }) => String(observation.prompt),
  act: (message) => ({ message }),
  ...given,
})
const talk = async (given: OpenEnvOptions, count: number, lanes = 8) => {
  const { cutTurn = 'end' } = given
  const environment = await openEnv(given)
  const world = await talkWorld({ environment, numLanes: lanes, cutTurn })
  const rows = await talkUntil(world, count)
  world.close()
  environment.close()
  return { rows, tokenizer: world.cohort().tokenizer }
}

describe('an environment of OpenEnv', () => {
  test('is reset with the seed of its episode, and says what an answer is worth, over as many sessions as there is room for', async () => {
    const server = await openEnvServer(
      nextDigit((right) => seen('over', right, true, { truncated: false })),
      3,
    )
    const { rows, tokenizer } = await talk(options(server.url), 40)
    for (const { token, lossMask, reward, error } of rows) {
      expect(error).toBeNull()
      const first = lossMask.indexOf(1)
      const prompt = Number(tokenizer.decode(token.slice(0, first)))
      const answer = tokenizer.decode(token.slice(first), { skipSpecial: true })
      expect(reward).toBe(answer.startsWith(String(prompt + 1)) ? 1 : 0)
    }
    expect(new Set(rows.map(({ reward }) => reward)).size).toBe(2)
    expect(server.count().most).toBe(3)
    await expect.poll(() => server.count().open).toBe(0)
  })

  test('goes on for several turns, each with its reward, until it is done or has had them all', async () => {
    const server = await openEnvServer(nextDigit((_, count) => seen(`${count % 10}`, 0.25, false)))
    const { rows } = await talk(options(server.url, { numEpisodes: 1, maxTurns: 3, cutTurn: 'continue' }), 2, 1)
    for (const { turn, reward } of rows) {
      expect(new Set(turn.filter((number) => number >= 0))).toEqual(new Set([0, 1, 2]))
      expect(reward).toBe(0.25)
    }
  })

  test('ends where a turn is cut off, with what it was worth, and gives its session back', async () => {
    const server = await openEnvServer(nextDigit(() => seen('9', 0.5, false)))
    const { rows } = await talk(options(server.url, { numEpisodes: 1, maxTurns: 30, maxTokens: 1, sockets: 1 }), 6, 2)
    expect(rows.filter(({ reward }) => reward === 0.5).length).toBe(6)
    expect(rows.filter(({ components }) => components?.truncated === 1).length).toBe(6)
    expect(server.count().sessions).toBe(1)
  })

  test.each<[string, unknown, object | undefined, number | null]>([
    ['says that it was cut short', true, { truncated: true }, 1],
    ['says that it ended', 1, { truncated: false }, 0],
    ['does not say which of the two', 0.5, undefined, null],
  ])('that is done and %s', async (_, reward, metadata, truncated) => {
    const server = await openEnvServer(nextDigit(() => seen('over', reward, true, metadata)))
    const { rows } = await talk(options(server.url), 2, 1)
    for (const row of rows) {
      expect(row.reward).toBe(Number(reward))
      expect(row.components).toEqual({ truncated })
    }
  })

  test.each<[string, ReturnType<Saying>, RegExp]>([
    ['tells no reward', seen('over', null, true), /reported no reward/],
    ['tells a reward that is none', seen('over', 'much', true), /expected an observation with a reward/],
    [
      'does not tell whether it is done',
      { type: 'observation', data: { observation: {}, reward: 1 } },
      /got done undefined/,
    ],
    [
      'refuses the action',
      { type: 'error', data: { message: 'bad', code: 'VALIDATION_ERROR' } },
      /step: bad \(VALIDATION_ERROR\)/,
    ],
    ['speaks no JSON', '{"type": ', /step: got .* expected JSON/],
    ['breaks the connection', 'cut', /the connection was closed/],
    ['answers too late', null, /no answer in 0.2 s/],
  ])(
    'that %s makes the reward unknown, and says why; the next conversation has another session',
    async (_, said, why) => {
      const server = await openEnvServer(nextDigit((right, count) => (count === 0 ? said : seen('over', right, true))))
      const { rows } = await talk(options(server.url, { seconds: 0.2 }), 2, 1)
      expect(rows[0]!.reward).toBeNull()
      expect(rows[0]!.error).toMatch(why)
      expect(rows[1]!.error).toBeNull()
    },
  )

  test('that begins otherwise than it did is told of', async () => {
    let resets = 0
    const server = await openEnvServer((type) => seen(type === 'reset' ? String(resets++) : 'over', 1, type === 'step'))
    const { rows } = await talk(options(server.url, { numEpisodes: 1 }), 1, 1)
    expect(rows[0]!.error).toMatch(/reset of http.*: got "1" of seed 0, expected "0", as in the first reset/)
  })

  test.runIf(process.env.COLONNADE_SERVICES === '1')(
    'on the server of openenv 0.10',
    {
      timeout: 6 * PYTHON_MS,
    },
    async () => {
      const found = await findPython(['openenv==0.10.0'], 'openenv.core.env_server.http_server', 4 * PYTHON_MS)
      if ('why' in found) throw new Error(found.why)
      const script = new URL('../support/open_env_next_digit.py', import.meta.url).pathname
      const port = await freePort()
      const server = start(found.python, [script, String(port), '3'], { timeout: 2 * PYTHON_MS })
      try {
        const url = `http://127.0.0.1:${port}`
        await expect
          .poll(
            () =>
              fetch(`${url}/health`).then(
                ({ ok }) => ok,
                () => false,
              ),
            { timeout: PYTHON_MS },
          )
          .toBe(true)
        const { rows, tokenizer } = await talk(options(url), 200)
        for (const { token, lossMask, reward, error, components } of rows) {
          expect(error).toBeNull()
          const first = lossMask.indexOf(1)
          const prompt = Number(tokenizer.decode(token.slice(0, first)))
          const answer = tokenizer.decode(token.slice(first), { skipSpecial: true })
          expect(reward).toBe(answer.startsWith(String(prompt + 1)) ? 1 : 0)
          expect(components).toEqual({ truncated: 0 })
        }
        expect(new Set(rows.map(({ reward }) => reward))).toEqual(new Set([0, 1]))
        // Unknown keys of an action are refused by the server, with its words.
        const wrong = await talk(options(url, { act: (text) => ({ text }) }), 2, 1)
        expect(wrong.rows[0]!.error).toMatch(/step: Invalid message \(VALIDATION_ERROR\)/)
      } finally {
        server.process.kill()
        await server.ended.catch(() => {})
      }
    },
  )

  test('is refused where it cannot be', async () => {
    const server = await openEnvServer(
      nextDigit(() => seen('over', 1, true)),
      0,
    )
    const { url } = await openEnvServer(nextDigit(() => seen('over', 1, true)))
    const refused: [Partial<OpenEnvOptions>, RegExp][] = [
      [{ url: 'http://127.0.0.1:1' }, /got .*ECONNREFUSED.*expected an OpenEnv server that answers/],
      [{ url: 'nowhere' }, /openEnv.url: got "nowhere"/],
      [{ url: `${url}/other\n` as string, numEpisodes: 0 }, /openEnv.numEpisodes: got 0/],
      [{ seconds: 0 }, /openEnv.seconds: got 0/],
      [{ act: undefined as never }, /openEnv.act: got undefined/],
      [{ rooms: 3 } as never, /rooms/],
      [{ url: server.url }, /reset: no room \(CAPACITY_REACHED\)/],
    ]
    for (const [given, message] of refused) await expect(openEnv(options(url, given))).rejects.toThrow(message)
    await expect(openEnv(options(url, { url: 'nowhere' }))).rejects.toThrow(InputError)
  })
})
