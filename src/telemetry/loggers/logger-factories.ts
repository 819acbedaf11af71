/** The loggers that a run can name. A page has another body (`logger-factories.page.ts`). */
import { csv } from './csv.ts'
import { jsonl } from './jsonl.ts'
import { mlflow } from './mlflow.ts'
import { prometheus } from './prometheus.ts'
import { tensorboard } from './tensorboard.ts'
import { trackio } from './trackio.ts'

export const loggerFactories: readonly unknown[] = [tensorboard, csv, jsonl, prometheus, trackio, mlflow]
