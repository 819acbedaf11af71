import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { readSafetensors, tensorValues } from '../../src/base/files/safetensors.ts'
import { attempt, findInstalled, PYTHON_MS } from '../support/python.ts'
import { temporaryFolder } from '../support/temporary.ts'

const golden = fileURLToPath(new URL('../golden', import.meta.url))

/** `tests/algorithms/preference-losses.test.ts` holds our losses to the recording. */
test(
  'the losses of preferences of the TRL that is installed are the recorded ones',
  async (context) => {
    const found = await findInstalled('torch, transformers, trl, datasets')
    if (!('python' in found)) return context.skip(found.why)
    const folder = await temporaryFolder()
    const { code, stderr } = await attempt(found.python, [`${golden}/record_trl_preferences.py`, folder])
    expect(code, stderr).toBe(0)
    const read = async (path: string) => JSON.parse(await readFile(`${path}/preferences.json`, 'utf8'))
    const [live, recorded] = [await read(folder), await read(`${golden}/trl`)]
    expect(Object.keys(live.cases)).toEqual(Object.keys(recorded.cases))
    for (const [name, { loss, metrics }] of Object.entries<{ loss: number; metrics: object }>(live.cases)) {
      expect(Math.abs(loss / recorded.cases[name].loss - 1), name).toBeLessThan(1e-5)
      for (const [key, value] of Object.entries(metrics))
        expect(value).toBeCloseTo(recorded.cases[name].metrics[key], 5)
    }
    const gradients = async (path: string) => (await readSafetensors(`${path}/preferences.safetensors`)).tensors
    const [ours, theirs] = [await gradients(folder), await gradients(`${golden}/trl`)]
    for (const [name, tensor] of theirs) {
      const [now, then] = [tensorValues(ours.get(name)!), tensorValues(tensor)]
      for (const [i, value] of then.entries()) expect(Number(now[i]), name).toBeCloseTo(Number(value), 5)
    }
  },
  PYTHON_MS,
)
