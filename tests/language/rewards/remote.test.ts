import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { InputError } from '../../../src/base/errors.ts'
import {
  createRemoteRewardProcessor,
  type RemoteRewardSettings,
  remoteReward,
} from '../../../src/language/rewards/remote.ts'
import { failed, type Judgment } from '../../../src/language/rewards/reward.ts'

interface Sample {
  prompt: string
  completion: string
  answer?: string
}
type Answering = (samples: Sample[], response: ServerResponse, request: IncomingMessage) => void

let server: Server | undefined
/** Samples of every request, in their order. */
let seen: Sample[][] = []

async function serve(...answering: Answering[]): Promise<string> {
  seen = []
  server = createServer(async (request, response) => {
    let body = ''
    for await (const chunk of request) body += chunk
    const { samples } = JSON.parse(body) as { samples: Sample[] }
    seen.push(samples)
    answering[Math.min(seen.length, answering.length) - 1]!(samples, response, request)
  })
  await new Promise<void>((resolve) => server!.listen(0, '127.0.0.1', resolve))
  return `http://127.0.0.1:${(server!.address() as AddressInfo).port}/reward`
}

afterEach(() => {
  server?.closeAllConnections()
  server?.close()
  server = undefined
})

const text =
  (body: string, status = 200): Answering =>
  (_, response) =>
    response.writeHead(status).end(body)
const lengths: Answering = (samples, response) =>
  response.end(JSON.stringify({ rewards: samples.map(({ completion }) => completion.length) }))
const hang: Answering = () => {}
const reset: Answering = (_, __, request) => request.socket.destroy()
const breakOff: Answering = (_, response, request) => {
  response.writeHead(200, { 'content-length': '1000' }).write('{"rewards": [1')
  setTimeout(() => request.socket.destroy(), 20)
}
const drip: Answering = (_, response) => {
  response.writeHead(200).write('{"rewards": [')
}

const floodOf =
  (status: number): Answering =>
  (_, response) => {
    response.writeHead(status)
    const more = (): void => {
      while (!response.destroyed && response.write(' '.repeat(2 ** 16)));
    }
    response.on('drain', more)
    more()
  }
const flood = floodOf(200)
/** Sends the request on to the same server, which would answer it. */
const redirect =
  (status: number): Answering =>
  (samples, response) => {
    if (seen.length > 1) lengths(samples, response, response.req)
    else response.writeHead(status, { location: '/elsewhere' }).end()
  }

async function judged(url: string, count: number, settings: Partial<RemoteRewardSettings> = {}): Promise<Judgment[]> {
  const judgeBatch = createRemoteRewardProcessor({ url, retries: 0, retryDelayMs: 1, timeoutMs: 5000, ...settings })
  const inputs = Array.from({ length: count }, (_, i) => ({
    prompt: 'p',
    completion: 'x'.repeat(i),
    example: { prompt: 'p', answer: 'a' },
  }))
  return judgeBatch(inputs)
}

describe('a reward model behind HTTP', () => {
  test('is asked in batches, and its values come in the order of the samples', async () => {
    const url = await serve(lengths)
    const values = (await judged(url, 5, { batchSize: 2 })).map(({ value }) => value)
    expect(values).toEqual([0, 1, 2, 3, 4])
    expect(seen.map((samples) => samples.length)).toEqual([2, 2, 1])
    expect(seen[0]![1]).toEqual({ prompt: 'p', completion: 'x', answer: 'a' })
  })

  test('is a reward like any other', async () => {
    const made = remoteReward({ url: await serve(lengths) })
    expect(await made('p', 'four', { prompt: 'p' })).toEqual({ value: 4, components: {} })
    expect(() => remoteReward()).toThrow(InputError)
    expect(() => remoteReward({ url: 'file:///etc/hosts' })).toThrow(/http:/)
  })

  test.each<[string, Answering, string]>([
    ['answers 500', text('{"rewards": [1, 1]}', 500), 'refused'],
    ['answers 404', text('none', 404), 'refused'],
    ['answers with nothing', (_, response) => response.writeHead(204).end(), 'refused'],
    ['hangs', hang, 'hung'],
    ['stops in the middle without an end', drip, 'hung'],
    ['resets the connection', reset, 'unreachable'],
    ['breaks off in the middle', breakOff, 'unreachable'],
    ['answers with no JSON', text('<html>'), 'malformed'],
    ['answers with NaN', text('{"rewards": [NaN, 1]}'), 'malformed'],
    ['answers with null', text('null'), 'malformed'],
    ['answers with no list', text('{"rewards": 0.5}'), 'malformed'],
    ['answers for one sample too few', text('{"rewards": [1]}'), 'malformed'],
    ['answers for one sample too many', text('{"rewards": [1, 1, 1]}'), 'malformed'],
    ['answers with a megabyte too much', text(`{"rewards": [1, 1]}${' '.repeat(2 ** 20)}`), 'malformed'],
    ['answers without an end', flood, 'malformed'],
    ['answers with an error without an end', floodOf(500), 'malformed'],
    ['sends the request on', redirect(302), 'refused'],
    ['sends the request on with its body', redirect(307), 'refused'],
  ])('that %s gives null and a reason, never 0.5 or 0', async (_, answering, failure) => {
    // Only what waits for the time limit has a short one: under load an answer may take as long.
    const timeoutMs = failure === 'hung' ? 300 : 60_000
    const judgments = await judged(await serve(answering), 2, { timeoutMs })
    expect(judgments).toHaveLength(2)
    for (const judgment of judgments) {
      expect(judgment).toMatchObject({ value: null, failure })
      expect(judgment.error).not.toBe('')
    }
  })

  test('is not followed to another address, which would be told the right answers', async () => {
    for (const status of [301, 302, 303, 307, 308]) {
      const url = await serve(redirect(status))
      expect(await judged(url, 2, { retries: 3 })).toMatchObject([
        { value: null, failure: 'refused', error: expect.stringContaining('/elsewhere') },
        { value: null },
      ])
      expect(seen).toHaveLength(1)
      server?.closeAllConnections()
      server?.close()
    }
  })

  test('may answer with as many bytes as it is allowed, and no more', async () => {
    const answer = '{"rewards": [0.25]}'.padEnd(200)
    expect(await judged(await serve(text(answer)), 1, { maxAnswerBytes: 200 })).toMatchObject([{ value: 0.25 }])
    server?.closeAllConnections()
    server?.close()
    expect(await judged(await serve(text(answer)), 1, { maxAnswerBytes: 199 })).toMatchObject([
      { value: null, failure: 'malformed', error: 'the server’s answer has more than 199 bytes'.replace('’', "'") },
    ])
  })

  test('that is not there gives null and a reason', async () => {
    const url = await serve(lengths)
    await new Promise((resolve) => server!.close(resolve))
    expect(await judged(url, 1)).toMatchObject([{ value: null, failure: 'unreachable' }])
  })

  test('that knows some rewards leaves only the others unknown', async () => {
    const url = await serve(text('{"rewards": [0.25, null, "0.5", 1e999]}'))
    expect(await judged(url, 4)).toMatchObject([
      { value: 0.25 },
      failed('unknown', 'the server gave null'),
      { value: null, failure: 'notANumber' },
      { value: null, failure: 'notANumber' },
    ])
  })

  test('is asked again where that may help, and not where it cannot', async () => {
    expect(
      await judged(await serve(text('', 503), reset, hang, lengths), 2, { retries: 3, timeoutMs: 1500 }),
    ).toMatchObject([{ value: 0 }, { value: 1 }])
    expect(seen).toHaveLength(4)
    server?.closeAllConnections()
    server?.close()
    expect(await judged(await serve(text('', 400), lengths), 1, { retries: 3 })).toMatchObject([{ failure: 'refused' }])
    expect(seen).toHaveLength(1)
    server?.closeAllConnections()
    server?.close()
    expect(await judged(await serve(text('{}'), lengths), 1, { retries: 3 })).toMatchObject([{ failure: 'malformed' }])
    expect(seen).toHaveLength(1)
  })

  test('is left when the caller aborts', async () => {
    const controller = new AbortController()
    const judgeBatch = createRemoteRewardProcessor({ url: await serve(hang), batchSize: 1, retries: 5, timeoutMs: 1e6 })
    const input = { prompt: '', completion: '', example: { prompt: '' } }
    const judgments = judgeBatch([input, input], controller.signal)
    setTimeout(() => controller.abort(), 50)
    expect(await judgments).toMatchObject([{ failure: 'aborted' }, { failure: 'aborted' }])
    expect(seen).toHaveLength(1)
  })
})
