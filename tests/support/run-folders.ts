/** Run folders with what a test says, and nothing that was trained. */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

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
  }: { seed?: number; learningRate?: number; metrics?: string; status?: string; version?: string } = {},
): Promise<void> {
  await mkdir(folder, { recursive: true })
  const config = {
    colonnade: version,
    environment: { id: 'CartPole-v1', parameters: { maxEpisodeSteps: 500 } },
    policy: { id: 'mlp', parameters: { hidden: [8, 4] } },
    algorithm: { id: 'ppo', parameters: { learningRate } },
    settings: { seed, numLanes: 16 },
  }
  await writeFile(join(folder, 'config.json'), JSON.stringify(config))
  await writeFile(join(folder, 'metrics.jsonl'), metrics)
  if (status !== undefined) await writeFile(join(folder, 'summary.json'), JSON.stringify({ status }))
}
