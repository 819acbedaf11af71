/** A bundle of somebody's has Colonnade's code, and finds its files in the package that is installed where the bundle runs. */
import { spawnSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { rolldown } from 'rolldown'
import { beforeAll, describe, expect, test } from 'vitest'
import { temporaryFolder } from './support/temporary.ts'
import { rowsOf } from './support/tiers.ts'

const root = new URL('..', import.meta.url).pathname
const folder = join(await temporaryFolder(), 'bundle é')
const formats = { esm: 'out.mjs', cjs: 'out.cjs' } as const

const PROGRAM = `
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { cartPole, createTrainer, createWorld, mlp, ppo, writeArrow } from 'colonnade'
async function main() {
  const world = await createWorld({ environment: cartPole(), policy: mlp({ hidden: [8] }), numLanes: 4, seed: 1 })
  const trainer = createTrainer(world, ppo({ numSteps: 16 }), { threads: Number(process.argv[2]) })
  for await (const _ of trainer.updates({ totalSteps: 256 }));
  await writeArrow('rollout.arrow', trainer.rollout.table)
  console.log(createHash('sha256').update(readFileSync('rollout.arrow')).digest('hex'))
  trainer.close()
}
main().catch(({ message }) => { console.error(message); process.exitCode = 1 })
`

beforeAll(async () => {
  mkdirSync(join(folder, 'installed/node_modules'), { recursive: true })
  mkdirSync(join(folder, 'moved'))
  symlinkSync(root, join(folder, 'installed/node_modules/colonnade'))
  writeFileSync(join(folder, 'installed/main.mjs'), PROGRAM)
  const bundle = await rolldown({
    input: join(folder, 'installed/main.mjs'),
    platform: 'node',
    onLog: (level, { message }) => {
      throw new Error(`${level}: ${message}`)
    },
  })
  for (const place of ['installed', 'moved']) {
    for (const [format, name] of Object.entries(formats)) {
      const file = join(folder, place, name)
      await bundle.write({ file, format: format as keyof typeof formats, codeSplitting: false })
    }
  }
}, 120_000)

function run(place: 'installed' | 'moved', file: string, threads: number) {
  return spawnSync(process.execPath, [join(folder, place, file), String(threads)], { cwd: folder, encoding: 'utf8' })
}

describe.each(rowsOf(Object.values(formats)))('%s', (file) => {
  test('trains in one thread and in two as the program does that is not bundled, and writes Arrow', () => {
    const plain = run('installed', 'main.mjs', 1)
    expect(plain.stdout).toMatch(/^[0-9a-f]{64}\n$/)
    for (const threads of rowsOf([2, 1])) {
      const { stdout, stderr } = run('installed', file, threads)
      expect([stderr, stdout]).toEqual(['', plain.stdout])
    }
  })

  test('says in one line what it lacks where the package is not installed', () => {
    const { stdout, stderr, status } = run('moved', file, 1)
    expect(stderr).toMatch(
      /^colonnade's \w+\.\w+\.wasm: got a bundle without the files of the package, expected colonnade \S+ installed where .*\n$/,
    )
    expect([stdout, status]).toEqual(['', 1])
  })
})
