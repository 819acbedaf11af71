/** The README's programs are type-checked against the built declarations, and its commands are put to the command line's readers. */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { readKeys, readTexts, splitWords } from '../src/base/invocation.ts'
import { benchKeys } from '../src/cli/commands/bench.ts'
import { checkKeys } from '../src/cli/commands/check.ts'
import { diagnoseKeys } from '../src/cli/commands/diagnose.ts'
import { evaluateKeys } from '../src/cli/commands/evaluate.ts'
import { exportKeys, textExportKeys } from '../src/cli/commands/export.ts'
import { generateKeys } from '../src/cli/commands/generate.ts'
import { playKeys } from '../src/cli/commands/play.ts'
import { pushKeys } from '../src/cli/commands/push.ts'
import { replayKeys } from '../src/cli/commands/replay.ts'
import { resumeKeys } from '../src/cli/commands/resume.ts'
import { simulateKeys } from '../src/cli/commands/simulate.ts'
import { rolloutTable } from '../src/entries/data.ts'
import { cartPole, collect, configureRun, createWorld, mlp, writeArrow } from '../src/index.ts'
import { parseSeeds } from '../src/training/groups/run-group.ts'
import { entrySpecifiers } from './support/entries.ts'
import { blocksOf, pages } from './support/guides.ts'
import { temporaryFolder } from './support/temporary.ts'

const root = new URL('..', import.meta.url).pathname
const text = readFileSync(join(root, 'README.md'), 'utf8')
const blocks = (language: string) =>
  [...text.matchAll(new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``, 'g'))].map(([, code]) => code!)

/** The words of a shell's line, without its comment. */
function wordsOf(line: string): string[] {
  return [...line.replace(/\s# .*/, '').matchAll(/(?:"[^"]*"|\S)+/g)].map(([word]) => word.replaceAll('"', ''))
}
const lines = blocks('sh').flatMap((block) => block.replaceAll('\\\n', ' ').trim().split('\n'))
const commands = lines.filter((line) => line.startsWith('npx colonnade ')).map((line) => wordsOf(line).slice(2))

/** An Arrow file of rollouts of CartPole-v1. */
async function rolloutsFile(): Promise<string> {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [2] }), numLanes: 2 })
  world.reserve(world.draft(), { numSteps: 4, learner: {} })
  await collect(world, 4)
  const path = join(await temporaryFolder(), 'rollouts.arrow')
  await writeArrow(path, rolloutTable(world.cohort(), { seed: world.seed }))
  return path
}

describe('the README', () => {
  test('has programs whose types are right, and so have the guides', { timeout: 60_000 }, async () => {
    const folder = await temporaryFolder()
    const programs = blocks('ts').map((text, i) => ({ name: `${i}.ts`, text }))
    const shown = pages.flatMap((page) =>
      blocksOf(page)
        .filter(({ language }) => language === 'js')
        .map(({ file, text }, i) => ({ name: `${basename(page)}/${file ?? `${i}.mjs`}`, text })),
    )
    expect(programs.length).toBeGreaterThan(0)
    expect(shown.length).toBeGreaterThan(pages.length)
    const files = [...programs, ...shown].map(({ name, text }) => {
      const file = join(folder, name)
      mkdirSync(dirname(file), { recursive: true })
      writeFileSync(file, text)
      return file
    })
    writeFileSync(join(folder, 'package.json'), JSON.stringify({ type: 'module' }))
    const { exports } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    const ours = Object.entries<{ types?: string }>(exports).flatMap(([entry, { types }]) =>
      types === undefined ? [] : [[entry.replace('.', 'colonnade'), [join(root, types)]]],
    )
    const paths = [...ours, ['bitecs', [join(root, 'node_modules/bitecs/dist/core/index.d.ts')]]]
    const compilerOptions = {
      ...{ target: 'es2022', module: 'nodenext', lib: ['es2023'], noEmit: true },
      ...{ strict: true, exactOptionalPropertyTypes: true, skipLibCheck: true },
      ...{ allowJs: true, checkJs: true },
      ...{ types: ['node'], typeRoots: [join(root, 'node_modules/@types')], paths: Object.fromEntries(paths) },
    }
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }))
    const tsc = join(root, 'node_modules/typescript-native/bin/tsc')
    const { status, stdout } = spawnSync(process.execPath, [tsc, '-p', folder], { cwd: folder, encoding: 'utf8' })
    expect([status, stdout]).toEqual([0, ''])
  })

  test.each(commands.filter(([name, , ...rest]) => name === 'train' && !rest.includes('--help')))(
    'has keys that training takes: %s %s %s %s',
    async (_, ...words) => {
      const { subject, texts } = splitWords(words, 'an environment')
      const { out: _out, seeds, ...keys } = texts
      if (seeds !== undefined) expect(parseSeeds(seeds).length).toBeGreaterThan(1)
      // What a command before has written.
      const found = keys.from === undefined ? keys : { ...keys, from: await rolloutsFile() }
      const definition = await configureRun(subject, found)
      expect(definition.kind).toBe(subject.startsWith('text/') ? 'conversations' : 'episodes')
    },
  )

  test('has keys that the other commands take', async () => {
    const readers: Readonly<Record<string, (texts: Record<string, string>, subject: string) => unknown>> = {
      train: () => ({}), // Above.
      resume: async ({ from = '0', ...settings }) => {
        readKeys(resumeKeys, { from })
        await configureRun('CartPole-v1', settings)
      },
      evaluate: (texts) => readKeys(evaluateKeys, texts),
      diagnose: (texts) => readKeys(diagnoseKeys, texts),
      replay: (texts) => readKeys(replayKeys, texts),
      play: (texts) => readKeys(playKeys, texts),
      generate: (texts) => readKeys(generateKeys, texts),
      export: ({ out: _, ...texts }, subject) =>
        readKeys(subject === 'runs/words' ? textExportKeys : exportKeys, texts),
      validate: (texts) => readKeys({}, texts),
      bench: (texts) => readKeys(benchKeys, texts),
    }
    const alone = ['environments', 'dashboard', 'doctor', '--help']
    for (const [name, ...words] of commands) {
      if (alone.includes(name!)) expect(words).toEqual([])
      else if (name === 'check') readKeys(checkKeys, splitWords(words, 'an environment').texts)
      else if (name === 'simulate') readKeys(simulateKeys, readTexts(words))
      else if (name === 'sweep') {
        const { subject, texts } = splitWords(words, 'an environment')
        const { seeds, ...keys } = texts
        expect(seeds).toMatch(/^\d+\.\.\d+$/)
        const first = Object.entries(keys).map(([key, value]) => [key, value.split(',')[0]!])
        await configureRun(subject, Object.fromEntries(first))
      } else if (name === 'push') readKeys(pushKeys, splitWords([words[0]!, ...words.slice(2)], 'a run').texts)
      else {
        expect(Object.keys(readers)).toContain(name)
        const { subject, texts } = splitWords(
          words.filter((word) => !word.startsWith('--')),
          'a run',
        )
        await readers[name!]!(texts, subject)
      }
    }
    expect(commands.length).toBeGreaterThan(15)
  })

  test('goes on with runs and files that a command before has made', () => {
    const made = new Set<string>()
    const whoMade = (path: string) => [...made].find((each) => path === each || path === `${each}/model`)
    for (const line of lines) {
      const [program, , name, subject = '', ...rest] = wordsOf(line)
      const into = /> (\S+)$/.exec(line)?.[1]
      if (into) made.add(into)
      if (program !== 'npx') continue
      if (
        ![
          'train',
          'sweep',
          'play',
          'simulate',
          'environments',
          'check',
          'bench',
          'dashboard',
          'doctor',
          '--help',
        ].includes(name!)
      )
        expect(whoMade(subject), line).toBeDefined()
      for (const word of rest) {
        const [key, value] = word.split('=') as [string, string | undefined]
        if (['environment.path', 'languageModel.folder', 'from'].includes(key))
          expect(whoMade(value!), line).toBeDefined()
        if (key === 'out') made.add(value!)
      }
    }
    expect(made.size).toBeGreaterThan(4)
  })

  test('says of each entry of the package what is there', () => {
    const [, , ...rows] = text
      .match(/\n((?:\|.*\n)+)/)![1]!
      .split('\n')
      .slice(0, -1)
    const listed = rows.map((row) => /^\| `(colonnade[^`]*)` \| \S/.exec(row)?.[1])
    expect([...listed, 'colonnade'].toSorted()).toEqual(entrySpecifiers.toSorted())
  })

  test('has no link to a file that is not there, and no script that the package lacks', () => {
    const links = [...text.matchAll(/\]\((?!https?:)([^)#]+)\)/g)].map(([, file]) => file!)
    expect(links.length).toBeGreaterThan(5)
    expect(links.filter((file) => !existsSync(join(root, file)))).toEqual([])
    const { scripts } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    const named = [
      ...blocks('sh')
        .join('')
        .matchAll(/npm run (\w+)/g),
    ].map(([, script]) => script!)
    expect(named.filter((script) => !Object.hasOwn(scripts, script))).toEqual([])
  })
})
