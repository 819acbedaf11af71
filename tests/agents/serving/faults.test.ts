/** A server that goes wrong on purpose, and what of its answers is believed: held to its own record of what it generated. */
import { createHash } from 'node:crypto'
import { setImmediate as immediate } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { type FaultKind, faultKinds, sglangEngine, vllmEngine } from '../../../src/entries/engines.ts'
import { createTrainer, createWorld, rl } from '../../../src/index.ts'
import type { Trajectory } from '../../../src/tables/trajectories/trajectory.ts'
import { refreshWeights } from '../../../src/world/conversations/cohort.ts'
import { digits } from '../../support/conversations.ts'
import { opened } from '../../support/gateway.ts'
import { lookup } from '../../support/lookup.ts'
import * as fc from '../../support/properties.ts'
import { get, post, served, smallModel, stream } from '../../support/serving.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const KINDS = Object.keys(faultKinds) as FaultKind[]
/** Those that hit a request to generate, and leave the server's weights as they are. */
const OF_ANSWERS = KINDS.filter((kind) => !/refused|ignored|not-applied|old-weights|restarted/.test(kind))
/** Those of requests to break off, to pause, and to take weights; and those that leave other weights. */
const OF_CONTROL = KINDS.filter((kind) => !OF_ANSWERS.includes(kind))
/** A server that answers at once, a moment later or never leaves that much time. */
const DEADLINE = 2

/** A gateway over an engine that asks a server, which goes wrong as the list says that is returned. */
async function faulty(kind: typeof vllmEngine | typeof sglangEngine = vllmEngine) {
  const schedule: (FaultKind | null)[] = []
  const server = await served({ control: true, faults: { schedule }, slots: 8 })
  const engine = kind({ url: server.url, retries: 0, deadline: DEADLINE })
  const gateway = await opened({ policy: smallModel(), engine, slots: 8 })
  const plan = (kinds: readonly (FaultKind | null)[]): void => {
    schedule.length = 0
    schedule.push(...new Array(server.faultRecords!().length).fill(null), ...kinds)
  }
  return { server, gateway, plan }
}

/** Agents ask at once, and maybe leave before their answer; weights may be delivered meanwhile; and what then goes wrong. */
interface Step {
  readonly agents: readonly { readonly calls: number; readonly words: string; readonly leaves: number | null }[]
  readonly factor: number | null
  readonly faults: readonly (FaultKind | null)[]
}

const steps = fc.array(
  fc.record({
    agents: fc.array(
      fc.record({
        calls: fc.integer({ min: 1, max: 3 }),
        words: fc.string({ maxLength: 4 }),
        leaves: fc.oneof({ weight: 3, arbitrary: fc.constant(null) }, { weight: 1, arbitrary: fc.nat(12) }),
      }),
      { maxLength: 3 },
    ),
    factor: fc.option(fc.constantFrom(0.75, 1.25, 1.5), { freq: 2 }),
    faults: fc.array(
      fc.oneof(
        { weight: 200, arbitrary: fc.constant(null) },
        { weight: 200, arbitrary: fc.constantFrom(...OF_ANSWERS.filter((kind) => kind !== 'hang')) },
        { weight: 200, arbitrary: fc.constantFrom(...OF_CONTROL) },
        { weight: 1, arbitrary: fc.constant<FaultKind>('hang') }, // It takes as long as the deadline.
      ),
      { maxLength: 8 },
    ),
  }),
  { minLength: 1, maxLength: 3 },
)

/** A server that goes wrong, an engine that asks it and delivers weights to it, and a gateway over the engine. */
async function learning(kind: typeof vllmEngine | typeof sglangEngine, retries: number) {
  const schedule: (FaultKind | null)[] = []
  const server = await served({ control: true, faults: { schedule }, slots: 8 })
  const engine = kind({ url: server.url, retries, deadline: DEADLINE, weights: await temporaryFolder() })
  const options = { environment: lookup(), policy: smallModel(), numLanes: 8, seed: 4, engine }
  const world = await createWorld(options)
  const gateway = await opened({ world })
  const cohort = world.cohort()
  cohort.onNotice = () => {}
  const first = cohort.weights.slice()
  /** Of each version: what its weights are, and whether the delivery was proved, or why not. */
  const delivered: { readonly digest: string; isProved: boolean; why: string }[] = []
  const deliver = async (factor: number): Promise<boolean> => {
    cohort.weights.set(first.map((weight) => factor * weight))
    const { buffer, byteOffset, byteLength } = cohort.weights
    const digest = createHash('sha256')
      .update(new Uint8Array(buffer, byteOffset, byteLength))
      .digest('hex')
    const delivery = { digest, isProved: false, why: '' }
    delivered.push(delivery)
    try {
      await refreshWeights(cohort, delivered.length - 1)
      delivery.isProved = true
    } catch (error) {
      delivery.why = (error as Error).message
      expect(delivery.why).toMatch(/^weights of engine .*: got .*, expected /s) // It says why.
    }
    return delivery.isProved
  }
  let numAsked = 0
  /** What goes wrong of the requests to come; returns how many there were. */
  /** Whether all that was chosen since the last call was chosen by the weights that it names. */
  const prove = () =>
    cohort.engine.prove!().catch((error: Error) => {
      expect(error.message).toMatch(/^weights of engine .*: got .*, expected /s)
      return false
    })
  const plan = (kinds: readonly (FaultKind | null)[]): number => {
    numAsked += server.faultRecords!(numAsked).length
    schedule.length = Math.min(schedule.length, numAsked)
    while (schedule.length < numAsked) schedule.push(null)
    schedule.push(...kinds)
    return numAsked
  }
  return { server, gateway, delivered, deliver, prove, plan }
}

test('whatever goes wrong, what stands in the table was generated so, by the weights of its version, and nothing is lost', async () => {
  const made = [await learning(vllmEngine, 0), await learning(vllmEngine, 1), await learning(sglangEngine, 0)]
  for (const { deliver } of made) expect(await deliver(1)).toBe(true)
  const counts = { right: 0, wrong: 0, left: 0, refused: 0, dropped: 0, lies: 0 }
  const hit = new Set<FaultKind | null>()
  const run = fc.asyncProperty(steps, fc.nat(made.length - 1), async (all: readonly Step[], which) => {
    const { server, gateway, delivered, deliver, prove, plan } = made[which]!
    const from = plan([])
    const ended: { readonly answered: number; readonly left: number; readonly rows: readonly Trajectory[] }[] = []
    for (const { agents, factor, faults } of all) {
      plan(faults)
      const asking = agents.map(async ({ calls, words, leaves }, member) => {
        const session = gateway.openSession({ group: from, member })
        const headers = { authorization: `Bearer ${session.key}`, 'content-type': 'application/json' }
        const messages: object[] = []
        let [answered, left] = [0, 0]
        for (let call = 0; call < calls; call++) {
          const asked = { model: 'm', max_tokens: 4, messages: [...messages, { role: 'user', content: words }] }
          const leaving = new AbortController()
          const answering = post(`${session.openaiUrl}/chat/completions`, asked, { headers, signal: leaving.signal })
          if (leaves !== null) {
            answering.catch(() => {})
            for (let i = 0; i < leaves; i++) await immediate()
            leaving.abort()
          }
          const answer = await answering.catch((error: Error) => {
            if (leaves === null) throw error
          })
          if (answer === undefined) left++
          else if (answer.status === 200) {
            answered++
            messages.push({ role: 'user', content: words }, answer.json.choices[0].message)
          } else {
            counts.wrong++
            expect(answer.json.error.message.length).toBeGreaterThan(10) // It says why.
          }
        }
        ended.push({ answered, left, rows: session.end({ reward: 1 }).rows })
      })
      // One that lies between the probe before a delivery and the pause is not found: it is not tried.
      if (faults.includes('old-weights')) await Promise.all(asking)
      const delivering = factor === null ? true : deliver(factor)
      await Promise.all(asking)
      if (!(await delivering)) counts.refused++
    }
    plan([])
    // As before anything is learned from what it chose.
    const isProved = await prove()
    if (!isProved) counts.dropped++
    for (let tries = 0; !(await deliver(1)); tries++) expect(tries, delivered.at(-1)!.why).toBeLessThan(5)

    const truths = new Map<string, Set<string>>()
    for (const { turns, fault } of server.faultRecords!(from)) {
      hit.add(fault)
      for (const { prompt, ids, logprobs, versions, weights } of turns) {
        ids.forEach((id, i) => {
          const version = /^\d+$/.test(versions[i]!) ? Number(versions[i]) : -1
          const key = [[...prompt, ...ids.slice(0, i)], id, Math.fround(logprobs[i]!), version].join('|')
          if (!truths.has(key)) truths.set(key, new Set())
          truths.get(key)!.add(weights[i]!)
        })
      }
    }
    for (const { answered, left, rows } of ended) {
      const turns = new Set<number>()
      for (const { token, lossMask, logprob, version, turn } of rows) {
        const ids = Array.from(token)
        for (const [t, id] of ids.entries()) {
          if (lossMask[t] !== 1) continue
          turns.add(turn[t]!)
          const truth = truths.get([ids.slice(0, t), id, Math.fround(logprob[t]!), version[t]].join('|'))
          expect(truth, `token ${t} of version ${version[t]}`).toBeDefined()
          const { digest } = delivered[version[t]!]!
          if (isProved) expect(truth).toContain(digest)
          else if (!truth!.has(digest)) counts.lies++
        }
      }
      expect(turns.size).toBeGreaterThanOrEqual(answered)
      expect(turns.size).toBeLessThanOrEqual(answered + left)
      counts.right += answered
      counts.left += left
    }
  })
  await fc.assert(run, { numRuns: import.meta.env.MODE === 'properties' ? 250 : 15 }) // 5,000 schedules in npm run properties.
  if (import.meta.env.MODE === 'properties') {
    console.info(
      `schedules of faults: ${JSON.stringify(counts)}; faults that were put in: ${hit.size - 1} of ${KINDS.length}`,
    )
    expect([...hit].filter((kind) => kind !== null).toSorted()).toEqual(KINDS.toSorted())
    expect(counts.lies).toBeGreaterThan(0)
  }
  for (const count of [counts.right, counts.wrong, counts.left, counts.refused]) expect(count).toBeGreaterThan(3)
}, 3_600_000)

test('each fault of an answer is a failure that says why, or changes nothing', { timeout: 60_000 }, async () => {
  const { gateway, plan, server } = await faulty()
  const ask = async () => {
    const session = gateway.openSession()
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

test('an answer of another request is a failure, of each kind of server', async () => {
  for (const [kind, why] of [
    [vllmEngine, 'answer, request_id: got '],
    [sglangEngine, 'answer, meta_info.id: got '],
  ] as const) {
    const { gateway, plan } = await faulty(kind)
    const session = gateway.openSession()
    const headers = { authorization: `Bearer ${session.key}`, 'content-type': 'application/json' }
    const body = { model: 'm', max_tokens: 6, messages: [{ role: 'user', content: 'hi' }] }
    const ask = () => post(`${session.openaiUrl}/chat/completions`, body, { headers })
    expect((await ask()).status).toBe(200)
    plan(['other-answer'])
    const { status, json } = await ask()
    expect([status, json.error.message]).toEqual([502, expect.stringContaining(why)])
    expect(session.end({ reward: 1 }).counts.calls).toBe(1)
  }
})

test('a server that does not break off what it is asked to costs nothing: the turn is nobody’s, and others go on', async () => {
  const { gateway, plan, server } = await faulty()
  const session = gateway.openSession()
  const headers = { authorization: `Bearer ${session.key}`, 'content-type': 'application/json' }
  const ask = (signal?: AbortSignal) => {
    const body = { model: 'm', max_tokens: 6, messages: [{ role: 'user', content: 'hi' }] }
    return post(`${session.openaiUrl}/chat/completions`, body, { headers, ...(signal && { signal }) })
  }
  const told = async (route: string) => {
    while (server.faultRecords!().at(-1)?.route !== route) await immediate()
    return server.faultRecords!().at(-1)!
  }
  await post(`${server.url}/pause?mode=keep`, {})
  plan([null, 'abort-ignored'])
  const leaving = new AbortController()
  const gone = ask(leaving.signal).catch(({ name }) => name)
  await told('/inference/v1/generate')
  leaving.abort()
  expect([await gone, (await told('/inference/v1/abort_requests')).fault]).toEqual(['AbortError', 'abort-ignored'])
  await post(`${server.url}/resume`, {})
  expect((await ask()).status).toBe(200)
  const { rows, counts } = session.end({ reward: 1 })
  const { ids } = server.faultRecords!().at(-1)!.turns[0]!
  expect(counts.calls).toBe(1)
  expect(rows.map(({ token, lossMask }) => Array.from(token).filter((_, t) => lossMask[t] === 1))).toEqual([ids])
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
  next(null, 'update-refused', 'update-refused') // Nor can the update be ended.
  await expect(deliver(2)).rejects.toThrow('status 500, no new weights')
  next()
  await deliver(2) // One that is under way still is ended first.
  const change = () => cohort.weights.set(cohort.weights.map((weight) => 1.5 * weight))
  change()
  next(null, null, 'not-applied') // Behind the probe of what it had, and the pause.
  await expect(deliver(3)).rejects.toThrow(
    /log-probabilities \S+ nats from the learner's, at version 3, expected at most/,
  )
  next()
  await deliver(4)
  expect(cohort.engine.version).toBe(4)
  next('other-answer') // What it answered to the probe before is no answer to this one.
  await expect(deliver(5)).rejects.toThrow('answer, request_id: got ')
  next()
  await deliver(5)
  next('old-weights') // Its own first probe finds it.
  change()
  await expect(deliver(6)).rejects.toThrow(/nats from those at the delivery of version 5/)
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
    /log-probabilities \S+ nats from those at the delivery of version 1, expected at most 0.0001: what it chose/,
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
