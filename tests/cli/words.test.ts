/** `--key value`, `--key=value` and `key=value` are the same. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { boolean, integer, type Setting, text } from '../../src/base/settings.ts'
import { trainKeys } from '../../src/cli/commands/train.ts'
import { GROUPS, groupOf } from '../../src/cli/words/help.ts'
import { tellApart } from '../../src/cli/words/words.ts'
import { runKeys } from '../../src/training/run/run.ts'
import { inProcess, SMALL } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'

let here: string
beforeAll(async () => {
  here = await temporaryFolder()
})

const declared = { seed: integer(1, ''), dashboard: boolean(false, ''), prompt: text('', '') }
const told = async (line: string) => {
  const settingOf = async (key: string) => new Map<string, Setting>(Object.entries(declared)).get(key)
  const { names, pairs, flags } = await tellApart(line.split(' '), settingOf)
  return [...names, '|', ...pairs, '|', ...flags].join(' ')
}

describe('words', () => {
  test.each([
    ['train A --seed 3', 'train A | seed=3 |'],
    ['train --seed=3 A', 'train A | seed=3 |'],
    ['--seed 3 train A', 'train A | seed=3 |'],
    ['train A seed=3 --json -q', 'train A | seed=3 | json quiet'],
    ['-hq', '| | help quiet'],
    ['train A --dashboard', 'train A | dashboard=true |'],
    ['train --dashboard A', 'train A | dashboard=true |'],
    ['train --dashboard false A', 'train A | dashboard=false |'],
    ['train --dashboard seed=3 A', 'train A | dashboard=true seed=3 |'],
    ['train A --dashboard --seed 3', 'train A | dashboard=true seed=3 |'],
    ['train A --low -0.5 --high -.5', 'train A | low=-0.5 high=-.5 |'],
    ['train A --mlp.hidden 8,8', 'train A | mlp.hidden=8,8 |'],
    ['train A --prompt a=b', 'train A | prompt=a=b |'],
    ['train A --prompt=--json', 'train A | prompt=--json |'],
    ['train A --prompt=', 'train A | prompt= |'],
    ['evaluate -- --odd --seed=3', 'evaluate --odd | --seed=3 |'],
    ['evaluate ./a=b/c seed=3', 'evaluate ./a=b/c | seed=3 |'],
    ['evaluate - seed=3', 'evaluate - | seed=3 |'],
  ])('%s', async (line, expected) => {
    expect(await told(line)).toBe(expected)
  })

  test.each([
    ['train A -s 3', 'option: got -s, expected -h, -q, or a key with two dashes, like --seed 3'],
    ['train A --json=yes', '--json=yes: got "yes", expected no value, only --json'],
    ['train --quite A', 'option: got --quite, expected --quiet, or a key with its value'],
  ])('%s is refused', async (line, message) => {
    await expect(told(line)).rejects.toThrow(message)
  })
})

test('a run is the same whichever way its keys are written', async () => {
  const small = SMALL.flatMap((word) => word.split('='))
  const options = small.map((word, i) => (i % 2 === 0 ? `--${word}` : word))
  const ways: [string, string[]][] = [
    ['words', [...SMALL, 'seed=3', 'stopWhenSolved=true', 'mlp.logStd=-0.5']],
    ['options', [...options, '--stopWhenSolved', '--seed', '3', '--mlp.logStd', '-0.5']],
    ['joined', [...SMALL.map((word) => `--${word}`), '--seed=3', '--stopWhenSolved=true', '--mlp.logStd=-0.5']],
  ]
  const files = []
  for (const [name, words] of ways) {
    expect(await inProcess(['train', '--out', name, 'CartPole-v1', ...words, '--quiet'], here)).toMatchObject({
      code: 0,
    })
    const config = JSON.parse(await readFile(join(here, name, 'config.json'), 'utf8'))
    expect(config).toMatchObject({ settings: { seed: 3, stopWhenSolved: true } })
    expect(config.policy.parameters.logStd).toBe(-0.5)
    files.push(config)
  }
  expect(files[1]).toEqual(files[0])
  expect(files[2]).toEqual(files[0])
  const words = await inProcess(['evaluate', 'words', 'episodes=2', 'explore=true', '--json'], here)
  const options_ = await inProcess(['evaluate', '--explore', 'words', '--episodes', '2', '--json'], here)
  expect(words.code).toBe(0)
  expect(options_.stdout).toBe(words.stdout)
})

describe('one line with at most three names for', () => {
  test.each([
    ['a command', ['trian', 'CartPole-v1'], 'command: got "trian" (did you mean "train"?), expected one of'],
    [
      'an environment',
      ['train', 'CartPol-v1'],
      'environment: got "CartPol-v1" (did you mean "CartPole-v1"?), expected one of',
    ],
    [
      'a key of a run',
      ['train', 'CartPole-v1', '--ppo.gama', '1'],
      'key: got "ppo.gama" (did you mean "ppo.gamma"?), expected one of',
    ],
    ['a key that is like none', ['train', 'CartPole-v1', 'zzzzz=1'], 'key: got "zzzzz", expected one of'],
    ['a key of a command', ['evaluate', 'x', '--sed', '1'], 'key: got "sed" (did you mean "seed"?), expected one of'],
    [
      'a key of a text run',
      ['train', 'text/reverse', 'rl.update=1'],
      'key: got "rl.update" (did you mean "rl.updates"?), expected one of',
    ],
  ])('%s', async (_, words, begin) => {
    const { code, stdout, stderr } = await inProcess(words, here)
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' })
    expect(stderr.startsWith(`colonnade: ${begin} `)).toBe(true)
    expect(stderr.length).toBeLessThan(200)
    expect(stderr).toMatch(/^[^\n]+ one of \d+, like [^,\n]+(, [^,\n]+){2}(, or the path of [^,\n]+)?\n$/)
  })
})

describe('a run that is not there is told in a sentence by', () => {
  test.each([
    ['evaluate', []],
    ['resume', []],
    ['replay', []],
    ['export', ['out=a.arrow']],
    ['push', ['org/name']],
    ['generate', ['prompt=a']],
    ['serve', []],
    ['gateway', ['out=b']],
    ['validate', []],
    ['dashboard', []],
  ])('%s', async (command, words) => {
    for (const run of ['runs/nowhere', './nowhere', '/nowhere/at-all']) {
      const { code, stdout, stderr } = await inProcess([command, run, ...words], here)
      expect(stderr).toMatch(
        new RegExp(`^colonnade: ${run}: got no such folder, expected a (run folder|folder with runs), [^\\n]+\\n$`),
      )
      expect([stdout, code]).toEqual([command === 'validate' ? expect.any(String) : '', command === 'validate' ? 2 : 1])
    }
  })
})

test('every key of a run without a prefix has its group in the help', async () => {
  for (const id of ['CartPole-v1', 'text/reverse']) {
    for (const key of [...(await runKeys(id)).keys(), ...Object.keys(trainKeys)].filter(
      (each) => !each.includes('.'),
    )) {
      expect(
        Object.values(GROUPS).flatMap((keys) => keys.split(/\s+/)),
        key,
      ).toContain(key)
    }
  }
  expect(groupOf('timeLimit.maxEpisodeSteps', { policy: 'mlp', algorithm: 'ppo' })).toBe('timeLimit')
})
