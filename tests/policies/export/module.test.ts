import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { runInNewContext } from 'node:vm'
import { beforeAll, describe, expect, test } from 'vitest'
import { spaceWidth } from '../../../src/base/space.ts'
import { exportPolicy } from '../../../src/entries/data.ts'
import { bestKernelBuild } from '../../../src/kernels/bind.ts'
import { actAsOriginal, compare, expectVariety, kindNames, NUM_OBSERVATIONS, trained } from '../../support/exported.ts'
import { temporaryFolder } from '../../support/temporary.ts'

interface PolicyModule {
  observationShape: number[]
  actionSpace: object
  act(observation: ArrayLike<number>, actionMask?: ArrayLike<number>): number | number[]
  evaluate(observation: ArrayLike<number>, actionMask?: ArrayLike<number>): Evaluation
}

interface Evaluation {
  logits?: Float32Array
  mean?: Float32Array
  logStd?: Float32Array
  value: number
}

let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
})

let written = 0
async function load(name: string) {
  const policy = trained(name)
  const out = join(folder, `${written++}.mjs`)
  expect(await exportPolicy({ ...policy, format: 'module', out })).toEqual([out])
  return { policy, out, module: (await import(pathToFileURL(out).href)) as PolicyModule }
}

/** What the module says of every observation, one after the other. */
function sayAll({ observation, mask, environment }: ReturnType<typeof trained>, module: PolicyModule) {
  const [action, head, value]: number[][] = [[], [], []]
  const width = spaceWidth(environment.observationSpace)
  const maskWidth = mask.length / NUM_OBSERVATIONS
  for (let row = 0; row < NUM_OBSERVATIONS; row++) {
    const given: [Float32Array, Uint8Array?] = [observation.subarray(row * width, (row + 1) * width)]
    if (mask.length > 0) given.push(mask.subarray(row * maskWidth, (row + 1) * maskWidth))
    const evaluated = module.evaluate(...given)
    action!.push(...[module.act(...given)].flat())
    head!.push(...(evaluated.logits ?? evaluated.mean!))
    value!.push(evaluated.value)
  }
  return { action: action!, head: head!, value: value! }
}

describe('a policy as an ES module', () => {
  test.each(kindNames)('acts as the original, to the bit of the plain kernels: %s', async (name) => {
    const { policy, module } = await load(name)
    const said = sayAll(policy, module)
    const plain = await actAsOriginal(policy, 'plain')
    expect(said.action.findIndex((action, i) => action !== plain.action[i])).toBe(-1)
    expect(said.value.findIndex((value, row) => value !== plain.value[row])).toBe(-1)
    expectVariety(policy, said.action)
    const ties = compare(policy, await actAsOriginal(policy, bestKernelBuild()), said)
    console.log(`${name}: ${ties} of ${NUM_OBSERVATIONS} observations are ties with ${bestKernelBuild()} kernels`)
    expect(ties).toBeLessThanOrEqual(3)
  })

  test('says what it takes and gives', async () => {
    const { module, policy } = await load('box, tanh')
    expect(module.observationShape).toEqual([4])
    expect(module.actionSpace).toEqual({
      kind: 'box',
      shape: [3],
      low: [-0.5, Number.NEGATIVE_INFINITY, Math.fround(0.1)],
      high: [0.25, Math.fround(0.3), Number.POSITIVE_INFINITY],
    })
    const model = policy.policy.build(policy.environment.observationSpace, policy.environment.actionSpace)
    const { offset } = model.parameters.find((parameter) => parameter.name === 'actor.logStd')!
    const { logStd, logits } = module.evaluate([0.1, 0.2, 0.3, 0.4])
    expect(logStd).toEqual(policy.weights.slice(offset, offset + 3))
    expect(logits).toBeUndefined()
    expect((await load('multi-discrete, tanh, shared trunk')).module.actionSpace).toEqual({
      kind: 'multi-discrete',
      sizes: [3, 1, 4],
    })
  })

  test('needs nothing but the language and atob', async () => {
    const { out, module } = await load('discrete, tanh')
    const text = await readFile(out, 'utf8')
    const script = `${text.replaceAll(/^export /gm, '')}\n;[act([1, 2, 3, 4]), ...evaluate([1, 2, 3, 4]).logits]`
    const { logits } = module.evaluate([1, 2, 3, 4])
    expect([...runInNewContext(script, { atob })]).toEqual([module.act([1, 2, 3, 4]), ...logits!])
  })

  test('refuses what is no observation, and no mask', async () => {
    const { module } = await load('discrete, masked, relu')
    const all = [1, 1, 1, 1, 1, 1]
    expect(() => module.act([1, 2, 3], all)).toThrow('observation: got 3 numbers, expected 4')
    expect(() => module.act(undefined as never, all)).toThrow('observation: got undefined numbers, expected 4')
    expect(() => module.evaluate([1, Number.NaN, 3, 4], all)).toThrow('observation: got NaN in element 1')
    expect(() => module.evaluate([1, 2, 3, 1e39], all)).toThrow('observation: got 1e+39 in element 3')
    expect(() => module.act([1, 2, 3, 4])).toThrow('actionMask: got undefined numbers, expected 6')
    expect(module.act([1, 2, 3, 4], [0, 0, 0, 0, 1, 0])).toBe(4)
  })

  test("takes any environment's name into its comment", async () => {
    const policy = trained('discrete of one')
    const out = join(folder, 'named.mjs')
    const environment = { ...policy.environment, id: 'a */ throw 1 //\n throw 2' }
    await exportPolicy({ ...policy, environment, format: 'module', out })
    const { act } = (await import(pathToFileURL(out).href)) as PolicyModule
    expect(act([1, 2, 3, 4])).toBe(0)
  })
})
