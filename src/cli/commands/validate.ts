import { isThere } from '../../base/files/files.ts'
import type { Command } from '../../base/invocation.ts'
import {
  findTextEnvironment,
  type LogprobReport,
  loadTrainedModel,
  loadTransformer,
  transformerLogprobs,
  type ValidatedTransformer,
  validateLogprobImplementation,
} from '../../entries/text.ts'
import { InputError, kindOfRun, languageModel, openRun, Random } from '../../index.ts'
import { askForModule } from '../words/trust.ts'

const EXIT = { held: 0, failed: 1, unchecked: 2 } as const

/** colonnade validate [folder|task]: checks log-probabilities. Exits with 0 (all hold), 1 (failed) or 2 (unchecked). */
export const validateCommand: Command = async ({ words, json }) => {
  const [subject = 'text/reverse', ...rest] = words
  try {
    if (rest.length > 0) throw new InputError('arguments', words.join(' '), 'one folder or task, or none')
    const report = await validate(subject)
    if (!json) print(subject, report)
    process.exitCode = EXIT[report.status]
    return { subject, ...report }
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    console.error(`colonnade: ${error.message}`)
    process.exitCode = EXIT.unchecked
    return { subject, status: 'unchecked', why: error.message, checks: [] }
  }
}

async function validate(subject: string): Promise<LogprobReport> {
  // Our kernels must give the same bits on every way to a token.
  return validateLogprobImplementation(transformerLogprobs(await open(subject)), { tolerances: { logprob: 0 } })
}

async function open(subject: string): Promise<ValidatedTransformer> {
  if (subject.startsWith('text/')) {
    const environment = (await findTextEnvironment(subject))()
    const { model } = await languageModel().open(environment)
    const weights = new Float32Array(model.numParameters)
    model.initialize(weights, new Random(0), 0)
    return { model, weights }
  }
  if ((await kindOfRun(subject)) === null) {
    if (!(await isThere(subject))) await openRun(subject) // Reports that there is nothing.
    return loadTransformer(subject)
  }
  const { policy, environment, weights, adapter } = await loadTrainedModel(subject, { allowModule: askForModule([]) })
  const { model, adapter: opened } = await policy.open(environment)
  return { model, weights, adapter: adapter === null ? null : { lora: opened!, weights: adapter } }
}

function print(subject: string, { checks }: LogprobReport): void {
  console.log(`${subject}: log-probabilities of whole sequences, batches and decoding`)
  for (const { name, status, why, difference } of checks) {
    const seen = difference === null ? '' : `largest difference ${difference === 0 ? 0 : difference.toPrecision(2)}`
    console.log(`${status.padEnd(9)} ${name.padEnd(25)} ${why ?? seen}`.trimEnd())
  }
}
