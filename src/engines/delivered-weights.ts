/** Weights in folders for servers, written once for all servers of a delivery. */
import { deliverFolder } from '../language/transformer/delivery.ts'
import { saveTransformer } from '../language/transformer/folder.ts'
import { saveLora } from '../language/transformer/lora-folder.ts'
import type { TransformerModel } from '../language/transformer/model.ts'
import type { EngineContext, WeightsDelivery } from './engine.ts'
import { WeightsSource } from './weight-deltas.ts'

/** The result of writing each delivery, by folder path. */
const writing = new WeakMap<WeightsDelivery, Map<string, Promise<number | null>>>()
/** One source per folder: a delta is relative to weights that all servers already have. */
const sources = new WeakMap<TransformerModel, Map<string, WeightsSource>>()

/**
 * Writes the weights of a delivery: whole into a folder of their own, or as a delta into a folder that keeps all versions. Returns the
 * version number to pull from the delta folder, or null for a folder of their own.
 */
export function writeDelivered(
  path: string,
  delivery: WeightsDelivery,
  context: Pick<EngineContext, 'model' | 'adapter'>,
  hasDeltas: boolean,
): Promise<number | null> {
  const folders = within(writing, delivery)
  const written = folders.get(path) ?? write(path, delivery, context, hasDeltas)
  folders.set(path, written)
  return written
}

async function write(
  path: string,
  { version, weights }: WeightsDelivery,
  { model, adapter }: Pick<EngineContext, 'model' | 'adapter'>,
  hasDeltas: boolean,
): Promise<number | null> {
  if (hasDeltas) {
    const ofModel = within(sources, model)
    const source = ofModel.get(path) ?? new WeightsSource(path, model)
    ofModel.set(path, source)
    return source.publish(weights)
  }
  await deliverFolder(path, version, (temporary) =>
    adapter === null ? saveTransformer(temporary, model, weights) : saveLora(temporary, adapter.lora, weights),
  )
  return null
}

function within<K extends WeakKey, V>(maps: WeakMap<K, Map<string, V>>, key: K): Map<string, V> {
  const found = maps.get(key) ?? new Map<string, V>()
  maps.set(key, found)
  return found
}
