import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { simulate } from '../../src/fleet/simulation.ts'
import { inProcess, MAIN, start } from '../support/command.ts'
import { parseSvg } from '../support/svg.ts'
import { temporaryFolder } from '../support/temporary.ts'

describe('colonnade simulate', () => {
  test('tells each simulation, and how many engines are enough', async () => {
    const folder = await temporaryFolder()
    const keys = ['lengthSigma=0', 'groupSize=1', 'groupsPerBatch=32', 'slots=8', 'updates=4', 'updateSeconds=0.1']
    const words = ['engines=1,2,4,8', 'maxStaleness=0,2', 'deliverySeconds=0', ...keys, `out=${join(folder, 'a.svg')}`]
    const { stdout } = await inProcess(['simulate', ...words, '--json'])
    const { simulations, needed } = JSON.parse(stdout)
    expect(simulations).toHaveLength(8)
    const settings = { lengthSigma: 0, groupSize: 1, groupsPerBatch: 32, slots: 8, updates: 4, updateSeconds: 0.1 }
    for (const { engines, maxStaleness, simulation } of simulations) {
      expect(simulation).toEqual(await simulate({ ...settings, deliverySeconds: 0, engines, maxStaleness }))
    }
    // A batch of 32 has a place each on four engines; eight bring nothing more where nothing is sampled ahead.
    expect(needed[0]).toMatchObject({ maxStaleness: 0, engines: 4 })
    const names = parseSvg(readFileSync(join(folder, 'a.svg'), 'utf8')).textContent
    expect(names).toContain('maxStaleness 2')
    const told = await inProcess(['simulate', ...words.slice(0, -1)])
    expect(told.stdout).toMatch(/maxStaleness=0: 4 engines give .*; more bring less than a tenth/)
    expect(told.stdout.split('\n')[0]).toMatch(/maxStaleness +engines +tokens\/s/)
  })

  test.each(['SIGTERM', 'SIGINT'] as const)('%s ends it at once, without a stack', async (signal) => {
    const simulation = start(process.execPath, [MAIN, 'simulate', `engines=${Array(100).fill(1)}`, 'updates=2'])
    await simulation.printed('/400 simulations')
    simulation.process.kill(signal)
    const { stdout, stderr } = await simulation.ended
    expect(simulation.process.signalCode).toBe(signal) // A shell tells 128 and the signal's number.
    expect(stdout + stderr).not.toMatch(/\n +at /)
  })

  test.each([
    [['engines='], 'engines: got none, expected at least one number'],
    [['maxStaleness=-1'], 'maxStaleness: got "-1", expected a list of whole numbers ≥ 0'],
    [['probe=local'], 'probe: got local, expected from=<run> too'],
    [['out=a.png'], 'out: got a.png, expected a file whose name ends in .svg'],
    [['slot=3'], 'key: got "slot" (did you mean "slots"?), expected one of'],
    [['3'], 'argument: got "3", expected key=value'],
  ])('refuses %j', async (words, message) => {
    const { stderr, code } = await inProcess(['simulate', ...words])
    expect(stderr).toContain(message)
    expect(code).toBe(1)
  })
})
