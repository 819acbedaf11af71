/** The served weights, their labels and the loaded adapter. Loads others from folders, verified by `delivery.json`. */
import { createHash } from 'node:crypto'
import { InputError } from '../../base/errors.ts'
import { RequestError } from '../../base/http/server.ts'
import type { LocalEngine } from '../../engines/local/local.ts'
import { checkDelivered } from '../../language/transformer/delivery.ts'
import { loadTransformer } from '../../language/transformer/folder.ts'
import type { LoraAdapter } from '../../language/transformer/lora.ts'
import { loadLoraWeights } from '../../language/transformer/lora-folder.ts'
import type { TransformerModel } from '../../language/transformer/model.ts'
import { type BaseWeights, setWeights } from '../../language/transformer/quantized.ts'
import type { Naming } from './naming.ts'

/** Applies weights that were read, under this label or a new one. Returns the label. */
type Take = (label: string | null) => string

/** The label of the initial weights, as in vLLM and SGLang. */
const FIRST_LABEL = 'default'

export class ServedWeights implements Naming {
  readonly #name: string
  readonly #engine: LocalEngine
  readonly #model: TransformerModel
  readonly #weights: BaseWeights
  readonly #adapter: LoraAdapter | null
  /** The initial adapter, restored when a loaded one is unloaded. */
  readonly #firstAdapter: Float32Array | null
  #adapterName: string | null = null
  /** By version of the engine. */
  readonly #labels: string[] = [FIRST_LABEL]
  /** Called for each version of the engine when its weights are in place. */
  onChange: ((version: number) => void) | null = null

  constructor(
    name: string,
    engine: LocalEngine,
    { model, weights, adapter }: { model: TransformerModel; weights: BaseWeights; adapter: LoraAdapter | null },
  ) {
    this.#name = name
    this.#engine = engine
    this.#model = model
    this.#weights = weights
    this.#adapter = adapter
    this.#firstAdapter = adapter?.weights.slice() ?? null
  }

  /** The served name: of the loaded adapter, or else of the model. There is one set of weights. */
  names(): string[] {
    return [this.#adapterName ?? this.#name]
  }

  labelOf(version: number): string {
    return this.#labels[version]!
  }

  currentLabel(): string {
    return this.labelOf(this.#engine.version)
  }

  /** Reads the model's weights. @throws InputError if the folder has none, or differs from its delivery.json. */
  async readModel(folder: string): Promise<Take> {
    await checkDelivered(folder)
    const { model, weights } = await loadTransformer(folder, { valueHead: this.#model.hasValueHead })
    if (JSON.stringify(model.shape) !== JSON.stringify(this.#model.shape)) {
      const expected = `${JSON.stringify(this.#model.shape)}, as the served model`
      throw new InputError(`${folder}/config.json`, JSON.stringify(model.shape), expected)
    }
    return (label) => {
      setWeights(this.#weights, this.#model, weights)
      return this.#changed(label)
    }
  }

  /** Reads an adapter, which requests then call `name`. @throws InputError for a server without a matching one. */
  async readAdapter(name: string, folder: string): Promise<Take> {
    const adapter = this.#adapter
    if (adapter === null) {
      const expected = 'a server started with an adapter, or with loraRank='
      throw new InputError(`adapter ${name}`, 'a server without adapters', expected)
    }
    await checkDelivered(folder)
    const weights = await loadLoraWeights(folder, adapter.lora)
    return (label) => {
      adapter.weights.set(weights)
      this.#adapterName = name
      return this.#changed(label)
    }
  }

  /** Serves the initial model again. @throws RequestError 404 if no adapter of this name is loaded. */
  unloadAdapter(name: string): void {
    if (this.#adapterName !== name) {
      throw new RequestError(404, `no adapter ${name} is loaded`, { param: 'lora_name', code: 'model_not_found' })
    }
    this.#adapter!.weights.set(this.#firstAdapter!)
    this.#adapterName = null
    this.#changed(null)
  }

  /** A copy of the trainable weights: the adapter's, or the model's. */
  copy(): Float32Array {
    const own = this.#adapter?.weights ?? this.#weights
    if (own instanceof Float32Array) return own.slice()
    throw new InputError('weights', 'a quantized model', 'an adapter, or whole weights')
  }

  /** Restores weights from `copy`, under the current label or another. */
  putBack(numbers: Float32Array, label = this.currentLabel()): void {
    ;((this.#adapter?.weights ?? this.#weights) as Float32Array).set(numbers)
    this.#changed(label)
  }

  /** Gives the unchanged weights another label, from the next token on. */
  relabel(label: string): string {
    return this.#changed(label)
  }

  /** SHA-256 of each parameter in f32; of quantized weights, of all together. */
  checksums(): Record<string, string> {
    const sums: Record<string, string> = {}
    const hash = (values: ArrayBufferView) =>
      createHash('sha256')
        .update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))
        .digest('hex')
    const add = (parameters: TransformerModel['parameters'], values: Float32Array, prefix: string) => {
      for (const { name, offset, shape } of parameters) {
        const size = shape.reduce((product, length) => product * length, 1)
        sums[prefix + name] = hash(values.subarray(offset, offset + size))
      }
    }
    if (this.#weights instanceof Float32Array) add(this.#model.parameters, this.#weights, '')
    else for (const [name, values] of Object.entries(this.#weights)) sums[`quantized.${name}`] = hash(values)
    if (this.#adapter !== null) add(this.#adapter.lora.parameters, this.#adapter.weights, 'adapter.')
    return sums
  }

  /** After a change in place: the engine's next tokens have a new version. */
  #changed(label: string | null): string {
    const version = this.#labels.length
    this.#labels.push(label ?? String(version))
    const own = this.#adapter?.weights ?? this.#weights
    this.#engine.setWeights({ version, weights: own as Float32Array })
    this.onChange?.(version)
    return this.currentLabel()
  }
}
