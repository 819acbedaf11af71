import { mkdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { beforeEach, describe, expect, test, vi } from 'vitest'
import { colonnade, inProcess, MAIN, skipLoudly, start } from './support/command.ts'
import { temporaryFolder } from './support/temporary.ts'

const INDEX = new URL('../dist/src/index.js', import.meta.url).href
const BUILT = new URL('../dist/src/', import.meta.url).href
const LINE_WORLD = fileURLToPath(new URL('./support/line-world.mjs', import.meta.url))

/** A module that leaves a mark where it is run, and has an environment. */
const marking = (mark: string): string => `
  import { writeFileSync } from 'node:fs'
  writeFileSync(${JSON.stringify(mark)}, 'run')
  export { lineWorld } from ${JSON.stringify(pathToFileURL(LINE_WORLD).href)}`
const RL = ['totalSteps=64', 'numLanes=4', 'mlp.hidden=4', 'ppo.numSteps=16', 'ppo.numMinibatches=1', 'threads=1']

let base: string
let mark: string
let settings: Record<string, string>

/** `base/project/env.mjs` is the user's own; `base/project/runs/own` a run of it; `base/far/env.mjs` lies elsewhere. */
beforeEach(async () => {
  base = await temporaryFolder()
  mark = join(base, 'mark')
  settings = { XDG_CONFIG_HOME: join(base, 'settings') }
  await mkdir(join(base, 'project'))
  await mkdir(join(base, 'far'))
  for (const place of ['project', 'far']) await writeFile(join(base, place, 'env.mjs'), marking(mark))
  vi.stubEnv('XDG_CONFIG_HOME', settings.XDG_CONFIG_HOME)
})

/** A finished run at `base/project/runs/own` whose config.json names this module, as a stranger would write it. */
async function stranger(module: string, key: 'environment' | 'policy' = 'environment'): Promise<string> {
  const { configureRun, startRun } = await import(INDEX)
  const run = join(base, 'project/runs/own')
  const small = Object.fromEntries(RL.map((word) => word.split('=')))
  await (await startRun(await configureRun('CartPole-v1', small), run)).train()
  const config = JSON.parse(await readFile(join(run, 'config.json'), 'utf8'))
  config[key] = { ...config[key], id: key === 'environment' ? 'LineWorld-v0' : 'mine', parameters: {}, module }
  await writeFile(join(run, 'config.json'), JSON.stringify(config))
  return run
}

const wasRun = () =>
  readFile(mark).then(
    () => true,
    () => false,
  )
const project = () => join(base, 'project')
const at = (path: string) => pathToFileURL(join(base, path)).href

describe('a module that a run folder names', () => {
  const OUTSIDE = /which lies outside the working directory .*trust=.*env\.mjs.*colonnade trust/s

  test.each(['resume', 'evaluate', 'export'])(
    '%s does not run one from elsewhere, and says its place',
    async (command) => {
      const run = await stranger(at('far/env.mjs'))
      const words = command === 'export' ? [command, run, 'out=x.safetensors', 'format=safetensors'] : [command, run]
      const { code, stderr } = await inProcess(words, project())
      expect(stderr).toMatch(OUTSIDE)
      expect(stderr).toContain(join(base, 'far/env.mjs'))
      expect(code).toBe(1)
      expect(await wasRun()).toBe(false)
    },
  )

  test('in the run folder itself is not run, nor through a link, nor by a data: URL, nor as another part of a run', async () => {
    const { openRun } = await import(INDEX)
    const run = await stranger(at('project/runs/own/env.mjs'))
    await writeFile(join(run, 'env.mjs'), marking(mark))
    vi.spyOn(process, 'cwd').mockReturnValue(project())
    await expect(openRun(run)).rejects.toThrow(/env\.mjs, which lies inside the run folder/)
    for (const cwd of [run, join(base, 'far')]) {
      vi.spyOn(process, 'cwd').mockReturnValue(cwd)
      await expect(openRun(run)).rejects.toThrow(/which lies inside the run folder/)
    }
    vi.spyOn(process, 'cwd').mockReturnValue(project())
    await symlink(join(run, 'env.mjs'), join(base, 'project/link.mjs'))
    const config = await readFile(join(run, 'config.json'), 'utf8')
    const naming = (module: string) =>
      writeFile(join(run, 'config.json'), config.replace(/"file:[^"]+"/, JSON.stringify(module)))
    await naming(at('project/link.mjs'))
    await expect(openRun(run)).rejects.toThrow(/own\/env\.mjs, which lies inside the run folder/)
    await naming('env.mjs')
    await expect(openRun(run)).rejects.toThrow(/own\/env\.mjs, which lies inside the run folder/)
    await naming(`data:text/javascript,${encodeURIComponent(marking(mark))}`)
    await expect(openRun(run)).rejects.toThrow(/environment module of .*expected a module in a file/)
    await naming('node:fs')
    await expect(openRun(run)).rejects.toThrow(/expected a module in a file/)
    await naming('../../../far/env.mjs')
    await expect(openRun(run)).rejects.toThrow(OUTSIDE)
    await writeFile(
      join(run, 'config.json'),
      config.replace(/"environment".*?\}.*?\}/s, (part) =>
        part.replace(/,\s*"module":.*?"(?=\s*\})/s, '').replace('LineWorld-v0', 'CartPole-v1'),
      ),
    )
    const plain = JSON.parse(await readFile(join(run, 'config.json'), 'utf8'))
    const mine = { id: 'mine', parameters: {}, module: at('far/env.mjs') }
    for (const [noun, change] of [
      ['policy', { policy: mine }],
      ['algorithm', { algorithm: mine }],
      ['system', { systems: [mine] }],
      ['wrapper', { environment: { ...plain.environment, wrappers: [mine] } }],
    ] as const) {
      await writeFile(join(run, 'config.json'), JSON.stringify({ ...plain, ...change }))
      await expect(openRun(run)).rejects.toThrow(new RegExp(`${noun} module of .*outside the working directory`))
    }
    expect(await wasRun()).toBe(false)
    vi.restoreAllMocks()
  })

  test('of a text environment is not run either, by any of the ways in', async () => {
    const run = join(base, 'text')
    await mkdir(run)
    const environment = { id: 'text/x', parameters: {}, module: at('far/env.mjs') }
    const config = {
      colonnade: '0',
      environment,
      policy: { id: 'languageModel', parameters: {} },
      sft: null,
      rl: null,
      settings: {},
    }
    await writeFile(join(run, 'config.json'), JSON.stringify(config))
    const ways = [['resume'], ['evaluate'], ['export', 'out=m'], ['generate', 'prompt=a'], ['validate']]
    const ended = await Promise.all(ways.map(([command, ...rest]) => inProcess([command!, run, ...rest], project())))
    for (const { stderr, code } of ended) {
      expect(stderr).toMatch(OUTSIDE)
      expect(code).toBeGreaterThan(0)
    }
    expect(await wasRun()).toBe(false)
  })

  test('is allowed by a list where the system keeps a user’s settings, of places and checksums', async () => {
    const { trustList, trustModule } = await import(`${BUILT}entries/settings.js`)
    expect(trustList()).toBe(join(settings.XDG_CONFIG_HOME!, 'colonnade', 'trusted-modules.json'))
    const { path, checksum } = await trustModule(join(base, 'far/env.mjs'))
    expect(JSON.parse(await readFile(trustList(), 'utf8'))).toEqual({ [path]: checksum })
    vi.stubEnv('XDG_CONFIG_HOME', '')
    vi.stubEnv('APPDATA', join(base, 'roaming'))
    expect(trustList()).toBe(join(base, 'roaming', 'colonnade', 'trusted-modules.json'))
  })

  test('is run where the command line names it, or the list has it as it is, and not once it has changed', async () => {
    const run = await stranger(at('far/env.mjs'))
    const far = join(base, 'far/env.mjs')
    const { openRun } = await import(INDEX)
    const { trustModule } = await import(`${BUILT}entries/settings.js`)
    const named = await colonnade(['evaluate', run, 'episodes=1', `trust=../far/env.mjs`], project(), settings)
    expect(named.stderr).not.toContain('outside the working directory')
    expect(await wasRun()).toBe(true)
    await expect(openRun(run)).rejects.toThrow(OUTSIDE)

    await writeFile(join(base, 'far/part.mjs'), 'export const part = 1')
    await writeFile(far, `import './part.mjs'\n${marking(mark)}`)
    const kept = await colonnade(['trust', '../far/env.mjs'], project(), settings)
    expect(kept.stdout).toMatch(/^[0-9a-f]{64} {2}.*far\/env\.mjs\n$/)
    expect((await openRun(run)).environment.id).toBe('LineWorld-v0')
    await writeFile(join(base, 'far/part.mjs'), 'export const part = 2')
    await expect(openRun(run)).rejects.toThrow(OUTSIDE)
    await trustModule(far)
    await openRun(run)
    await writeFile(far, `import './part.mjs'\n${marking(mark)}// more`)
    await expect(openRun(run)).rejects.toThrow(OUTSIDE)
    const asked: string[] = []
    const allowModule = ({ folder, path, checksum }: Record<string, string>) => {
      asked.push(folder!, path!, checksum!)
      return true
    }
    expect((await openRun(run, { allowModule })).environment.id).toBe('LineWorld-v0')
    expect(asked).toEqual([run, far, expect.stringMatching(/^[0-9a-f]{64}$/)])
    await writeFile(join(settings.XDG_CONFIG_HOME!, 'colonnade/trusted-modules.json'), '{"a": 1}')
    await expect(openRun(run)).rejects.toThrow(/trusted-modules\.json: got a: 1, expected a SHA-256 for each path/)
  })
})

test('on a terminal the question is put, and an answer kept where it says always', async (context) => {
  const run = await stranger(at('far/env.mjs'))
  const evaluate = `'${process.execPath}' '${MAIN}' evaluate '${run}' episodes=1`
  const answered = async (answer: string): Promise<string> => {
    const words = ['-c', `printf '${answer}' | script -qfec "${evaluate}" /dev/null`]
    const environment = { ...process.env, ...settings }
    const { stdout } = await start('sh', words, { cwd: project(), env: environment }).ended
    return stdout
  }
  const no = await answered('n\\n')
  if (!no.includes('which lies outside the working directory')) skipLoudly(context, `no terminal here (${no})`)
  expect(no).toContain(`asks to run a program from elsewhere:\r\n  ${join(base, 'far/env.mjs')}\r\n  SHA-256 `)
  expect(no).toContain('which lies outside the working directory')
  expect(await wasRun()).toBe(false)
  await answered('y\\n')
  expect(await wasRun()).toBe(true)
  await rm(mark)
  expect(await answered('a\\n')).toContain('Run it?')
  expect(await wasRun()).toBe(true)
  expect(await answered('n\\n')).not.toContain('Run it?')
})

test('a project that is moved takes its runs along', async () => {
  const text = await readFile(LINE_WORLD, 'utf8')
  await writeFile(join(project(), 'env.mjs'), text.replaceAll('../../dist/src/', BUILT))
  const words = ['train', './env.mjs', 'out=runs/a', ...RL]
  expect((await colonnade(words, project(), settings)).code).toBe(0)
  const { environment } = JSON.parse(await readFile(join(project(), 'runs/a/config.json'), 'utf8'))
  expect(environment.module).toBe('../../env.mjs')
  await rename(project(), join(base, 'moved'))
  const moved = await colonnade(['evaluate', 'runs/a', 'episodes=1', '--json'], join(base, 'moved'), settings)
  expect(moved.stderr).toBe('')
  expect(JSON.parse(moved.stdout)).toMatchObject({ environment: 'LineWorld-v0', episodes: 1 })
})
