/** Untrained run folders with given content. */
import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { byteTokenizer } from '../../src/language/tokenizers/byte-tokenizer.ts'
import { TokenTexts } from '../../src/language/tokenizers/token-texts.ts'
import { Trajectories } from '../../src/tables/trajectories/trajectories.ts'
import { writeTrajectories } from '../../src/tables/trajectories/trajectory-table.ts'
import { trajectory } from './trajectories.ts'

/** Lines of metrics.jsonl. */
export function metricLines(...lines: readonly object[]): string {
  return lines.map((line) => `${JSON.stringify(line)}\n`).join('')
}

/** Writes a run of CartPole into a folder. */
export async function writeRun(
  folder: string,
  {
    seed = 1,
    learningRate = 0.1,
    metrics = '',
    status,
    version = '0.1.0',
    isOfText = false,
    wrappers,
  }: {
    seed?: number
    learningRate?: number
    metrics?: string
    status?: string
    version?: string
    isOfText?: boolean
    wrappers?: readonly object[]
  } = {},
): Promise<void> {
  await mkdir(folder, { recursive: true })
  const config = {
    colonnade: version,
    environment: { id: 'CartPole-v1', parameters: { maxEpisodeSteps: 500 }, wrappers },
    policy: { id: 'mlp', parameters: { hidden: [8, 4] } },
    algorithm: { id: 'ppo', parameters: { learningRate } },
    settings: { seed, numLanes: 16 },
    ...(isOfText ? { sft: { id: 'sft', parameters: {} } } : {}),
  }
  await writeFile(join(folder, 'config.json'), JSON.stringify(config))
  await writeFile(join(folder, 'metrics.jsonl'), metrics)
  if (status !== undefined) await writeFile(join(folder, 'summary.json'), JSON.stringify({ status }))
}

/**
 * Writes a file of one group of conversations, in each of which the model says one of these texts in bytes; the first
 * gets the highest reward.
 */
export async function writeConversations(path: string, texts: readonly string[]): Promise<void> {
  const [tokenizer, trajectories] = [byteTokenizer(), new Trajectories()]
  const prompt = tokenizer.encode('so? ')
  for (const [member, text] of texts.entries()) {
    const said = tokenizer.encode(text)
    const column = (ofPrompt: number, ofModel: (i: number) => number) => [
      ...prompt.map(() => ofPrompt),
      ...said.map((_, i) => ofModel(i)),
    ]
    trajectories.append(
      trajectory({
        ...{ member, reward: 1 / (member + 1), token: [...prompt, ...said], turn: column(0, () => 0) },
        ...{ lossMask: column(0, () => 1), version: column(-1, () => 0), logprob: column(Number.NaN, (i) => -i / 4) },
      }),
    )
  }
  trajectories.setAdvantages(texts.map((_, i) => (texts.length - 1) / 2 - i))
  const tokenTexts = new TokenTexts(tokenizer)
  await mkdir(dirname(path), { recursive: true })
  await writeTrajectories(path, trajectories, {
    ...{ environment: 'text/own', model: 'languageModel', tokenizer: 'bytes', algorithm: 'grpo', seed: 0 },
    promptOf: () => '"so? "',
    decode: (ids) => tokenizer.decode(ids),
    textsOf: (ids) => tokenTexts.of(ids),
  })
}
