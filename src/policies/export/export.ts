/**
 * Exports a trained policy for other software. A model that consists only of dense layers (`PolicyModel.dense`) can be written as an ONNX
 * model, a tfjs LayersModel, or an ES module without dependencies. The exported policy acts by its mode; tests compare it with the
 * original.
 */
import { checkGiven, InputError, show } from '../../base/errors.ts'
import { writeWhole } from '../../base/files/files.ts'
import { join } from '../../base/files/path.ts'
import { layersModel, MODEL_FILE, WEIGHTS_FILE } from './layers.ts'
import { moduleText } from './module.ts'
import { type Exported, networkOf } from './network.ts'
import { onnxModel } from './onnx.ts'

/** ONNX, a tfjs LayersModel, or an ES module without dependencies. */
export const exportFormats = ['onnx', 'layers', 'module'] as const

/** The policy to export, the format and the destination. */
export interface ExportOptions extends Exported {
  readonly format: (typeof exportFormats)[number]
  /** The file to write; for `layers` the folder. */
  readonly out: string
}

/**
 * Writes a policy of dense layers with its weights, and returns the written files.
 *
 * - `onnx`: a model of opset 17 with input `observation` and outputs `action`, `logits` or `mean` and `logStd`, and `value`. For an
 *   environment with masks there is also an input `actionMask`.
 * - `layers`: a folder with `model.json` and `weights.bin` for `tf.loadLayersModel`, with outputs `logits` or `mean`, and `value`.
 * - `module`: an ES module for browsers and Node with `act(observation)` and `evaluate(observation)`.
 *
 * An action is the distribution's mode: the first of the largest logits, or the mean within the action's bounds.
 * @throws InputError for a policy that is not only dense layers, weights that do not fit or are not finite, an unknown format, or a path
 * that cannot be written.
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
    await writeWhole(files[1]!, [model]) // Written last: its presence means that the weights are complete.
    return files
  }
  await writeWhole(out, [format === 'onnx' ? onnxModel(network) : moduleText(network)])
  return [out]
}
