/** The index of a run's metrics, by which the dashboard opens long runs at once. */
import { MetricsFile } from '../../telemetry/dashboard/metrics-file.ts'

const files = new WeakMap<object, MetricsFile>()

/** Brings the index of a folder's `metrics.jsonl` up to date; short files need none. */
export async function keepMetricsIndex(folder: { file(name: string): string }): Promise<void> {
  const metrics = files.get(folder) ?? new MetricsFile(folder.file('metrics.jsonl'))
  files.set(folder, metrics)
  await metrics.read()
  await metrics.keepIndex()
}
