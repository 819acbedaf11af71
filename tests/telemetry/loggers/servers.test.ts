/** Loggers that are servers, or ask some: here ones of the test's own. */
import { afterEach, expect, test, vi } from 'vitest'
import { type Body, type Listening, listen, RequestError, type Route } from '../../../src/base/http/server.ts'
import { type LogEntry, type LoggedTraining, mlflow, prometheus, trackio } from '../../../src/entries/loggers.ts'

const training: LoggedTraining = {
  ...{ name: 'a "run"\\', folder: null, settings: { seed: 3, 'ppo.gamma': 0.9 }, done: 0 },
  metrics: { phaseSeconds: { unit: 's', description: 'by kind\\of work', reduction: 'last' } },
}
const entry = (step: number, values: Record<string, number>): LogEntry => ({
  ...{ step, time: 1_700_000_000_000 + step, values },
  ...{ distributions: {}, texts: {} },
})

const open: Listening[] = []
afterEach(async () => {
  vi.unstubAllEnvs()
  for (const server of open.splice(0)) {
    const closed = server.close()
    server.closeConnections()
    await closed
  }
})

/** A server that keeps what it was asked. */
async function recording(answers: Readonly<Record<string, Route>>) {
  const asked: { readonly path: string; readonly body: Body; readonly token: unknown }[] = []
  const routes = Object.entries(answers).map(([path, route]): [string, Route] => [
    path,
    (request) => {
      const { authorization, 'x-trackio-write-token': token } = request.headers
      asked.push({ path, body: request.body, token: authorization ?? token })
      return route(request)
    },
  ])
  const server = await listen(new Map(routes), { host: '127.0.0.1', port: 0, maxBodyBytes: 1e6 })
  open.push(server)
  return { url: server.url, asked }
}

test('prometheus answers with the newest entry until it is closed', async () => {
  const logger = await prometheus({ port: 0 }).open(training)
  const read = async () => (await fetch(logger.place!)).text()
  expect(await read()).toBe('')
  await logger.write([
    entry(1, { loss: 1 }),
    entry(2, { loss: -0.5, 'phaseSeconds/forward': 2, high: Infinity, low: -Infinity, Loss: 7 }),
  ])
  const label = '{run="a \\"run\\"\\\\"}'
  expect(await read()).toBe(
    [
      '# TYPE colonnade_step gauge',
      `colonnade_step${label} 2`,
      '# TYPE colonnade_loss gauge',
      `colonnade_loss${label} -0.5`,
      '# HELP colonnade_phase_seconds_forward by kind\\\\of work; s',
      '# TYPE colonnade_phase_seconds_forward gauge',
      `colonnade_phase_seconds_forward${label} 2`,
      '# TYPE colonnade_high gauge',
      `colonnade_high${label} +Inf`,
      '# TYPE colonnade_low gauge',
      `colonnade_low${label} -Inf`, // And no second `colonnade_loss`, as `Loss` would be.
      '',
    ].join('\n'),
  )
  const { headers } = await fetch(logger.place!)
  expect(headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
  await logger.close?.('complete')
  await expect(fetch(logger.place!)).rejects.toThrow()
})

test('prometheus at a port that is taken cannot be opened', async () => {
  const { url } = await recording({})
  const port = Number(new URL(url).port)
  await expect(prometheus({ port }).open(training)).rejects.toThrow(/^port: got 127.0.0.1:\d+ \(.*EADDRINUSE/)
})

test('trackio is sent entries with ids, and the settings once', async () => {
  vi.stubEnv('TRACKIO_WRITE_TOKEN', 'secret')
  let isDown = true
  const { url, asked } = await recording({
    'POST /api/bulk_log': () => {
      if (isDown) throw new RequestError(400, 'not now')
      return {}
    },
  })
  const logger = await trackio({ url, project: 'mine' }).open(training)
  expect(logger.isRepeatable).toBe(true)
  await expect(logger.write([entry(1, { loss: 1 })])).rejects.toThrow('not now')
  isDown = false
  await logger.write([entry(1, { loss: 1 }), entry(2, { loss: 2, high: Infinity })])
  const sent = asked.map(({ body }) => (body as { logs: Record<string, unknown>[] }).logs)
  expect(sent[1]).toEqual([
    {
      ...{ project: 'mine', run: training.name, metrics: { loss: 1 }, step: 1 },
      ...{ log_id: expect.any(String), config: training.settings },
    },
    expect.objectContaining({ metrics: { loss: 2 }, step: 2 }),
  ])
  expect(sent[1]![1]).not.toHaveProperty('config')
  expect(sent[0]![0]!.log_id).toBe(sent[1]![0]!.log_id)
  expect(sent[1]![1]!.log_id).not.toBe(sent[1]![0]!.log_id)
  // A training that goes on sends the same step anew, which is another entry.
  await (await trackio({ url, project: 'mine' }).open({ ...training, done: 1 })).write([entry(2, { loss: 3 })])
  const [again] = (asked.at(-1)!.body as { logs: Record<string, unknown>[] }).logs
  expect(again!.log_id).not.toBe(sent[1]![1]!.log_id)
  expect(asked[0]!.token).toBe('secret')
})

test('mlflow gets a run of an experiment, settings and numbers in pieces that it takes, and the end', async () => {
  vi.stubEnv('MLFLOW_TRACKING_TOKEN', 'secret')
  const api = '/api/2.0/mlflow'
  const { url, asked } = await recording({
    [`GET ${api}/experiments/get-by-name`]: ({ query }) => {
      expect(query.get('experiment_name')).toBe('mine & more')
      throw new RequestError(404, 'no such experiment')
    },
    [`POST ${api}/experiments/create`]: () => ({ experiment_id: '7' }),
    [`POST ${api}/runs/create`]: () => ({ run: { info: { run_id: 'r1' } } }),
    [`POST ${api}/runs/log-batch`]: () => ({}),
    [`POST ${api}/runs/update`]: () => ({}),
  })
  const settings = Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`k${i}`, i === 6 ? 'x'.repeat(900) : i]))
  const logger = await mlflow({ url, experiment: 'mine & more' }).open({ ...training, settings })
  const values = Object.fromEntries(Array.from({ length: 600 }, (_, i) => [`v${i}`, i]))
  await logger.write([entry(1, values), entry(2, { ...values, 'a%b': 1, high: Infinity })])
  await logger.close?.('interrupted')
  const posted = asked
    .filter(({ path }) => path.startsWith('POST'))
    .map(({ path, body }) => [path.split('/').at(-1), body])
  expect(posted.map(([name]) => name)).toEqual([
    ...['create', 'create', 'log-batch', 'log-batch', 'log-batch', 'log-batch', 'update'],
  ])
  expect(posted[1]![1]).toMatchObject({ experiment_id: '7', run_name: training.name })
  const batches = posted
    .slice(2, 6)
    .map(([, body]) => body as { run_id: string; params?: object[]; metrics?: object[] })
  expect(batches.map(({ run_id, params, metrics }) => [run_id, (params ?? metrics)!.length])).toEqual([
    ...[
      ['r1', 100],
      ['r1', 1],
      ['r1', 1000],
      ['r1', 201],
    ],
  ])
  expect(batches[0]!.params![5]).toEqual({ key: 'k5', value: '5' })
  expect(batches[0]!.params![6]).toEqual({ key: 'k6', value: 'x'.repeat(500) })
  expect(batches[3]!.metrics!.at(-1)).toEqual({ key: 'a_b', value: 1, step: 2, timestamp: 1_700_000_000_002 })
  expect(posted[6]![1]).toMatchObject({ run_id: 'r1', status: 'KILLED' })
  expect(asked[0]!.token).toBe('Bearer secret')
})

test('mlflow takes the experiment that another training has made in the meantime', async () => {
  const api = '/api/2.0/mlflow'
  let isMade = false
  const { url, asked } = await recording({
    [`GET ${api}/experiments/get-by-name`]: () => {
      if (!isMade) throw new RequestError(404, 'no such experiment')
      return { experiment: { experiment_id: '9' } }
    },
    [`POST ${api}/experiments/create`]: () => {
      isMade = true
      throw new RequestError(400, 'it is there')
    },
    [`POST ${api}/runs/create`]: () => ({ run: { info: { run_id: 'r1' } } }),
    [`POST ${api}/runs/log-batch`]: () => ({}),
  })
  await mlflow({ url }).open(training)
  const { body } = asked.find(({ path }) => path.endsWith('/runs/create'))!
  expect(body).toMatchObject({ experiment_id: '9' })
})
