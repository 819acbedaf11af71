/** Completion: what is offered, and the script of each shell in that shell. */
import { spawnSync } from 'node:child_process'
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { inProcess, MAIN, skipLoudly } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { rowsOf } from '../support/tiers.ts'

let here: string
beforeAll(async () => {
  here = await temporaryFolder()
  for (const run of ['runs/CartPole-v1-1', 'runs/several/seed-1', 'other/mine']) {
    await mkdir(join(here, run), { recursive: true })
    await writeFile(join(here, run, 'config.json'), '{}')
  }
  await mkdir(join(here, 'runs/nothing'))
  await mkdir(join(here, 'bin'))
  await writeFile(join(here, 'bin/colonnade'), `#!/bin/sh\nexec '${process.execPath}' '${MAIN}' "$@"\n`)
  await chmod(join(here, 'bin/colonnade'), 0o755)
})

const offered = async (...words: string[]) => {
  const { code, stdout, stderr } = await inProcess(['completion', 'candidates', ...words], here)
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return stdout.split('\n').filter(Boolean)
}

describe('what may come next', () => {
  test.each([
    [['tr'], ['train', 'trust']],
    [['--js'], ['--json']],
    [
      ['train', 'CartPole-'],
      ['CartPole-v1', 'CartPole-P-v1'],
    ],
    [['train', '--json', 'text/rev'], ['text/reverse']],
    [
      ['evaluate', ''],
      ['runs/CartPole-v1-1', 'runs/several/seed-1'],
    ],
    [['resume', 'other/'], ['other/mine']],
    [['train', 'CartPole-v1', 'ppo.gam'], ['ppo.gamma=']],
    [['train', 'CartPole-v1', 'algorithm=dqn', 'ppo.gam'], []],
    [['train', 'CartPole-v1', 'algorithm=dqn', 'dqn.gam'], ['dqn.gamma=']],
    [['train', 'CartPole-v1', '--ppo.gam'], ['--ppo.gamma']],
    [
      ['train', 'CartPole-v1', 'algorithm='],
      ['ppo', 'a2c', 'bc', 'dqn', 'sac', 'td3', 'td3bc', 'iql', 'cql', 'discreteCql', 'awr'].map(
        (id) => `algorithm=${id}`,
      ),
    ],
    [
      ['train', 'CartPole-v1', '--rollouts', ''],
      ['last', 'all', 'none'],
    ],
    [['train', 'CartPole-v1', '--rollouts=a'], ['--rollouts=all']],
    [
      ['train', 'CartPole-v1', 'dashboard='],
      ['dashboard=true', 'dashboard=false'],
    ],
    [['check', 'CartPole-v1', 'environment.'], ['environment.maxEpisodeSteps=']],
    [['dashboard', 'runs', 'po'], ['port=']],
    [
      ['completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    [['nonsense', ''], []],
    [['train', 'Nowhere-v0', 'see'], []],
  ])('of %j', async (words, expected) => {
    expect(await offered(...words)).toEqual(expected)
  })

  test('behind an environment are its keys', async () => {
    const keys = await offered('train', 'CartPole-v1', '')
    expect(keys).toEqual(expect.arrayContaining(['seed=', 'out=', 'ppo.numSteps=', 'mlp.hidden=', 'dashboard=']))
    expect(keys.every((key) => key.endsWith('='))).toBe(true)
  })
})

test('an unknown shell is refused', async () => {
  const { code, stderr } = await inProcess(['completion', 'basj'], here)
  expect([code, stderr]).toEqual([
    1,
    'colonnade: shell: got "basj" (did you mean "bash"?), expected one of bash, zsh, fish\n',
  ])
})

/** What a shell says that has `colonnade` in its path; null where the shell is not installed. */
function inShell(shell: string, words: readonly string[]): string | null {
  const env = { ...process.env, PATH: `${join(here, 'bin')}${delimiter}${process.env.PATH}` }
  const { error, stdout, stderr, status } = spawnSync(shell, words, { cwd: here, env, encoding: 'utf8' })
  if ((error as NodeJS.ErrnoException)?.code === 'ENOENT') return null
  expect([status, stderr]).toEqual([0, ''])
  return stdout
}

describe('in bash', () => {
  /** What the function leaves for a line, which bash has parted at blanks and =, as it does on Tab. */
  const complete = (line: string) => {
    const words = [...line.matchAll(/=|[^\s=]+/g)].map(([word]) => word)
    if (/[\s=]$/.test(line)) words.push('')
    const script = `set -u
      source <(colonnade completion bash)
      complete -p colonnade | grep -q -- '-F _colonnade colonnade' || exit 3
      COMP_LINE=$1 COMP_POINT=\${#1}; shift
      COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
      _colonnade colonnade "\${COMP_WORDS[COMP_CWORD]}" ''
      printf '%s\\n' "\${COMPREPLY[@]}"`
    return inShell('bash', ['--norc', '-c', script, 'bash', line, ...words])
  }

  const lines: [string, string[]][] = [
    ['colonnade train CartPole-v1 ppo.clipC', ['ppo.clipCoef=', 'ppo.clipCoefSchedule=']],
    ['colonnade evaluate runs/C', ['runs/CartPole-v1-1']],
    ['colonnade train CartPole-v1 zzz', []],
    ['colonnade tra', ['train']],
    ['colonnade train Pendu', ['Pendulum-v1']],
    ['colonnade train CartPole-v1 ppo.clipCoefSchedule=', ['constant', 'linear', 'cosine']],
    ['colonnade train CartPole-v1 algorithm=d', ['dqn']],
    ['colonnade train CartPole-v1 --rollouts=a', ['all']],
    ['colonnade train CartPole-v1 --rollouts ', ['last', 'all', 'none']],
  ]

  test.each(rowsOf(lines, 3))('%s', (line, expected) => {
    expect(complete(line)!.split('\n').filter(Boolean)).toEqual(expected)
  })
})

test('in zsh', (context) => {
  // compadd works within a completion alone: here it prints what it is given.
  const script = `compdef() { :; }; _files() { :; }; compadd() { print -l -- \${(P)@[-1]}; }
    source <(colonnade completion zsh); words=(colonnade train CartPole-v1 ppo.clipC) CURRENT=4; _colonnade`
  const found = inShell('zsh', ['-f', '-c', script])
  if (found === null) skipLoudly(context, 'zsh is not installed: its completion was not run')
  expect(found.split('\n').filter(Boolean)).toEqual(['ppo.clipCoef=', 'ppo.clipCoefSchedule='])
})

test('in fish', (context) => {
  const script = 'colonnade completion fish | source; complete -C "colonnade train CartPole-v1 ppo.clipC"'
  const found = inShell('fish', ['--no-config', '-c', script])
  if (found === null) skipLoudly(context, 'fish is not installed: its completion was not run')
  expect(found.split('\n').filter(Boolean)).toEqual(['ppo.clipCoef=', 'ppo.clipCoefSchedule='])
})
