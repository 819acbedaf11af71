/** The server of the page. */
import { readdirSync } from 'node:fs'
import { appendFile, mkdir, readdir, readFile, rename, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { isThisMachine } from '../../../src/base/http/caller.ts'
import { type Dashboard, openDashboard } from '../../../src/entries/loggers.ts'
import { metricLines, writeConversations, writeRun } from '../../support/run-folders.ts'
import { temporaryFolder } from '../../support/temporary.ts'

const HOSTILE = '<img src=x onerror=alert(1)>'

let folder: string
let page: Dashboard
beforeAll(async () => {
  folder = await temporaryFolder()
  const metrics = metricLines(...Array.from({ length: 5000 }, (_, i) => ({ steps: 10 * i, loss: i })))
  await writeRun(join(folder, 'first'), { metrics, status: 'complete' })
  await writeRun(join(folder, HOSTILE), { metrics: metricLines({ steps: 1, [HOSTILE]: 2, third: 1 / 3 }) })
  await writeConversations(join(folder, 'first', 'trajectories', '1.arrow'), [HOSTILE, 'b'])
  await writeFile(join(folder, 'first', 'replay.gif'), 'GIF89a')
  page = await openDashboard({ folder, port: 0, pollMs: 5 })
})
afterAll(() => page.close())

async function ask(path: string) {
  return (await fetch(page.url + path)).json()
}

describe('the page', () => {
  test('is served with its modules, which import one another alone, and may ask nobody else', async () => {
    const response = await fetch(page.url)
    expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8')
    const policy = response.headers.get('content-security-policy')!
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
    const html = await response.text()
    expect(html).not.toMatch(/https?:|<script(?! type="module" src="main\.js">)|style=|\son\w+=/)
    const modules = readdirSync(new URL('../../../src/telemetry/dashboard/page', import.meta.url)).map((name) =>
      name.replace('.ts', '.js'),
    )
    modules.push('filter.js', 'curves.js', 'explained.js', 'fleet-record.js') // Which are not of the page alone.
    expect(modules).toContain('main.js')
    for (const name of [...modules, 'page.css', 'icon.svg']) {
      const file = await fetch(`${page.url}/${name}`)
      expect(file.status, name).toBe(200)
      expect(file.headers.get('content-security-policy')).toBe(policy)
      const text = await file.text()
      expect(text).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|url\(/)
      for (const [, from] of text.matchAll(/^(?:import|export) .* from ['"](.*)['"]/gm))
        expect(modules).toContain(from!.replace(/^(\.\/|(\.\.\/)+)/, ''))
    }
  })

  test('is told of runs, and of curves of no more points than it can draw', async () => {
    const { runs } = await ask('/api/runs')
    expect(runs.map(({ id }: { id: string }) => id)).toEqual([HOSTILE, 'first'])
    const some = await ask('/api/runs?run=first&run=unknown')
    expect([some.ids, some.runs]).toEqual([[HOSTILE, 'first'], [runs[1]]])
    expect(runs[0].names).toContain(HOSTILE)
    const query = new URLSearchParams({ metric: 'loss', over: 'steps' })
    for (const id of ['first', '../..', HOSTILE]) query.append('run', id)
    const { curves } = await ask(`/api/curves?${query}`)
    expect(Object.keys(curves)).toEqual(['first', '../..', HOSTILE])
    const { x, y } = curves.first
    expect([x.length, y.length]).toEqual([1250, 1250])
    expect([x[0], y[0], y[1]]).toEqual([15, 1.5, 5.5])
    expect(curves['../..']).toEqual({ x: [], y: [] })
    const byLine = (await ask('/api/curves?metric=loss&run=first')).curves.first
    expect([byLine.x[0], byLine.y[0]]).toEqual([2.5, 1.5])
    expect((await ask(`/api/curves?metric=third&run=${encodeURIComponent(HOSTILE)}`)).curves[HOSTILE]).toEqual({
      ...{ x: [1], y: [0.3333333] },
    })
  })

  test.each([
    ['/api/curves', 400, 'metric: got nothing, expected the name of a metric'],
    ['/api/conversations?run=first&file=config.json', 404, 'file: got "config.json", expected a file of the run'],
    ['/api/conversations?run=first', 404, 'file: got null, expected a file of the run'],
    [
      '/api/conversations?run=first&file=trajectories/1.arrow&from=-1',
      400,
      'from: got "-1", expected a whole number ≥ 0',
    ],
    [
      '/api/rows?run=first&file=trajectories/1.arrow&where=a',
      400,
      'filter: got "a", expected a filter like reward > 0.5',
    ],
    ['/api/replay?run=../first', 404, 'run: got "../first", expected a run of this page'],
    [
      `/api/replay?run=${encodeURIComponent(HOSTILE)}`,
      404,
      `run: got ${JSON.stringify(HOSTILE)}, expected a run with a replay.gif`,
    ],
    ['/../config.json', 404, 'there is no /config.json'],
    ['/first/config.json', 404, 'there is no /first/config.json'],
  ])('refuses %s', async (path, status, message) => {
    const response = await fetch(page.url + path)
    expect(response.status).toBe(status)
    expect((await response.json()).error.message).toBe(message)
  })

  test('is given conversations a group at a time, and the picture of an episode where there is one', async () => {
    const query = new URLSearchParams({ run: 'first', file: 'trajectories/1.arrow' })
    const { group } = await ask(`/api/conversations?${query}`)
    expect(group).toMatchObject({ place: 0, numGroups: 1, numConversations: 2 })
    expect(group.conversations[0].blocks[1].texts.join('')).toBe(HOSTILE)
    expect(await ask(`/api/conversations?${query}&from=1`)).toEqual({ group: null })
    const { runs } = await ask('/api/runs')
    expect(runs[0]).toMatchObject({ folder: join(folder, HOSTILE), replayTime: null })
    expect(runs[1].replayTime).toBeGreaterThan(1e12)
    const picture = await fetch(`${page.url}/api/replay?run=first`)
    expect([picture.headers.get('content-type'), await picture.text()]).toEqual(['image/gif', 'GIF89a'])
  })

  test('is given the state of a fleet as its learner told it, with its age, and told of a new one', async () => {
    const here = await temporaryFolder()
    await writeRun(join(here, 'one'))
    const own = await openDashboard({ folder: here, port: 0, pollMs: 5 })
    onTestFinished(() => own.close())
    const get = async (path: string) => (await fetch(`${own.url}/api/${path}`)).json()
    const timeOf = async () => (await get('runs')).runs[0].fleetTime
    await expect.poll(timeOf).toBe(null)
    const state = { address: 'nats://host:4222/x', actors: [], queue: { tasks: 3, results: 1 } }
    await writeFile(join(here, 'one', 'fleet.json'), JSON.stringify(state))
    await expect.poll(timeOf).toBeGreaterThan(1e12)
    const before = new Date(Date.now() - 60_000)
    await utimes(join(here, 'one', 'fleet.json'), before, before)
    const answer = await get('fleet?run=one')
    expect(answer.fleet).toEqual(state)
    expect(answer.ageSeconds).toBeGreaterThanOrEqual(60)
    await writeFile(join(here, 'one', 'fleet.json'), '[')
    expect((await get('fleet?run=one')).error.message).toBe(
      'fleet.json: got no JSON object, expected the state of a fleet',
    )
  })

  describe('writes notes and tags', () => {
    const json = { 'content-type': 'application/json' }
    async function served(options: object = {}) {
      const here = await temporaryFolder()
      await writeRun(join(here, 'one'))
      const own = await openDashboard({ folder: here, port: 0, pollMs: 5, ...options })
      onTestFinished(() => own.close())
      const get = async () => (await fetch(`${own.url}/api/runs`)).json()
      await expect.poll(async () => (await get()).runs.length).toBe(1)
      const post = async (body: unknown, headers: Record<string, string> = { origin: own.url }, run = 'one') => {
        const target = `${own.url}/api/notes?${new URLSearchParams({ run })}`
        const answer = await fetch(target, {
          method: 'POST',
          headers: { ...json, ...headers },
          body: JSON.stringify(body),
        })
        return [answer.status, (await answer.json()).error?.message]
      }
      return { here, own, get, post, path: join(here, 'one', 'notes.json') }
    }

    test('of a run into its folder, and reads them again', async () => {
      const { here, get, post, path } = await served()
      const annotation = { note: 'diverges\nlate', tags: ['baseline', HOSTILE.replaceAll(' ', '_')] }
      expect(await post({ ...annotation, tags: [...annotation.tags, 'baseline'] })).toEqual([200, undefined])
      expect(JSON.parse(await readFile(path, 'utf8'))).toEqual(annotation)
      await expect.poll(async () => (await get()).runs[0].annotation).toEqual(annotation)
      const another = await openDashboard({ folder: here, port: 0 })
      onTestFinished(() => another.close())
      await expect
        .poll(async () => (await (await fetch(`${another.url}/api/runs`)).json()).runs[0]?.annotation)
        .toEqual(annotation)
      expect(await post({})).toEqual([200, undefined])
      expect((await readdir(join(here, 'one'))).includes('notes.json')).toBe(false)
      await expect.poll(async () => (await get()).runs[0].annotation).toEqual({ note: '', tags: [] })
    })

    test.each([
      [{ note: 5 }, 'note: got 5, expected a text of at most 4000 characters'],
      [{ note: 'a'.repeat(4001) }, 'note: got a text of 4001 characters, expected a text of at most 4000 characters'],
      [{ tags: 'a' }, 'tags: got "a", expected a list of at most 20 words'],
      [{ tags: Array(21).fill('a') }, 'tags: got a list of 21, expected a list of at most 20 words'],
      [{ tags: ['a b'] }, 'tag: got "a b", expected a word of at most 50 characters without spaces'],
      [{ text: 'a' }, 'option of a run\'s notes: got "text", expected one of note, tags'],
      [JSON.parse('{"__proto__":{"note":"a"}}'), expect.stringContaining('got "__proto__"')],
    ])('but not %o', async (body, message) => {
      const { post, here } = await served()
      expect(await post(body)).toEqual([400, message])
      expect(await readdir(join(here, 'one'))).not.toContain('notes.json')
    })

    test('of its own page alone, of a run of the page, and not through a link', async () => {
      const { here, post, path } = await served()
      const elsewhere = join(here, 'elsewhere.json')
      await writeFile(elsewhere, '{}')
      expect(await post({ note: 'a' }, {})).toEqual([403, 'Origin: got none, expected that of this page'])
      expect((await post({ note: 'a' }, { origin: 'http://evil.example' }))[0]).toBe(403)
      expect((await post({ note: 'a' }, { origin: 'null' }))[0]).toBe(403)
      expect((await post({ note: 'a'.repeat(40_000) }))[0]).toBe(413)
      expect(await post({ note: 'a' }, undefined, '../one')).toEqual([
        404,
        'run: got "../one", expected a run of this page',
      ])
      await symlink(elsewhere, path)
      expect(await post({ note: 'a' })).toEqual([400, expect.stringContaining('got a link or a special file')])
      expect(await readFile(elsewhere, 'utf8')).toBe('{}')
    })

    test('but nothing where it is read-only, as it always is where other machines reach it', async () => {
      for (const options of [{ readOnly: true }, { host: '0.0.0.0' }]) {
        const { own, get, post, path } = await served(options)
        expect((await get()).isReadOnly).toBe(true)
        expect(await post({ note: 'a' }, { origin: own.url })).toEqual([403, expect.stringContaining('is read-only')])
        await expect(readFile(path)).rejects.toThrow('ENOENT')
      }
      await expect(openDashboard({ folder, port: 0, readOnly: 1 } as never)).rejects.toThrow('readOnly: got 1')
      for (const host of ['127.0.0.1', '127.3.2.1', 'localhost', 'LOCALHOST', '::1'])
        expect(isThisMachine(host)).toBe(true)
      for (const host of [
        '',
        '0.0.0.0',
        '::',
        '10.0.0.1',
        'host.docker.internal',
        'localhost.example.com',
        '127.0.0.1.nip.io',
      ])
        expect([host, isThisMachine(host)]).toEqual([host, false])
    })

    test('of many that ask at once, each whole', async () => {
      const { here, post, path } = await served()
      const all = Array.from({ length: 30 }, (_, i) => `${i} `.repeat(1 + ((37 * i) % 300)))
      const codes = (await Promise.all(all.map((note) => post({ note })))).map(([code]) => code)
      expect(new Set(codes)).toEqual(new Set([200]))
      expect(all).toContain(JSON.parse(await readFile(path, 'utf8')).note)
      expect((await readdir(join(here, 'one'))).filter((name) => name.includes('notes'))).toEqual(['notes.json'])
    })

    test('but not of a run that was removed, whose folder does not come back', async () => {
      const { here, post } = await served()
      await rm(join(here, 'one'), { recursive: true })
      expect((await post({ note: 'a' }))[0]).toBeGreaterThanOrEqual(400)
      expect(await readdir(here)).toEqual([])
    })

    test('but not for a page elsewhere whose name leads here', async () => {
      const { own, path } = await served()
      const headers = { ...json, host: 'evil.example', origin: 'http://evil.example' }
      const code = await new Promise((resolve) => {
        const asked = request(`${own.url}/api/notes?run=one`, { method: 'POST', headers }, (response) =>
          resolve(response.resume().statusCode),
        )
        asked.end('{"note":"a"}')
      })
      expect(code).toBe(403)
      await expect(readFile(path)).rejects.toThrow('ENOENT')
    })

    test('and reads them again where the file is another of the same size and time', async () => {
      const { get, post, path } = await served()
      await post({ note: 'one' })
      await expect.poll(async () => (await get()).runs[0].annotation.note).toBe('one')
      const { mtime } = await stat(path)
      await writeFile(`${path}.new`, (await readFile(path, 'utf8')).replace('one', 'two'))
      await utimes(`${path}.new`, mtime, mtime)
      await utimes(path, mtime, mtime)
      await expect.poll(async () => (await get()).runs[0].annotation.note).toBe('one')
      await rename(`${path}.new`, path)
      await expect.poll(async () => (await get()).runs[0].annotation.note).toBe('two')
    })

    test('and tells of a damaged file', async () => {
      const { get, path } = await served()
      await writeFile(path, '{"tags":7}')
      await expect
        .poll(async () => (await get()).runs[0].notes)
        .toEqual(['notes.json cannot be read (tags: got 7, expected a list of at most 20 words)'])
    })

    test.each([
      ['{"tags":7}', 'tags: got 7, expected a list of at most 20 words'],
      ['{"note":"by hand",}', 'no JSON object'],
      ['{"note":"cut o', 'no JSON object'],
      ['', 'no JSON object'],
      ['[]', 'no JSON object'],
    ])('but does not overwrite or remove the damaged %j', async (text, why) => {
      const { post, path } = await served()
      await writeFile(path, text)
      for (const body of [{ note: 'a' }, {}]) {
        const [status, message] = await post(body)
        expect([status, message]).toEqual([400, expect.stringMatching(/^notes\.json: got a damaged file .*$/)])
        expect(message).toContain(why)
      }
      expect(await readFile(path, 'utf8')).toBe(text)
      await rm(path)
      expect(await post({ note: 'a' })).toEqual([200, undefined])
    })
  })

  test('is not for a page elsewhere whose name leads here', async () => {
    const status = await new Promise((resolve) => {
      const url = new URL('/api/runs', page.url)
      request(url, { headers: { host: 'evil.example' } }, (response) => resolve(response.resume().statusCode)).end()
    })
    expect(status).toBe(403)
  })

  test('is told when a run has gone on', async () => {
    const { body } = await fetch(`${page.url}/api/changes`)
    const reader = body!.pipeThrough(new TextDecoderStream()).getReader()
    expect((await reader.read()).value).toBe('event: changed\ndata: {"type":"changed","runs":[]}\n\n')
    await appendFile(join(folder, HOSTILE, 'metrics.jsonl'), metricLines({ steps: 2 }))
    expect((await reader.read()).value).toContain(JSON.stringify({ type: 'changed', runs: [HOSTILE] }))
    const { runs } = await ask('/api/runs')
    expect(runs[0].lines).toBe(2)
    await reader.cancel()
  })

  test('is told of the changes of many runs in few messages', async () => {
    const here = await temporaryFolder()
    const names = Array.from({ length: 60 }, (_, i) => `run-${i}`)
    for (const name of names) await writeRun(join(here, name), { metrics: metricLines({ steps: 1 }) })
    const own = await openDashboard({ folder: here, port: 0, pollMs: 300 })
    onTestFinished(() => own.close())
    const { found, ids } = (await (await fetch(`${own.url}/api/runs`)).json()) as Record<string, string[]>
    expect([found, found!.slice(0, ids!.length)]).toEqual([names, ids]) // All are known before they are read.
    const reader = (await fetch(`${own.url}/api/changes`)).body!.pipeThrough(new TextDecoderStream()).getReader()
    await reader.read()
    await Promise.all(names.map((name) => appendFile(join(here, name, 'metrics.jsonl'), metricLines({ steps: 2 }))))
    const begun = performance.now()
    const told = new Set<string>()
    let numMessages = 0
    while (told.size < names.length) {
      const { value } = await reader.read()
      for (const [, runs] of value!.matchAll(/"runs":(\[.*?\])/g)) {
        numMessages++
        for (const id of JSON.parse(runs!) as string[]) told.add(id)
      }
    }
    expect(numMessages).toBeLessThan(5 + (performance.now() - begun) / 250) // A scan is told at once, a long one now and then.
    await reader.cancel()
  })

  test('looks at the folders itself while nobody is told of changes, and when asked where somebody waits for one', async () => {
    const here = await temporaryFolder()
    await writeRun(join(here, 'one'))
    const own = await openDashboard({ folder: here, port: 0, pollMs: 2 ** 30 })
    onTestFinished(() => own.close())
    expect(own.numRuns).toBe(1)
    const ids = async () => {
      const { folder, runs } = (await (await fetch(`${own.url}/api/runs`)).json()) as {
        folder: string
        runs: { id: string }[]
      }
      expect(folder).toBe(here)
      return runs.map(({ id }) => id)
    }
    await expect.poll(ids).toEqual(['one'])
    await writeRun(join(here, 'two'))
    await expect.poll(ids).toEqual(['one', 'two'])
    const reader = (await fetch(`${own.url}/api/changes`)).body!.pipeThrough(new TextDecoderStream()).getReader()
    await reader.read()
    await writeRun(join(here, 'three'))
    expect(await ids()).toEqual(['one', 'two']) // Whoever is told of changes need not be told twice.
    const closed = own.close()
    expect((await reader.read().catch(() => ({ done: true }))).done).toBe(true)
    await closed
  })

  test('serves no picture that is none', async () => {
    const here = await temporaryFolder()
    await writeRun(join(here, 'one'))
    await mkdir(join(here, 'one', 'replay.gif'))
    const own = await openDashboard({ folder: here, port: 0 })
    onTestFinished(() => own.close())
    await fetch(`${own.url}/api/runs`)
    const response = await fetch(`${own.url}/api/replay?run=one`)
    expect([response.status, (await response.json()).error.message]).toEqual([
      400,
      'replay.gif: got a folder, expected a picture',
    ])
  })

  test('in a thread of its own is closed while it is asked, and then nobody answers', async () => {
    const own = await openDashboard({ folder, port: 0, ownThread: true })
    expect(own.numRuns).toBe(2)
    const asked = Array.from({ length: 30 }, (_, i) =>
      fetch(`${own.url}/api/${i % 2 ? 'curves?metric=loss&run=first' : 'changes'}`).then(
        () => 'answered',
        () => 'broken off',
      ),
    )
    await own.close()
    expect(await Promise.all(asked)).toHaveLength(30)
    await expect(fetch(own.url)).rejects.toThrow()
  })

  test('needs a folder, a free address, and options that it knows', async () => {
    await expect(openDashboard({ folder: join(folder, 'nowhere') })).rejects.toThrow(
      'nowhere: got no such folder, expected a folder with runs',
    )
    const port = Number(new URL(page.url).port)
    await expect(openDashboard({ folder, port })).rejects.toThrow(
      /^port: got 127.0.0.1:\d+ \(.*expected a free address/,
    )
    await expect(openDashboard({ folder, port, ownThread: true })).rejects.toThrow(/^port: got 127.0.0.1:\d+/)
    await expect(openDashboard({ prot: 1 } as never)).rejects.toThrow('option of openDashboard: got "prot"')
    await expect(openDashboard({ folder, pollMs: 0 })).rejects.toThrow('pollMs: got 0')
  })
})
