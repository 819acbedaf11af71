import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { InputError } from '../../src/base/errors.ts'
import {
  buildBatchMetadata,
  computeResponseLengths,
  convertToBatch,
  extractSampleFields,
} from '../../src/tables/episodes/rollout-batch.ts'
import {
  appendResponseTokens,
  type Sample,
  samplesOf,
  samplesToTrajectories,
  startSample,
} from '../../src/tables/trajectories/sample.ts'
import {
  exportSamplesToHuggingfaceFormat,
  exportSamplesToJsonl,
  type LoadSamplesOptions,
  loadSamplesFromJsonl,
} from '../../src/tables/trajectories/sample-files.ts'
import { Trajectories } from '../../src/tables/trajectories/trajectories.ts'
import type { Trajectory } from '../../src/tables/trajectories/trajectory.ts'
import * as fc from '../support/properties.ts'
import { temporaryFolder } from '../support/temporary.ts'
import { anyTrajectory, plain, trajectory } from '../support/trajectories.ts'

const examples = {
  example: (index: number) => ({ prompt: `prompt ${index}`, answer: `answer ${index}`, level: index }),
}
const tokenizer = { decode: (ids: ArrayLike<number>) => Array.from(ids).join(' ') }

function tableOf(rows: readonly Trajectory[]): Trajectories {
  const trajectories = new Trajectories()
  for (const row of rows) trajectories.append(row)
  return trajectories
}

function samples(...rows: Partial<Trajectory>[]): Sample[] {
  return samplesOf(tableOf(rows.map((row, member) => trajectory({ member, ...row }))), examples, tokenizer)
}

const start = startSample({
  ...{ epoch: 1, promptId: 7, group: 9, member: 2 },
  example: { prompt: 'p', answer: 'a', level: 3 },
  tokens: [1, 2],
})

describe('samples of trajectories', () => {
  test('are views: their tokens are the columns, and what is said of them is what the trajectories say', () => {
    const trajectories = tableOf([
      trajectory({ group: 4, promptId: 3, components: { right: 1 }, stopReason: 'context' }),
    ])
    const [sample] = samplesOf(trajectories, examples, tokenizer)
    expect((sample!.tokens as Int32Array).buffer).toBe(trajectories.columns().token.buffer)
    expect(sample).toMatchObject({
      ...{ id: '0-3-4-0', index: 0, epoch: 0, promptId: 3, groupIndex: 4, member: 0 },
      ...{ prompt: 'prompt 3', groundTruth: 'answer 3', metadata: { level: 3 } },
      ...{ response: '7 8', responseLength: 2, reward: 1, score: { right: 1 }, status: 'truncated', error: null },
    })
  })

  test('and back again are the same trajectories, in order', () => {
    fc.assert(
      fc.property(fc.array(anyTrajectory, { maxLength: 20 }), (rows) => {
        const trajectories = tableOf(rows)
        const back = samplesToTrajectories(samplesOf(trajectories, examples, tokenizer))
        const rowsOf = (table: Trajectories) => Array.from({ length: table.count }, (_, i) => plain(table.row(i)))
        expect(rowsOf(back)).toEqual(rowsOf(trajectories.take(trajectories.order())))
      }),
      { numRuns: 20 },
    )
  })

  test('have ids that no other has: groups are not counted anew in another round', () => {
    const rows = [0, 1].flatMap((epoch) => [0, 1].map((member) => trajectory({ epoch, member, group: epoch })))
    const ids = samplesOf(tableOf(rows), examples, tokenizer).map(({ id }) => id)
    expect(new Set(ids).size).toBe(4)
  })

  test.each<[string, unknown[], RegExp]>([
    ['no trajectories', [undefined, examples, tokenizer], /samplesOf\(trajectories\): got undefined, expected Traj/],
    ['samples', [[start], examples, tokenizer], /samplesOf\(trajectories\): got \[/],
    ['no examples', [new Trajectories()], /examples\): got undefined, expected an environment/],
    ['no tokenizer', [new Trajectories(), examples, {}], /tokenizer\): got {}, expected a tokenizer/],
  ])('are not made of %s', (_, given, message) => {
    const made = () => (samplesOf as (...given: unknown[]) => Sample[])(...given)
    expect(made).toThrow(InputError)
    expect(made).toThrow(message)
  })

  test('of a conversation in segments say which of them they are, and are segments again', () => {
    const rows = samples({ member: 2 }, { member: 2, segment: 1 })
    expect(rows.map(({ id, segment }) => [id, segment])).toEqual([
      ['0-0-0-2', undefined],
      ['0-0-0-2-1', 1],
    ])
    const back = samplesToTrajectories(rows)
    expect([...back.columns().segment]).toEqual([0, 1])
    expect(back.numConversations).toBe(1)
  })

  test('that are pending are no trajectories', () => {
    expect(() => samplesToTrajectories([start])).toThrow('sample 1-7-9-2: got pending, expected completed')
  })
})

describe('appendResponseTokens', () => {
  test('keeps what the model said apart from what it was told: tool tokens are masked, and turns are counted', () => {
    const said = { tokens: [3, 4], text: 'x', trainable: true, logprobs: [-0.5, -0.25], version: 6 }
    let sample = appendResponseTokens(start, said)
    sample = appendResponseTokens(sample, { tokens: [5], text: '<tool>', trainable: false })
    sample = appendResponseTokens(sample, { ...said, tokens: [6], logprobs: [-1], version: 7 })
    expect(sample).toMatchObject({
      ...{ tokens: [1, 2, 3, 4, 5, 6], lossMask: [0, 0, 1, 1, 0, 1], weightVersions: [-1, -1, 6, 6, -1, 7] },
      rolloutLogProbs: [Number.NaN, Number.NaN, -0.5, -0.25, Number.NaN, -1],
      ...{ turn: [0, 0, 0, 0, 1, 1], turns: 2 },
      ...{ response: 'x<tool>x', responseLength: 3, status: 'pending' },
    })
    expect(start.tokens).toEqual([1, 2])
  })

  test('counts the turns of a sample that begins with what the model said', () => {
    const said = { tokens: [3], text: 'x', trainable: true, logprobs: [-0.5], version: 6 }
    const bare = startSample({ epoch: 0, promptId: 0, group: 0, member: 0, example: { prompt: '' }, tokens: [] })
    const told = appendResponseTokens(appendResponseTokens(bare, said), { tokens: [4], text: 'y', trainable: false })
    expect(told).toMatchObject({ turn: [0, 1], turns: 1, tokens: [3, 4], response: 'xy' })
  })

  test('says of what is added that nothing was left out where it is said of the rest', () => {
    const drawn = { ...start, candidateCount: [0, 0], candidateIds: [] }
    const longer = appendResponseTokens(drawn, { tokens: [3, 4], text: 'x', trainable: false })
    expect(longer).toMatchObject({ candidateCount: [0, 0, 0, 0], candidateIds: [] })
  })

  test.each([
    ['fewer logprobs than tokens', { trainable: true, logprobs: [-1], version: 0 }, /got 1 numbers, expected 2/],
    ['no logprobs of what was said', { trainable: true, version: 0 }, /logprobs: got none/],
    ['no version of what was said', { trainable: true, logprobs: [-1, -1] }, /version: got none/],
    ['logprobs of what was told', { trainable: false, logprobs: [-1, -1] }, /expected none/],
    [
      'a logprob that is NaN',
      { trainable: true, logprobs: [-1, Number.NaN], version: 0 },
      /rolloutLogProbs\[3\]: got NaN/,
    ],
    ['a token that is no id', { trainable: false, tokens: [0.5] }, /tokens\[2\]: got 0.5/],
    ['no tokens', { trainable: false, tokens: [] }, /tokens: got none/],
  ])('refuses %s', (_, wrong, message) => {
    expect(() => appendResponseTokens(start, { tokens: [3, 4], text: '', ...wrong })).toThrow(message)
  })
})

describe('a batch', () => {
  test('is the same whoever was done first: groups are not mixed in order of completion', () => {
    const all = samples({ group: 0 }, { group: 0 }, { group: 1 }, { group: 1 }, { group: 0, epoch: 1 })
    fc.assert(
      fc.property(fc.shuffledSubarray(all, { minLength: 5 }), (finished) => {
        expect(convertToBatch(finished).samples).toEqual(all)
      }),
    )
  })

  test('has every field of every sample; a reward that cannot be told is null, not 0', () => {
    const batch = convertToBatch(samples({ reward: 0.5 }, { reward: null, stopReason: 'length', group: 3 }), {
      ...{ epochId: 2, stepId: 11 },
    })
    expect(batch.rewards).toEqual([0.5, null])
    expect(batch.groupIndices).toEqual([0, 3])
    expect(batch.responseLengths).toEqual([2, 2])
    expect(batch.tokens.map((tokens) => Array.from(tokens))).toEqual([
      [5, 6, 7, 8],
      [5, 6, 7, 8],
    ])
    expect(batch.metadata).toEqual({
      ...{ epochId: 2, stepId: 11, numSamples: 2, numGroups: 2, numTokens: 8, weightVersions: { min: 0, max: 0 } },
      statuses: { pending: 0, completed: 1, truncated: 1, aborted: 0, failed: 0 },
    })
    expect(buildBatchMetadata([start], 0, 0).weightVersions).toBeNull()
    expect(extractSampleFields(batch.samples).rewards).toEqual(batch.rewards)
    expect(computeResponseLengths([[0, 1, 1], []])).toEqual([2, 0])
  })

  test('keeps samples of two sources apart whose numbers are equal', () => {
    const rows = ['run b', 'run a'].flatMap((source) => [1, 0].map((member) => trajectory({ source, member })))
    const batch = convertToBatch(samplesOf(tableOf(rows), examples, tokenizer).reverse())
    expect(batch.metadata.numGroups).toBe(2)
    expect(batch.samples.map(({ source, member }) => [source, member])).toEqual([
      ['run a', 0],
      ['run a', 1],
      ['run b', 0],
      ['run b', 1],
    ])
    expect(batch.samples.map(({ id }) => id)).toEqual([
      ...['run a/0-0-0-0', 'run a/0-0-0-1', 'run b/0-0-0-0', 'run b/0-0-0-1'],
    ])
  })

  test('counts groups of two epochs, prompts and group numbers as two, and all samples of one as one', () => {
    const groupsOf = (...rows: Partial<Trajectory>[]) => convertToBatch(samples(...rows)).metadata.numGroups
    expect(groupsOf({ epoch: 0 }, { epoch: 1 })).toBe(2)
    expect(groupsOf({ promptId: 0 }, { promptId: 1 })).toBe(2)
    expect(groupsOf({ group: 0 }, { group: 1 })).toBe(2)
    expect(groupsOf({ member: 0 }, { member: 1 })).toBe(1)
  })

  test('is by source, epoch, group, prompt, member and segment, the first of which that differs decides', () => {
    const ids = (rows: readonly Sample[]) => convertToBatch(rows).samples.map(({ id }) => id)
    const rows = samples(
      { source: 'b', epoch: 0, group: 0, promptId: 0, member: 0 },
      { source: 'a', epoch: 2, group: 0, promptId: 0, member: 0 },
      { source: 'a', epoch: 1, group: 3, promptId: 0, member: 0 },
      { source: 'a', epoch: 1, group: 2, promptId: 5, member: 0 },
      { source: 'a', epoch: 1, group: 2, promptId: 4, member: 7 },
      { source: 'a', epoch: 1, group: 2, promptId: 4, member: 6 },
      { source: 'a', epoch: 1, group: 2, promptId: 4, member: 6, segment: 1 },
    )
    const sorted = ['a/1-4-2-6', 'a/1-4-2-6-1', 'a/1-4-2-7', 'a/1-5-2-0', 'a/1-0-3-0', 'a/2-0-0-0', 'b/0-0-0-0']
    expect(ids(rows)).toEqual(sorted)
    expect(ids([...rows].reverse())).toEqual(sorted)
  })

  test('makes up no group for a sample that has none', () => {
    const [sample] = samples({})
    for (const missing of ['groupIndex', 'promptId', 'epoch', 'member'] as const) {
      const wrong = { ...sample!, [missing]: undefined as never }
      expect(() => convertToBatch([wrong])).toThrow(
        `sample 0-0-0-0, ${missing}: got undefined, expected a whole number`,
      )
    }
  })

  test('of no sample, of one twice, or of a mask that covers the prompt beside tokens that do not, is an error', () => {
    expect(() => convertToBatch([])).toThrow('samples: got none')
    const [sample] = samples({})
    expect(() => convertToBatch([sample!, sample!])).toThrow('got "0-0-0-0" twice, expected each sample once')
    expect(() => convertToBatch([{ ...sample!, tokens: [7, 8] }])).toThrow(/lossMask: got 4 elements, expected 2/)
    expect(() => convertToBatch([{ ...sample!, responseLength: 3 }])).toThrow(/responseLength: got 3, expected 2/)
    expect(() => convertToBatch([{ ...sample!, reward: Number.NaN }])).toThrow(/reward: got NaN/)
    expect(() => convertToBatch([{ ...sample!, status: 'complete' as never }])).toThrow(/did you mean "completed"/)
  })
})

describe('samples in files', () => {
  test('read back as they were, with their tokens where those were written', async () => {
    const path = join(await temporaryFolder(), 'samples.jsonl')
    const candidates = { candidateCount: [0, 0, 2, 0], candidateIds: [7, 9] }
    const rows = samples(
      { reward: null, error: 'no judge', components: { right: null } },
      {
        stopReason: 'context',
        ...candidates,
        segment: 0,
        cutTurns: 1,
        droppedReplies: 1,
        turnReward: [0.5, Number.NaN],
      },
      { member: 1, segment: 1 },
    )
    const asPlain = (sample: Sample) => ({ ...sample, ...tokensOf(sample) })
    const tokensOf = (sample: Sample) =>
      Object.fromEntries(
        Object.entries(sample)
          .filter(([, value]) => ArrayBuffer.isView(value))
          .map(([name, value]) => [name, Array.from(value as ArrayLike<number>)]),
      )
    await exportSamplesToJsonl(rows, path, { includeTokens: true })
    const read = await loadSamplesFromJsonl(path)
    expect(read).toEqual(rows.map(asPlain))
    expect(plain(samplesToTrajectories(read).row(1))).toEqual(plain(samplesToTrajectories(rows).row(1)))
    expect(JSON.parse((await readFile(path, 'utf8')).split('\n')[0]!).rolloutLogProbs).toEqual([null, null, -0.5, -1])

    await exportSamplesToJsonl(rows, path)
    const [without] = await loadSamplesFromJsonl(path, { limit: 1 })
    expect(without).toMatchObject({ id: '0-0-0-0', response: '7 8', reward: null, error: 'no judge', tokens: [] })
    expect((await loadSamplesFromJsonl(path, { limit: 1 })).length).toBe(1)
  })

  test.each([
    ['{"prompt": "p", "resp', /:2: got .* expected a line of JSON/],
    ['[]', /:2: got \[\], expected a sample/],
    ['3', /:2: got 3, expected a sample, as an object/],
    ['null', /:2: got null, expected a sample, as an object/],
    ['{"response": "r"}', /:2, prompt: got undefined/],
    ['{"prompt": "p", "response": 3}', /:2, response: got 3/],
    ['{"prompt": "p", "response": "r", "tokens": [1, 2, 3], "lossMask": [1]}', /:2: sample .*lossMask: got 1 elements/],
    ['{"prompt": "p", "response": "r", "tokens": "123"}', /:2, tokens: got "123", expected a list of numbers/],
    ['{"prompt": "p", "response": "r", "reward": "good"}', /:2: sample .* reward: got "good"/],
    [
      '{"prompt": "p", "response": "r", "tokens": [1], "lossMask": [1], "weightVersions": [3], "rolloutLogProbs": [null]}',
      /:2: sample .*rolloutLogProbs: got NaN/,
    ],
  ])('name the line that is wrong: %s', async (line, message) => {
    const path = join(await temporaryFolder(), 'wrong.jsonl')
    await writeFile(path, `{"prompt": "p", "response": "r"}\n${line}\n`)
    await expect(loadSamplesFromJsonl(path)).rejects.toThrow(message)
  })

  /** Writes lines, and reads them as samples. */
  async function read(lines: readonly object[], options?: LoadSamplesOptions): Promise<Sample[]> {
    const path = join(await temporaryFolder(), 'others.jsonl')
    await writeFile(path, lines.map((line) => JSON.stringify(line)).join('\n'))
    return loadSamplesFromJsonl(path, options)
  }

  test.each<[string, object, object]>([
    [
      'textpolicy',
      {
        ...{
          id: 'a',
          index: 3,
          group_index: 2,
          input: null,
          prompt: 'p',
          ground_truth: 'g',
          response: 'r',
          tokens: [5, 6, 7],
        },
        ...{
          response_length: 2,
          loss_mask: [0.0, 1.0, 1.0],
          reward: 0.5,
          rollout_log_probs: [null, -1, -2],
          score: 0.25,
        },
        ...{ trajectory: null, environment_state: null, status: 'truncated', metadata: { level: 1 } },
      },
      {
        ...{ id: 'a', index: 3, groupIndex: 2, prompt: 'p', groundTruth: 'g', response: 'r', tokens: [5, 6, 7] },
        ...{ lossMask: [0, 1, 1], rolloutLogProbs: [Number.NaN, -1, -2], reward: 0.5, score: { score: 0.25 } },
        ...{ responseLength: 2, status: 'truncated', stopReason: 'length', metadata: { level: 1 } },
      },
    ],
    [
      'slime: of the response alone',
      {
        ...{
          group_index: 1,
          index: 4,
          prompt: 'p',
          tokens: [5, 6, 7, 8],
          response: 'r',
          response_length: 3,
          label: 'g',
        },
        ...{ reward: 1, loss_mask: [1, 0, 1], weight_versions: ['12', '13'], rollout_log_probs: [-1, -2, -3] },
        ...{ status: 'completed', remove_sample: false },
      },
      {
        ...{ lossMask: [0, 1, 0, 1], rolloutLogProbs: [Number.NaN, -1, -2, -3], weightVersions: [-1, -1, -1, -1] },
        ...{ groupIndex: 1, groundTruth: 'g', responseLength: 2, metadata: { weightVersions: ['12', '13'] } },
      },
    ],
    [
      'our older files, which have other names for candidate sets and dropped replies',
      {
        prompt: 'p',
        tokens: [5, 6, 7],
        lossMask: [0, 1, 1],
        response: 'r',
        supportLength: [0, 0, 2],
        supportIds: [7, 9],
        unheard: 1,
      },
      { candidateCount: [0, 0, 2], candidateIds: [7, 9], droppedReplies: 1 },
    ],
    [
      'slime: without a mask the response is learned',
      { prompt: 'p', tokens: [5, 6, 7], response: 'r', response_length: 2, loss_mask: null },
      { lossMask: [0, 1, 1], responseLength: 2 },
    ],
    [
      'slime: nothing is learned of what was removed',
      { prompt: 'p', tokens: [5, 6, 7], response: 'r', response_length: 2, loss_mask: [1, 1], remove_sample: true },
      { lossMask: [0, 0, 0], responseLength: 0 },
    ],
    [
      'TRL',
      {
        prompt: 'p',
        completion: 'c',
        prompt_ids: [5, 6],
        completion_ids: [7, 8],
        logprobs: [-1, -2],
        env_mask: [1, 0],
      },
      {
        ...{ response: 'c', tokens: [5, 6, 7, 8], lossMask: [0, 0, 1, 0] },
        rolloutLogProbs: [Number.NaN, Number.NaN, -1, -2],
      },
    ],
    [
      'verl',
      { input: 'p', output: 'r', gts: 'g', score: 0.75 },
      { prompt: 'p', response: 'r', groundTruth: 'g', reward: 0.75, score: {}, tokens: [] },
    ],
  ])('are read in the spelling of %s', async (_, line, expected) => {
    const [sample] = await read([line])
    expect(sample).toMatchObject(expected)
  })

  test('name a column that nobody knows and the nearest, unless it is to be passed over or kept', async () => {
    const line = { prompt: 'p', response: 'r', los_mask: [1] }
    await expect(read([line])).rejects.toThrow(/:1, column: got "los_mask".*did you mean "lossMask".*unknown: 'ignore'/)
    expect((await read([line], { unknown: 'ignore' }))[0]!.metadata).toEqual({})
    const [kept] = await read([{ ...line, metadata: { level: 1 } }], { unknown: 'keep' })
    expect(kept!.metadata).toEqual({ level: 1, los_mask: [1] })
    await expect(read([line], { unknown: 'drop' as never })).rejects.toThrow(/unknown: got "drop"/)
    await expect(read([line], { ignore: true } as never)).rejects.toThrow(
      /option of loadSamplesFromJsonl: got "ignore"/,
    )
  })

  test('are no more than the limit, which is a whole number', async () => {
    const lines = ['a', 'b', 'c'].map((prompt) => ({ prompt, response: 'r', groupIndex: 0 }))
    for (const limit of [0, 2, 9]) {
      const prompts = (await read(lines, { limit })).map(({ prompt }) => prompt)
      expect(prompts).toEqual(['a', 'b', 'c'].slice(0, limit))
    }
    for (const limit of [-1, 0.5, Number.NaN, '2' as never]) {
      await expect(read(lines, { limit })).rejects.toThrow(/^limit: got .*, expected a whole number ≥ 0$/)
    }
  })

  test.each<[string, object, RegExp]>([
    [
      'two spellings that differ',
      { lossMask: [1], loss_mask: [0], tokens: [1] },
      /lossMask and loss_mask: got two values/,
    ],
    ['tokens without a mask', { tokens: [1, 2] }, /lossMask: got none, expected a mask for the tokens/],
    ['a mask of neither length', { tokens: [1, 2, 3], loss_mask: [1], response_length: 2 }, /lossMask: got 1 elements/],
    [
      'a response longer than its tokens',
      { tokens: [1], loss_mask: [1, 1], response_length: 2 },
      /lossMask: got 2 elements/,
    ],
    ['ids of the prompt alone', { prompt_ids: [1] }, /promptIds and completionIds: got one of them/],
    [
      'both kinds of ids',
      { prompt_ids: [1], completion_ids: [2], tokens: [1, 2] },
      /tokens: got both tokens and promptIds/,
    ],
    ['an answer that is no text', { label: 4 }, /groundTruth: got 4, expected a text/],
    ['a removal that is no flag', { remove_sample: 'no' }, /removeSample: got "no"/],
    ['a group that is no number', { groupIndex: 'a' }, /groupIndex: got "a"/],
    ['a turn worth a text', { turnReward: ['1'] }, /turnReward: got \["1"\]/],
  ])('are refused with %s', async (_, wrong, message) => {
    await expect(read([{ prompt: 'p', response: 'r', ...wrong }])).rejects.toThrow(message)
  })

  test('without groups have one a prompt, by its words, and a warning says so; two files are two sources', async () => {
    const warnings: string[] = []
    const note = (warning: Error) => warnings.push(warning.message)
    process.on('warning', note)
    const lines = ['p', 'q', 'p'].map((prompt) => ({ prompt, response: 'r' }))
    const rows = await read(lines)
    expect(rows.map(({ promptId, groupIndex, member }) => [promptId, groupIndex, member])).toEqual([
      [0, 0, 0],
      [1, 0, 0],
      [0, 0, 1],
    ])
    const others = await read(lines.slice(1))
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', note)
    expect(warnings).toEqual([expect.stringMatching(/others.jsonl has no groupIndex: .* each prompt are one group/)])
    expect(rows[0]!.source).not.toBe(others[0]!.source)
    expect(convertToBatch([...rows, ...others]).metadata.numGroups).toBe(4)
    const mixed = [{ ...lines[0], groupIndex: 3 }, lines[1]!]
    await expect(read(mixed)).rejects.toThrow(/:2, groupIndex: got none, expected one, as before/)
    await expect(read(mixed.reverse())).rejects.toThrow(/:2, groupIndex: got 3, expected none, as before/)
  })

  test('say what each turn was worth, of which a reward that is missing is made as declared', async () => {
    const line = { prompt: 'p', response: 'r', turn_rewards: [4, null, 2] }
    const rewardOf = async (more: object, options?: LoadSamplesOptions) =>
      (await read([{ ...line, ...more }], options))[0]!
    expect(await rewardOf({})).toMatchObject({ reward: 2, turnReward: [4, Number.NaN, 2] })
    expect((await rewardOf({}, { rewardReduction: 'sum' })).reward).toBeNull()
    expect((await rewardOf({ turn_rewards: [4, 1.5] }, { rewardReduction: 'mean' })).reward).toBe(2.75)
    expect((await rewardOf({ reward: 7 })).reward).toBe(7)
    expect((await rewardOf({ reward: null })).reward).toBeNull()
    await expect(rewardOf({}, { rewardReduction: 'best' as never })).rejects.toThrow(/rewardReduction: got "best"/)

    const path = join(await temporaryFolder(), 'turns.jsonl')
    await exportSamplesToJsonl(samples({ turnReward: [Number.NaN, 3] }), path)
    expect(JSON.parse(await readFile(path, 'utf8')).turnReward).toEqual([null, 3])
    expect((await loadSamplesFromJsonl(path))[0]!.turnReward).toEqual([Number.NaN, 3])
  })

  test('say null of what nobody recorded, and read it back as that; columns that are not there are not recorded', async () => {
    const path = join(await temporaryFolder(), 'samples.jsonl')
    const wrote = { logprob: [Number.NaN, -2, Number.NaN, 0], version: [-1, -1, -1, 4], candidateCount: [0, 0, -1, 0] }
    await exportSamplesToJsonl(samples({ ...wrote, candidateIds: [] }), path, { includeTokens: true })
    const line = JSON.parse(await readFile(path, 'utf8'))
    expect([line.rolloutLogProbs, line.candidateCount]).toEqual([
      [null, -2, null, 0],
      [0, 0, null, 0],
    ])
    const [read] = await loadSamplesFromJsonl(path)
    expect(plain(samplesToTrajectories([read!]).row(0))).toMatchObject(wrote)

    await writeFile(path, '{"prompt": "p", "response": "r", "tokens": [1, 2, 3], "lossMask": [0, 1, 1], "reward": 1}')
    const [bare] = await loadSamplesFromJsonl(path)
    expect(bare).toMatchObject({ rolloutLogProbs: [Number.NaN, Number.NaN, Number.NaN], weightVersions: [-1, -1, -1] })
  })

  test('are not written at all where a number is not finite: JSON would make it null', async () => {
    const path = join(await temporaryFolder(), 'samples.jsonl')
    const [sample] = samples({})
    await expect(exportSamplesToJsonl([sample!, { ...sample!, reward: Number.NaN }], path)).rejects.toThrow(/got NaN/)
    await expect(readFile(path)).rejects.toThrow('ENOENT')
  })

  test('for trainers of Hugging Face are prompt and completion, as texts or as messages, not some of each', async () => {
    const path = join(await temporaryFolder(), 'trl.jsonl')
    const lines = async () =>
      (await readFile(path, 'utf8'))
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
    const [text] = samples({ reward: null })
    await exportSamplesToHuggingfaceFormat([text!], path)
    expect(await lines()).toEqual([{ prompt: 'prompt 0', completion: '7 8', reward: null }])
    const messages = { ...text!, prompt: [{ role: 'user', content: 'hello' }] }
    await exportSamplesToHuggingfaceFormat([messages], path)
    expect(await lines()).toEqual([
      { prompt: messages.prompt, completion: [{ role: 'assistant', content: '7 8' }], reward: null },
    ])
    await expect(exportSamplesToHuggingfaceFormat([text!, messages], path)).rejects.toThrow(/as in the first sample/)
  })
})
