/**
 * Writing a trained policy for other software to run. A model that is dense layers and nothing else says so
 * (`PolicyModel.dense`), and can be written as an ONNX model, a LayersModel of tfjs, or an ES module without
 * dependencies. What a policy does there is its mode; tests compare it with the original's.
 */
import { join } from 'node:path'
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { writeWhole } from '../../base/files/files.ts'
import { layersModel, MODEL_FILE, WEIGHTS_FILE } from './layers.ts'
import { moduleText } from './module.ts'
import { type Exported, networkOf } from './network.ts'
import { onnxModel } from './onnx.ts'

/** ONNX, a LayersModel of tfjs, or an ES module without dependencies. */
export const exportFormats = ['onnx', 'layers', 'module'] as const

/** Which policy is written, as what, and where to. */
export interface ExportOptions extends Exported {
  readonly format: (typeof exportFormats)[number]
  /** The file to write; of `layers` the folder. */
  readonly out: string
}

/**
 * Writes a policy of dense layers with its weights, and returns the files that it wrote.
 *
 * - `onnx`: a model of opset 17; `observation` in, `action`, `logits` or `mean` and `logStd`, and `value` out. A masked
 *   environment's takes `actionMask` besides.
 * - `layers`: a folder with `model.json` and `weights.bin` for `tf.loadLayersModel`; `logits` or `mean`, and `value` out.
 * - `module`: an ES module for browsers and Node with `act(observation)` and `evaluate(observation)`.
 *
 * An action is the distribution's mode: the first of the largest logits, or the mean within the action's bounds.
 *
 * @throws InputError for a policy that is more than dense layers, weights that do not fit or are not finite, an unknown
 * format, or a place that cannot be written.
 * @example await exportPolicy({ ...(await loadPolicy('runs/mine')), format: 'onnx', out: 'policy.onnx' })
 */
export async function exportPolicy(options: ExportOptions): Promise<string[]> {
  checkGiven('options of exportPolicy', options, [])
  const { format, out } = options
  if (!exportFormats.includes(format))
    throw new InputError('format', show(format), `one of ${exportFormats.join(', ')}`)
  if (typeof out !== 'string' || out === '') throw new InputError('out', show(out), 'a file to write, or a folder')
  const network = networkOf(options)
  if (format === 'layers') {
    const { model, weights } = layersModel(network)
    const files = [join(out, WEIGHTS_FILE), join(out, MODEL_FILE)]
    await writeWhole(files[0]!, [weights])
    await writeWhole(files[1]!, [model]) // Last: where it is, so are its weights.
    return files
  }
  await writeWhole(out, [format === 'onnx' ? onnxModel(network) : moduleText(network)])
  return [out]
}
