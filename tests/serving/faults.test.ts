/** A server that goes wrong on purpose, and what of its answers is believed: held to its own record of what it generated. */
import { expect, test } from 'vitest'
import { refreshWeights } from '../../src/cohorts/conversations.ts'
import { type FaultKind, faultKinds, vllmEngine } from '../../src/entries/engines.ts'
import { createTrainer, createWorld, rl } from '../../src/index.ts'
import { digits } from '../support/conversations.ts'
import { opened } from '../support/gateway.ts'
import { lookup } from '../support/lookup.ts'
import * as fc from '../support/properties.ts'
import { get, post, served, smallModel, stream } from '../support/serving.ts'
import { temporaryFolder } from '../support/temporary.ts'

const KINDS = Object.keys(faultKinds) as FaultKind[]
/** Those that hit a request to generate, and leave the server's weights as they are. */
const OF_ANSWERS = KINDS.filter((kind) => !/refused|ignored|not-applied|old-weights|restarted/.test(kind))
/** A server that answers at once, a moment later or never leaves that much time. */
const DEADLINE = 2

/** A gateway over an engine that asks a server, which goes wrong as the list says that is returned. */
async function faulty() {
  const schedule: (FaultKind | null)[] = []
  const server = await served({ control: true, faults: { schedule }, slots: 8 })
  const engine = (retries: number) => vllmEngine({ url: server.url, retries, deadline: DEADLINE })
  const gateways = [
    await opened({ policy: smallModel(), engine: engine(0), slots: 8 }),
    await opened({ policy: smallModel(), engine: engine(1), slots: 8 }),
  ]
  let numAsked = 0
  const plan = (kinds: readonly (FaultKind | null)[]): number => {
    numAsked += server.faultRecords!(numAsked).length
    schedule.length = Math.min(schedule.length, numAsked)
    while (schedule.length < numAsked) schedule.push(null)
    schedule.push(...kinds)
    return numAsked
  }
  return { server, gateways, plan }
}

test('whatever goes wrong, what stands in the table was generated so, and nothing that was answered is lost', async () => {
  const { server, gateways, plan } = await faulty()
  await post(`${server.url}/update_weight_version`, { new_version: '5' })
  let [numRight, numWrong] = [0, 0]
  const kinds = fc.oneof(fc.constant(null), fc.constantFrom(...OF_ANSWERS.filter((kind) => kind !== 'hang')))
  const run = fc.asyncProperty(
    fc.array(kinds, { minLength: 1, maxLength: 8 }),
    fc.array(fc.record({ calls: fc.integer({ min: 1, max: 3 }), words: fc.string({ maxLength: 4 }) }), {
      minLength: 1,
      maxLength: 3,
    }),
    fc.integer({ min: 0, max: 1 }),
    async (schedule, agents, retries) => {
      const gateway = gateways[schedule.some((kind) => kind?.startsWith('status')) ? 0 : retries]!
      const from = plan(schedule)
      const ended = await Promise.all(
        agents.map(async ({ calls, words }) => {
          const session = gateway.openSession({ group: from })
          const headers = { authorization: `Bearer ${session.key}`, 'content-type': 'application/json' }
          const messages: object[] = []
          let answered = 0
          for (let call = 0; call < calls; call++) {
            const asked = { model: 'm', max_tokens: 4, messages: [...messages, { role: 'user', content: words }] }
            const { status, json } = await post(`${session.openaiUrl}/chat/completions`, asked, { headers })
            if (status === 200) {
              answered++
              messages.push({ role: 'user', content: words }, json.choices[0].message)
            } else expect(json.error.message.length).toBeGreaterThan(10) // It says why.
          }
          numRight += answered
          numWrong += calls - answered
          return { answered, rows: session.end({ reward: 1 }).rows }
        }),
      )
      // An answer that was broken off goes on in another request, behind what it had.
      const truths = new Set<string>()
      for (const { turns } of server.faultRecords!(from)) {
        for (const { prompt, ids, logprobs, versions } of turns) {
          ids.forEach((id, i) => {
            const version = versions[i] === '5' ? 5 : -1
            truths.add([[...prompt, ...ids.slice(0, i)], id, Math.fround(logprobs[i]!), version].join('|'))
          })
        }
      }
      for (const { answered, rows } of ended) {
        const turns = new Set<number>()
        for (const { token, lossMask, logprob, version, turn } of rows) {
          const ids = Array.from(token)
          for (const [t, id] of ids.entries()) {
            if (lossMask[t] !== 1) continue
            turns.add(turn[t]!)
            expect(truths).toContain([ids.slice(0, t), id, Math.fround(logprob[t]!), version[t]].join('|'))
          }
        }
        expect(turns.size).toBe(answered)
      }
    },
  )
  await fc.assert(run, { numRuns: import.meta.env.MODE === 'properties' ? 250 : 60 }) // 5,000 schedules in npm run properties.
  expect([numRight > 40, numWrong > 20]).toEqual([true, true])
}, 3_600_000)

test('each fault of an answer is a failure that says why, or changes nothing', { timeout: 60_000 }, async () => {
  const { gateways, plan, server } = await faulty()
  const [gateway] = gateways
  const ask = async () => {
    const session = gateway!.openSession()
    const headers = { authorization: `Bearer ${session.key}`, 'content-type': 'application/json' }
    const body = { model: 'm', max_tokens: 6, messages: [{ role: 'user', content: 'hi' }] }
    const { status, json } = await post(`${session.openaiUrl}/chat/completions`, body, { headers })
    return { status, why: json.error?.message ?? null, ...session.end({ reward: 1 }) }
  }
  expect((await ask()).status).toBe(200)
  const harmless: FaultKind[] = ['slow', 'version-swap', 'aborted-empty', 'aborted-half', 'restarted', 'old-weights']
  const found: Record<string, string> = {}
  for (const kind of KINDS.filter((each) => OF_ANSWERS.includes(each) || harmless.includes(each))) {
    plan([kind])
    const { status, why, rows } = await ask()
    if (harmless.includes(kind)) expect([kind, status, rows.length]).toEqual([kind, 200, 1])
    else expect([kind, status, rows.length]).toEqual([kind, 502, 0])
    found[kind] = why
  }
  expect(found).toMatchObject({
    'status-402': expect.stringContaining('status 402'),
    hang: expect.stringContaining(`no answer in ${DEADLINE} s`),
    'half-json': expect.stringMatching(/generate: /),
    'not-json': expect.stringContaining('expected a JSON object'),
    'null-logprob': expect.stringContaining('expected a number ≤ 0'),
    'other-token': expect.stringContaining('expected a number ≤ 0 of token'),
    'unknown-token': expect.stringContaining('expected ids below'),
    'other-answer': expect.stringContaining('answer, request_id'),
    'version-gap': expect.stringContaining('runs of them'),
    'mode-not-echoed': expect.stringContaining('output_mode'),
    'length-short': expect.stringContaining('5 tokens of 6, and length'),
  })
  const told = (await get(`${server.url}/faults`)).json.records
  expect(told.at(-1)).toMatchObject({
    route: '/inference/v1/generate',
    fault: KINDS.at(-1),
    turns: [{ ids: expect.any(Array) }],
  })
})

test('weights that are refused, not applied or lost again are found at the latest with the next', {
  timeout: 60_000,
}, async () => {
  const schedule: (FaultKind | null)[] = []
  const server = await served({ control: true, faults: { schedule } })
  const engine = vllmEngine({ url: server.url, retries: 0, weights: await temporaryFolder() })
  const world = await createWorld({ environment: lookup(), policy: smallModel(), numLanes: 1, seed: 4, engine })
  const cohort = world.cohort()
  const deliver = (version: number) => refreshWeights(cohort, version)
  const next = (...kinds: (FaultKind | null)[]) => {
    schedule.length = 0
    schedule.push(...new Array(server.faultRecords!().length).fill(null), ...kinds)
  }
  next('pause-refused')
  await expect(deliver(1)).rejects.toThrow('status 503, no pause')
  next(null, 'update-refused')
  await expect(deliver(2)).rejects.toThrow('status 500, no new weights')
  const change = () => cohort.weights.set(cohort.weights.map((weight) => 1.5 * weight))
  change()
  next(null, 'not-applied')
  await expect(deliver(3)).rejects.toThrow(
    /log-probabilities \S+ nats from the learner's, of version 3, expected at most/,
  )
  next()
  await deliver(4)
  expect(cohort.engine.version).toBe(4)
  next('old-weights') // Its own first probe finds it.
  change()
  await expect(deliver(5)).rejects.toThrow(/nats from what they were when version 4 was delivered/)
})

test('weights that are lost under their name between two answers end the training before it learns from either', {
  timeout: 60_000,
}, async () => {
  const schedule: (FaultKind | null)[] = []
  const server = await served({ control: true, faults: { schedule } })
  const engine = vllmEngine({ url: server.url, retries: 0, weights: await temporaryFolder() })
  const respond = ({ completion }: { completion: string }) => ({ reward: completion.length })
  const environment = digits({ numExamples: 2, maxTokens: 4, respond })
  const world = await createWorld({
    ...{ environment, policy: smallModel(), numLanes: 4, groupSize: 2, seed: 4 },
    engine,
  })
  const trainer = createTrainer(world, rl({ groupsPerUpdate: 2, groupSize: 2, updates: 3 }))
  const { weights } = world.cohort()
  weights.set(weights.map((weight) => 1.5 * weight))
  const updates = trainer.updates({})
  expect((await updates.next()).value!.rl!.drops).toEqual({})
  const before = weights.slice()
  schedule.push(...new Array(server.faultRecords!().length + 1).fill(null), 'old-weights')
  await expect(updates.next()).rejects.toThrow(
    /log-probabilities \S+ nats from what they were when version 1 was delivered, expected at most 0.0001: what it chose/,
  )
  expect(server.faultRecords!().map(({ fault }) => fault)).toContain('old-weights')
  expect(weights).toEqual(before)
  await trainer.close()
})

test('a stream stops where it is said, and chance keeps to its seed', async () => {
  const server = await served({ faults: { schedule: ['stream-stops'] } })
  const body = { model: 'small', prompt: 'hi', max_tokens: 8, seed: 1 }
  await expect(stream(`${server.url}/v1/completions`, body)).rejects.toThrow()
  expect((await stream(`${server.url}/v1/completions`, body)).length).toBeGreaterThan(2)
  const statuses = async (seed: number) => {
    const { url } = await served({ faults: { kinds: ['status-500', 'status-429'], rate: 0.5, seed } })
    const all = []
    for (let i = 0; i < 12; i++) all.push((await post(`${url}/v1/completions`, { ...body, max_tokens: 1 })).status)
    return all.join()
  }
  const [first, again, other] = [await statuses(1), await statuses(1), await statuses(2)]
  expect([first === again, first === other, /500/.test(first), /429/.test(first), /200/.test(first)]).toEqual([
    ...[true, false, true, true, true],
  ])
  await expect(served({ faults: { kinds: ['status-501' as never] } })).rejects.toThrow('faults: got "status-501"')
  await expect(served({ faults: { rate: 2 } })).rejects.toThrow('faults, rate: got 2')
})
