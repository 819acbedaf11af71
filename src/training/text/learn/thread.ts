/**
 * What a worker does for a trainer of language models: its share of the lanes of a tick, and of an update's
 * micro-batches. In a tick a thread feeds and chooses for its share of the lanes that decode, where there are lanes and
 * parameters enough to be worth two meetings; in an update threads take micro-batches until none is left.
 */
import { parentPort, receiveMessageOnPort } from 'node:worker_threads'
import { TokenThread, type TokenWork } from '../../../algorithms/tokens/token-thread.ts'
import { Clock, Work } from '../../../base/clock.ts'
import { Random } from '../../../base/random.ts'
import { viewColumns } from '../../../components/arena.ts'
import { type DecodingThread, decodeShare } from '../../../engines/local/local.ts'
import { createKernels } from '../../../kernels/bind.ts'
import { TransformerDecoder } from '../../../language/transformer/decoder.ts'
import { lora } from '../../../language/transformer/lora.ts'
import { transformer } from '../../../language/transformer/model.ts'
import type { TextOrder, WorkerProgram } from '../../threads/team.ts'

/** What a command's first number says. */
export const TextCommand = {
  /** Say a token in each lane of the share, of which there are as many as the second number. */
  decode: 0,
  /** Do what was posted, a `TokenWork`. */
  learn: 1,
} as const

/** The program of a worker. It shares weights and cache, and knows the trainer's model and nothing of its environment. */
export function textProgram(order: TextOrder): WorkerProgram {
  const { memory, index, seed, kernels: build, config, context, sampling, explore } = order
  const { valueHead, quantizeActivations } = order
  const { decoding, learner, weights, adapter: adapted } = viewColumns(order.columns, memory)
  const kernels = createKernels(memory, build)
  const model = transformer(config, { valueHead, quantizeActivations })
  const random = new Random(seed)
  const adapter = order.lora === null ? null : { lora: lora(model, order.lora), weights: adapted, random }
  const clock = new Clock()
  clock.trace = order.trace
  clock.start()
  /** Null where the backend needs no help. */
  const thread = learner === undefined ? null : new TokenThread(model, weights, learner, kernels, adapter, clock)
  /** Null where the engine needs no help. */
  const decoder: DecodingThread | null =
    decoding === undefined
      ? null
      : {
          ...decoding,
          decoder: new TransformerDecoder(model, weights, decoding.decoder, kernels, random, adapter),
          ...{ context, sampling, explore },
          slots: new Int32Array(decoding.turns.active.length),
          source: new Int32Array(decoding.turns.active.length),
          samplings: [],
        }
  return function* (command) {
    clock.charge(Work.waiting)
    if (command[0] === TextCommand.decode) {
      decodeShare(decoder!, index, command[1]!)
      clock.charge(Work.infer)
    } else thread!.run(receiveMessageOnPort(parentPort!)!.message as TokenWork)
    yield // All are done.
  }
}
