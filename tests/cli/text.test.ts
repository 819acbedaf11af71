import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { loadTransformer } from '../../src/entries/text.ts'
import { readArrow } from '../../src/index.ts'
import { colonnade, inProcess, MAIN, start } from '../support/command.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { isThorough, thorough } from '../support/tiers.ts'

const SMALL = [
  'environment.maxLength=3',
  'languageModel.width=16',
  'languageModel.layers=1',
  'sft.updates=10',
  'sft.batchSize=16',
  'rl.groupSize=4',
  'rl.groupsPerUpdate=4',
  'checkpointEvery=5',
]

const UPDATES = isThorough ? 60 : 15

let here: string
let finishing: Awaited<ReturnType<typeof colonnade>>
beforeAll(async () => {
  here = await temporaryFolder()
  const words = ['train', 'text/reverse', 'out=run', `rl.updates=${UPDATES}`, 'trajectories=all', ...SMALL]
  finishing = await colonnade(words, here)
})

async function tables(run: string): Promise<Buffer[]> {
  const folder = join(here, run, 'trajectories')
  return Promise.all((await readdir(folder)).sort().map((name) => readFile(join(folder, name))))
}

describe('a run of a language model', () => {
  test('goes from supervised steps to updates, and names the picture, the checkpoints, the model and the trajectories', async () => {
    expect(finishing.code).toBe(0)
    expect(finishing.stdout).toContain(`complete: 10 supervised steps and ${UPDATES} updates`)
    const shown = ['learning-curve.svg', 'checkpoints', 'model', 'trajectories']
    for (const name of shown) expect(finishing.stdout).toContain(join('run', name))
    const written = ['config.json', 'metrics.jsonl', 'summary.json', ...shown]
    expect(await readdir(join(here, 'run'))).toEqual(expect.arrayContaining(written))
    const summary = JSON.parse(await readFile(join(here, 'run', 'summary.json'), 'utf8'))
    expect(summary).toMatchObject({
      status: 'complete',
      environment: 'text/reverse',
      algorithm: 'grpo',
      sftSteps: 10,
      updates: UPDATES,
    })
    expect(summary.trajectories).toBe(UPDATES * 16)
    for (const figure of [summary.reward.first, summary.reward.last]) expect(figure > 0 && figure < 1).toBe(true)
    expect(summary.tokensPerSecond.rollout).toBeGreaterThan(0)
    expect(summary.tokensPerSecond.update).toBeGreaterThan(0)
    const lines = (await readFile(join(here, 'run', 'metrics.jsonl'), 'utf8'))
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(lines.map(({ phase }) => phase)).toEqual([...Array(10).fill('sft'), ...Array(UPDATES).fill('rl')])
    // No line is lost at the end of a long file, and no update writes over the conversations of another.
    expect(lines.slice(10).map(({ step }) => step)).toEqual(Array.from({ length: UPDATES }, (_, i) => i + 1))
    expect(await readdir(join(here, 'run', 'trajectories'))).toHaveLength(UPDATES)
    const table = await readArrow(join(here, 'run', 'trajectories', `${UPDATES}.arrow`.padStart(14, '0')))
    expect(table.numRows).toBe(16)
    const { model } = await loadTransformer(join(here, 'run', 'model'))
    expect(model.numParameters).toBe(summary.numParameters)
  })

  test('logs entropy and all three KLs of every update, those to the reference too, and never null for a number', async () => {
    const loss = ['loss.klCoef=0.1', 'rl.learningRate=0.01']
    const { code } = await inProcess(['train', 'text/reverse', 'out=kl', 'rl.updates=3', ...SMALL, ...loss], here)
    expect(code).toBe(0)
    const text = await readFile(join(here, 'kl', 'metrics.jsonl'), 'utf8')
    const updates = text
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
      .filter(({ phase }) => phase === 'rl')
    expect(updates).toHaveLength(3)
    for (const rl of updates) {
      // Eleven tokens at most have ln 11 nats; the first step of an update is on the policy that sampled.
      expect(rl.entropy).toBeGreaterThan(0)
      expect(rl.entropy).toBeLessThan(Math.log(11))
      expect(Object.values(rl.kl).map((figure) => Math.abs(figure as number))).toEqual([0, 0, 0])
      expect(Object.keys(rl.referenceKl)).toEqual(['k1', 'k2', 'k3'])
    }
    const [first, , last] = updates.map(({ referenceKl }) => referenceKl)
    expect(Object.values(first).map((figure) => Math.abs(figure as number))).toEqual([0, 0, 0])
    expect(last.k1).not.toBe(0)
    expect(last.k2).toBeGreaterThan(0)
    expect(last.k3).toBeGreaterThan(0)
  })

  test('interrupted at any time and resumed, it writes the same trajectories, byte for byte', async () => {
    const words = ['train', 'text/reverse', 'out=broken', `rl.updates=${UPDATES}`, 'trajectories=all', ...SMALL]
    const started = start(process.execPath, [MAIN, ...words], { cwd: here })
    await started.printed('sft loss')
    started.process.kill('SIGINT')
    const { code, stdout } = await started.ended
    expect(code).toBe(stdout.includes('interrupted') ? 130 : 0)
    if (stdout.includes('interrupted')) {
      const resumed = await inProcess(['resume', 'broken'], here)
      expect(resumed.code).toBe(0)
      expect(resumed.stdout).toContain('complete')
    }
    expect(await tables('broken')).toEqual(await tables('run'))
  })

  thorough(
    'interrupted with three threads and resumed with one, it writes the same trajectories and weights',
    async () => {
      const words = [
        'train',
        'text/reverse',
        'out=teamed',
        `rl.updates=${UPDATES}`,
        'trajectories=all',
        'threads=3',
        ...SMALL,
      ]
      const started = start(process.execPath, [MAIN, ...words], { cwd: here })
      await started.printed('sft loss')
      started.process.kill('SIGINT')
      const { code, stdout } = await started.ended
      expect(code).toBe(stdout.includes('interrupted') ? 130 : 0)
      const config = join(here, 'teamed', 'config.json')
      const written = JSON.parse(await readFile(config, 'utf8'))
      expect(written.settings.threads).toBe(3)
      const summary = JSON.parse(await readFile(join(here, 'teamed', 'summary.json'), 'utf8'))
      expect(summary.threads).toBe(3)
      if (stdout.includes('interrupted')) {
        await writeFile(config, JSON.stringify({ ...written, settings: { ...written.settings, threads: 1 } }))
        expect((await inProcess(['resume', 'teamed'], here)).code).toBe(0)
      }
      expect(await tables('teamed')).toEqual(await tables('run'))
      const [teamed, whole] = await Promise.all(
        ['teamed', 'run'].map((run) => loadTransformer(join(here, run, 'model'))),
      )
      expect(teamed!.weights).toEqual(whole!.weights)
    },
  )

  thorough('killed without warning, it goes on from its checkpoint to the same trajectories', async () => {
    const words = ['train', 'text/reverse', 'out=killed', `rl.updates=${UPDATES}`, 'trajectories=all', ...SMALL]
    const started = start(process.execPath, [MAIN, ...words], { cwd: here })
    await started.printed('sft loss')
    started.process.kill('SIGKILL')
    await started.ended
    const resumed = await colonnade(['resume', 'killed'], here)
    expect(resumed.code).toBe(0)
    expect(await tables('killed')).toEqual(await tables('run'))
  })

  test('is judged and exported from the shell', async () => {
    const judged = await inProcess(['evaluate', 'run', 'episodes=20', '--json'], here)
    const { episodes, reward, samples } = JSON.parse(judged.stdout)
    expect(episodes).toBe(20)
    expect(reward.mean).toBeGreaterThan(0)
    expect(samples[0].prompt).toMatch(/^[a-h]+=$/)
    expect((await inProcess(['export', 'run', 'out=model'], here)).code).toBe(0)
    expect((await loadTransformer(join(here, 'model'))).weights).toEqual(
      (await loadTransformer(join(here, 'run', 'model'))).weights,
    )
    const exported = async (...words: string[]) =>
      JSON.parse((await inProcess(['export', 'run', ...words, '--json'], here)).stdout)
    const { trajectories: count } = await exported('out=said.jsonl')
    expect((await readFile(join(here, 'said.jsonl'), 'utf8')).trim().split('\n')).toHaveLength(count)
    expect(await exported('out=said.arrow')).toMatchObject({ format: 'file', trajectories: count })
    expect((await readArrow(join(here, 'said.arrow'))).numRows).toBe(count)
    for (const [words, message] of [
      [['out=run'], 'run, which holds a run, expected a new folder'],
      [['out=model'], 'model, which is not empty'],
      [['out=a.csv'], 'out: got a.csv, expected a name that ends in .gguf, .arrow, '],
      [['out=a.parquet', 'format=jsonl'], 'out: got a.parquet with format=jsonl, expected a name that ends in .jsonl'],
      [[join('out=said.jsonl', 'model')], 'not a folder'],
      [['out=other', 'format=onnx'], 'format: got "onnx", expected one of model, file, stream, parquet, jsonl'],
    ] as const) {
      const { code, stderr } = await inProcess(['export', 'run', ...words], here)
      expect(code).toBe(1)
      expect(stderr).toContain(message)
      expect(stderr.trim().split('\n')).toHaveLength(1)
    }
  })

  test('answers what it is asked', async () => {
    const { code, stdout } = await inProcess(
      ['generate', 'run', 'prompt=abc=', 'samples=2', 'maxTokens=5', '--json'],
      here,
    )
    expect(code).toBe(0)
    const { answers } = JSON.parse(stdout)
    expect(answers).toHaveLength(2)
    for (const { promptIds, completionIds } of answers) {
      expect(promptIds).toHaveLength(4)
      expect(completionIds.length <= 5).toBe(true)
    }
    expect((await inProcess(['generate', 'run'], here)).stderr).toContain('prompt: got nothing')
    const model = await inProcess(['generate', join('run', 'model'), 'prompt=abc='], here)
    expect(model).toMatchObject({ code: 0, stderr: '' }) // The tokenizer lies beside the weights.
    const fewer = ['prompt=abc=', 'quantize=8', '--json']
    const rough = await inProcess(['generate', join('run', 'model'), ...fewer], here)
    expect(rough).toMatchObject({ code: 0, stderr: '' })
    const exact = await inProcess(['generate', join('run', 'model'), 'prompt=abc=', '--json'], here)
    const [first, other] = [rough, exact].map(({ stdout }) => JSON.parse(stdout).answers[0].logprobs[0])
    expect(first).not.toBe(other)
    expect((await inProcess(['generate', 'run', ...fewer], here)).stderr).toContain('quantize: got 8, for a run')
  })

  test('with adapters trains them alone, and writes them in the format of PEFT; exported, they are merged', async () => {
    const lora = ['languageModel.loraRank=2', 'languageModel.loraTargets=q_proj,v_proj']
    const { code, stdout } = await inProcess(
      ['train', 'text/reverse', 'out=lora', 'rl.updates=2', ...SMALL, ...lora],
      here,
    )
    expect(code).toBe(0)
    expect(stdout).toContain(join('lora', 'adapter'))
    expect((await readdir(join(here, 'lora', 'adapter'))).sort()).toEqual([
      'adapter_config.json',
      'adapter_model.safetensors',
    ])
    const { numParameters, numTrained } = JSON.parse(await readFile(join(here, 'lora', 'summary.json'), 'utf8'))
    expect(numTrained).toBe(2 * 2 * (16 + 16))
    expect(numParameters).toBeGreaterThan(numTrained)
    expect((await inProcess(['evaluate', 'lora', 'episodes=5'], here)).code).toBe(0)
    expect((await inProcess(['export', 'lora', 'out=merged'], here)).code).toBe(0)
    expect((await loadTransformer(join(here, 'merged'))).model.numParameters).toBe(numParameters)
  })

  test('a model in 8 bits under an adapter is trained, judged, validated and exported whole', async () => {
    const words = ['languageModel.loraRank=2', 'languageModel.quantize=8', 'languageModel.anyText=true']
    const trained = await inProcess(['train', 'text/reverse', 'out=bytes', 'rl.updates=2', ...SMALL, ...words], here)
    expect(trained.code).toBe(0)
    for (const command of [
      ['evaluate', 'bytes', 'episodes=5'],
      ['validate', 'bytes'],
      ['export', 'bytes', 'out=whole'],
      ['export', 'bytes', 'out=whole.gguf', 'type=F16'],
      ['generate', 'whole.gguf', 'prompt=ab', 'maxTokens=2'],
    ]) {
      expect((await inProcess(command, here)).code).toBe(0)
    }
    const { numParameters } = JSON.parse(await readFile(join(here, 'bytes', 'summary.json'), 'utf8'))
    expect((await loadTransformer(join(here, 'whole'))).model.numParameters).toBe(numParameters)
  })

  test('learns from a file of prompts and answers, by a reward of the registry', async () => {
    const rows = Array.from({ length: 20 }, (_, i) => JSON.stringify({ question: `${i}+1=`, solution: `${i + 1}` }))
    await writeFile(join(here, 'sums.jsonl'), rows.join('\n'))
    const words = ['environment.path=sums.jsonl', 'environment.prompt=question', 'environment.answer=solution']
    const sizes = ['environment.maxTokens=4', 'sft.updates=3', 'rl.updates=2', 'rl.groupsPerUpdate=2', 'rl.groupSize=4']
    const { code, stdout, stderr } = await inProcess(['train', 'text/dataset', 'out=sums', ...words, ...sizes], here)
    expect(stderr).not.toContain('Error')
    expect(code).toBe(0)
    expect(stdout).toContain('16 conversations')
    expect((await inProcess(['resume', 'sums'], here)).code).toBe(0)
    for (const [wrong, message] of [
      ['environment.path=nowhere.jsonl', 'nowhere.jsonl'],
      ['environment.reward=acuracy', 'accuracy'],
      ['environment.prompt=nothing', 'nothing'],
    ] as const) {
      const failed = await inProcess(
        ['train', 'text/dataset', 'out=wrong', ...words, ...sizes, wrong].filter(
          (word, i, all) => all.findLastIndex((other) => other.split('=')[0] === word.split('=')[0]) === i,
        ),
        here,
      )
      expect(failed.code).toBe(1)
      expect(failed.stderr).toContain(message)
    }
  })

  test('says what is wrong with the files of a run that are not as it wrote them', async () => {
    const words = ['train', 'text/reverse', 'out=altered', 'rl.updates=2', ...SMALL]
    expect((await inProcess(words, here)).code).toBe(0)
    const [config, metrics] = ['config.json', 'metrics.jsonl'].map((name) => join(here, 'altered', name))
    const text = await readFile(config!, 'utf8')
    for (const [content, message] of [
      ['null', 'null'],
      [JSON.stringify({ ...JSON.parse(text), rl: undefined }), 'rl undefined'],
      [JSON.stringify({ ...JSON.parse(text), rl: { id: 'rl', parameters: null } }), 'rl: got null'],
      [JSON.stringify({ ...JSON.parse(text), environment: { id: 3, parameters: {} } }), 'environment: got 3'],
    ] as const) {
      await writeFile(config!, content)
      for (const command of ['resume', 'evaluate']) {
        const { code, stderr } = await inProcess([command, 'altered'], here)
        expect(code).toBe(1)
        expect(stderr).toContain(message)
        expect(stderr).not.toContain('TypeError')
      }
    }
    await writeFile(config!, text)
    await writeFile(metrics!, '{oops}\n')
    const { code, stderr } = await inProcess(['resume', 'altered'], here)
    expect(code).toBe(0)
    expect(stderr).toContain(
      'colonnade: warning: metrics.jsonl: 1 damaged lines left out (the first is line 1); 12 lines of 12 are missing',
    )
  })

  test('says what is wrong with a task, a key or a loss before it makes a folder', async () => {
    for (const [words, message] of [
      [['text/revers'], 'text/reverse'],
      [['text/datset'], 'text/dataset'],
      [['text/reverse', 'rl.group=4'], 'rl.groupSize'],
      [['text/reverse', 'rl.loss=grppo'], 'grpo'],
      [['text/reverse', 'rl.loss=rloo', 'rl.preset=slime'], 'rloo'],
      [['text/reverse', 'loss.clipLow=2'], 'clipLow'],
      [['text/reverse', 'rl.groupSize=1'], 'groupSize'],
      [['text/reverse', 'languageModel.heads=3'], 'heads'],
      [['text/reverse', 'languageModel.width=8192', 'languageModel.layers=40'], 'a plan of '],
    ] as const) {
      const { code, stderr } = await inProcess(['train', ...words, 'out=wrong'], here)
      expect(code).toBe(1)
      expect(stderr).toContain(message)
      expect(await readdir(here)).not.toContain('wrong')
    }
  })
})
