/**
 * A worker of a language model trainer: its share of a tick's lanes, and of an update's micro-batches. In a tick a
 * thread decodes its share of the lanes, if there are enough lanes and parameters to pay for two meetings; in an update
 * threads take micro-batches until none is left.
 */
import { parentPort, receiveMessageOnPort } from 'node:worker_threads'
import { TokenThread, type TokenWork } from '../../../algorithms/tokens/token-thread.ts'
import { Clock, Work } from '../../../base/clock.ts'
import { Random } from '../../../base/random.ts'
import { viewColumns } from '../../../components/arena.ts'
import { receiveColumns, type Sent } from '../../../components/places.ts'
import { type DecodingThread, decodeShare } from '../../../engines/local/decode-share.ts'
import { createKernels } from '../../../kernels/bind.ts'
import { TransformerDecoder } from '../../../language/transformer/decoder.ts'
import { lora } from '../../../language/transformer/lora.ts'
import { transformer } from '../../../language/transformer/model.ts'
import type { TextOrder, WorkerProgram } from '../../threads/orders.ts'
import { TextCommand } from './team.ts'

/** A worker's program. It shares weights and cache, and has the model but not the environment. */
export function textProgram(order: TextOrder): WorkerProgram {
  const { memory, index, seed, kernels: build, config, context, sampling, explore } = order
  const { apart } = order
  const {
    decoding,
    learner,
    weights,
    adapter: adapted,
  } = viewColumns(receiveColumns(order.columns, apart), memory, apart)
  const kernels = createKernels(memory, build, apart === null ? 'lasting' : 'apart')
  const model = transformer(config, order.options)
  const random = new Random(seed)
  const adapter = order.lora === null ? null : { lora: lora(model, order.lora), weights: adapted, random }
  const clock = new Clock()
  clock.trace = order.trace
  clock.start()
  /** Null if the backend needs no help. */
  const thread = learner === undefined ? null : new TokenThread(model, weights, learner, kernels, adapter, clock)
  /** Null if the engine needs no help. */
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
    } else thread!.run(receiveColumns(receiveMessageOnPort(parentPort!)!.message as Sent<TokenWork>, apart))
    yield // All are done.
  }
}
