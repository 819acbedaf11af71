/**
 * A teacher: a model, in this process or at a server, whose log-probabilities of the sampled tokens replace the reference's. Student and
 * teacher need the same tokens. In this process one thread evaluates the teacher, in memory of its own.
 * Or a model in this process whose whole distributions are the targets of supervised steps.
 */
import type { TokenBatch } from '../../../algorithms/tokens/token-batch.ts'
import { microBatchRows } from '../../../algorithms/tokens/token-learner.ts'
import { InputError, show } from '../../../base/errors.ts'
import { JsonClient } from '../../../base/http/json-client.ts'
import { column } from '../../../components/column.ts'
import { type LanguageModelFolder, openLanguageModel } from '../../../language/load-language-model.ts'
import type { Tokenizer } from '../../../language/tokenizers/tokenizer.ts'
import { takeColumns } from '../../../language/transformer/memory.ts'
import { PackedTransformer, packedPlan } from '../../../language/transformer/packed.ts'
import { rowTaker } from '../../../language/transformer/quantized.ts'
import type { Sampling } from '../../../language/transformer/sampling.ts'
import { SoftTargets } from '../../../language/transformer/soft-targets.ts'
import type { ConversationCohort } from '../../../world/conversations/cohort.ts'

export interface Teacher {
  /** Writes the log-probability of each of the batch's tokens, at its index; 0 for each sequence's first. */
  evaluate(batch: TokenBatch, temperature: number, logprob: Float32Array): Promise<void>
}

/** Seconds before a request fails, its retries, and the number of concurrent requests. */
const [DEADLINE, RETRIES, AT_ONCE] = [300, 2, 8]

/**
 * Opens a teacher: a folder or hub id of a model, or a server as `vllm:http://…` or `sglang:http://…`.
 * @throws InputError for a model that cannot be read, for tokens other than the student's, and, at a server, if the student samples at
 * another temperature than 1 or from a part of the vocabulary.
 */
export async function openTeacher(
  subject: string,
  name: string,
  student: Student & Pick<ConversationCohort, 'sampling'>,
): Promise<Teacher> {
  const [, kind, url] = SERVER.exec(name) ?? []
  if (kind === undefined) return localTeacher(subject, name, student)
  checkSampled(subject, name, student.sampling)
  const client = new JsonClient(url!, { deadline: DEADLINE, retries: RETRIES, apiKey: '' })
  return serverTeacher(client, kind === 'vllm' ? askVllm(await firstModel(subject, client)) : askSglang)
}

/** Opens a model whose distributions supervised steps learn. @throws InputError as `openTeacher` does, and for a server. */
export async function openTargets(subject: string, name: string, student: Student): Promise<SoftTargets> {
  checkLocal(subject, name)
  return new SoftTargets(await openModel(subject, name, student))
}

/**
 * Checks what can be known of a phase's teacher before its weights are read, and before a server is asked.
 * @throws InputError as `openTeacher` does for the teacher of `rl`, and as `openTargets` does for that of `sft`.
 */
export async function checkTeacher(
  phase: string,
  { teacher }: { readonly teacher: string },
  student: Student & { readonly sampling: Partial<Sampling> },
): Promise<void> {
  if (teacher === '') return
  const subject = `${phase}.teacher`
  if (phase === 'sft') checkLocal(subject, teacher)
  if (SERVER.test(teacher)) checkSampled(subject, teacher, student.sampling)
  else await openFolder(subject, teacher, student)
}

type Student = Pick<ConversationCohort, 'tokenizer' | 'context'>

const SERVER = /^(vllm|sglang):(https?:.*)$/

function checkLocal(subject: string, name: string): void {
  if (!SERVER.test(name)) return
  throw new InputError(subject, name, 'a model in this process: a server tells no whole distributions')
}

function checkSampled(subject: string, name: string, sampling: Partial<Sampling>): void {
  const { temperature = 1, topK = 0, topP = 1, minP = 0 } = sampling
  if (temperature === 1 && topK === 0 && topP === 1 && minP === 0) return
  const got = `${name}, and sampling by temperature, topK, topP or minP`
  throw new InputError(subject, got, 'a model in this process, or sampling without them')
}

async function openFolder(
  subject: string,
  folder: string,
  { tokenizer, context }: Student,
): Promise<LanguageModelFolder> {
  const opened = await openLanguageModel(folder).catch((cause) => {
    if (!(cause instanceof InputError)) throw cause
    throw new InputError(`${subject}, ${cause.subject}`, cause.got, cause.expected, { cause })
  })
  checkTokens(subject, folder, opened.tokenizer, tokenizer)
  const { contextLength } = opened.model.shape
  if (contextLength < context) {
    throw new InputError(subject, `${folder}, with a context of ${contextLength}`, `at least ${context}`)
  }
  return opened
}

async function openModel(subject: string, folder: string, student: Student): Promise<PackedTransformer> {
  const { context } = student
  const { model, openWeights } = await openFolder(subject, folder, student)
  const { fill } = await openWeights()
  const { columns, kernels } = takeColumns({
    weights: column('f32', model.numParameters),
    packed: packedPlan(model, microBatchRows(context), context),
  })
  fill(rowTaker(model, columns.weights))
  return new PackedTransformer(model, columns.weights, columns.packed, kernels)
}

async function localTeacher(subject: string, folder: string, student: Student): Promise<Teacher> {
  const packed = await openModel(subject, folder, student)
  return {
    async evaluate({ token, spans, parts, candidates }, temperature, logprob) {
      for (let part = 0; part + 1 < parts.length; part++) {
        const [from, to] = [parts[part]!, parts[part + 1]!]
        const said = packed.evaluate(packed.pack(token, spans, from, to, candidates), temperature)
        for (let i = from, row = 0; i < to; i++) {
          logprob[spans.begin[i]!] = 0
          for (let t = spans.begin[i]! + 1; t < spans.end[i]!; t++) logprob[t] = said.logprob[row++]!
        }
      }
    },
  }
}

function checkTokens(subject: string, folder: string, teacher: Tokenizer, student: Tokenizer): void {
  const { vocabularySize } = student
  if (teacher.vocabularySize !== vocabularySize) {
    const got = `${folder}, with ${teacher.vocabularySize} tokens`
    throw new InputError(subject, got, `the student's ${vocabularySize}: log-probabilities are compared token by token`)
  }
  for (let id = 0; id < vocabularySize; id++) {
    const [theirs, ours] = [teacher.decode([id]), student.decode([id])]
    if (theirs === ours) continue
    throw new InputError(subject, `${folder}, whose token ${id} is ${show(theirs)}`, `${show(ours)}, as the student's`)
  }
}

/** The log-probabilities of ids, in order; the first may be anything. */
type Ask = (client: JsonClient, ids: readonly number[]) => Promise<readonly unknown[]>

function serverTeacher(client: JsonClient, ask: Ask): Teacher {
  return {
    async evaluate({ token, spans: { begin, end }, parts }, _, logprob) {
      const count = parts.at(-1)!
      let next = parts[0]!
      const work = async (): Promise<void> => {
        while (next < count) {
          const i = next++
          const ids = Array.from({ length: end[i]! - begin[i]! }, (_, t) => token[begin[i]! + t]!)
          const said = await ask(client, ids)
          if (said.length !== ids.length) {
            throw new InputError(`teacher at ${client.url}`, `${said.length} log-probabilities`, `${ids.length}`)
          }
          for (const [t, value] of said.entries()) {
            if (t > 0 && !(typeof value === 'number' && value <= 0 && value > -Infinity)) {
              throw new InputError(`teacher at ${client.url}`, show(value), 'a log-probability, a number ≤ 0')
            }
            logprob[begin[i]! + t] = t === 0 ? 0 : (value as number)
          }
        }
      }
      await Promise.all(Array.from({ length: AT_ONCE }, work))
    },
  }
}

async function firstModel(subject: string, client: JsonClient): Promise<string> {
  const { data } = (await client.ask('/v1/models', null)) as { data?: readonly { readonly id?: unknown }[] }
  const id = data?.[0]?.id
  if (typeof id === 'string') return id
  throw new InputError(subject, `${client.url}, whose first model is ${show(id)}`, 'a server with a model')
}

/** vLLM answers with a map of ids to log-probabilities for each id of the prompt. */
function askVllm(model: string): Ask {
  return async (client, ids) => {
    const body = { model, prompt: ids, max_tokens: 1, temperature: 1, prompt_logprobs: 0 }
    const { choices } = (await client.ask('/v1/completions', body)) as { choices?: readonly Record<string, unknown>[] }
    const said = choices?.[0]?.prompt_logprobs
    if (!Array.isArray(said)) return []
    return said.map((entry: Record<string, { logprob?: unknown }> | null, t) => entry?.[String(ids[t])]?.logprob)
  }
}

/** SGLang answers with triples of log-probability, id and text. */
async function askSglang(client: JsonClient, ids: readonly number[]): Promise<readonly unknown[]> {
  const sampling = { max_new_tokens: 0, temperature: 1 }
  const body = { input_ids: ids, return_logprob: true, logprob_start_len: 0, sampling_params: sampling }
  const { meta_info: meta } = (await client.ask('/generate', body)) as { meta_info?: Record<string, unknown> }
  const said = meta?.input_token_logprobs
  if (!Array.isArray(said)) return []
  return said.map((entry: readonly unknown[] | null, t) => (entry?.[1] === ids[t] ? entry[0] : undefined))
}
