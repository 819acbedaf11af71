/**
 * The control routes for trainers, compatible with vLLM and SGLang: pause, resume, abort, loading weights and adapters
 * from folders, versions, and checksums. Weights are read completely and verified before they are applied between two
 * tokens, so no token is chosen by a mixture.
 */
import { InputError } from '../../base/errors.ts'
import { type Body, RequestError, type Route, type RouteRequest } from '../../base/http/server.ts'
import { pullWeights } from '../../engines/weight-deltas.ts'
import { badField, booleanField, checkFields, objectField, textField } from './fields.ts'
import type { ServedModel } from './served-model.ts'
import type { ServedWeights } from './served-weights.ts'

/** The routes that change the served model. */
export function controlRoutes({ batcher }: ServedModel, weights: ServedWeights): Map<string, Route> {
  /** The weights that an update of vLLM's protocol has read, to apply when it finishes; null without an update. */
  let update: { take: ((label: string | null) => string) | null } | null = null

  const pause = async (mode: string): Promise<object> => {
    if (mode === 'keep' || mode === 'in_place' || mode === 'retract') batcher.set('frozen')
    else if (mode === 'abort' || mode === 'wait') {
      if (mode === 'abort') batcher.abortAll()
      batcher.set('paused')
      await batcher.idle()
    } else throw badField('mode', mode, 'one of abort, wait, keep, in_place, retract')
    return { status: 'paused' }
  }
  const resume = (): object => {
    if (batcher.state !== 'stopping') batcher.set('open')
    return { status: 'resumed' }
  }
  const abort = (ids: unknown): object => {
    const isList = Array.isArray(ids) && ids.every((id) => typeof id === 'string')
    if (!isList) throw badField('request_ids', ids, 'a list of ids')
    return { status: 'aborted', aborted: ids.reduce((sum, id) => sum + batcher.abort(id), 0) }
  }
  const started = () => {
    if (update !== null) return update
    throw new RequestError(400, 'no weight update is running', { code: 'no_update' })
  }
  const only = (body: Body, taken: readonly string[], ignored: readonly string[] = []) =>
    checkFields(body, { taken, ignored, refused: {} })
  const loadAdapter = async (body: Body): Promise<string[]> => {
    only(body, ['lora_name', 'lora_path', 'weight_version'], ['load_inplace', 'pinned', 'base_model_name'])
    const [name, path] = [requiredText(body, 'lora_name'), requiredText(body, 'lora_path')]
    await asked('lora_path', async () =>
      (await weights.readAdapter(name, path))(textField(body, 'weight_version', null)),
    )
    return weights.names()
  }
  const unloadAdapter = (body: Body): string[] => {
    only(body, ['lora_name'], ['lora_id'])
    weights.unloadAdapter(requiredText(body, 'lora_name'))
    return weights.names()
  }
  return new Map<string, Route>([
    ['POST /pause', ({ body, query }) => pause(textField(body, 'mode', query.get('mode') ?? 'abort'))],
    ['POST /resume', resume],
    ['GET /is_paused', () => ({ is_paused: batcher.state === 'paused' || batcher.state === 'frozen' })],
    ['POST /pause_generation', ({ body }) => pause(textField(body, 'mode', 'abort'))],
    ['POST /continue_generation', resume],
    [
      'POST /abort_requests',
      ({ body }: RouteRequest) => {
        only(body, ['request_ids'])
        return body.request_ids === undefined
          ? { status: 'aborted', aborted: batcher.abortAll() }
          : abort(body.request_ids)
      },
    ],
    ['POST /inference/v1/abort_requests', ({ body }) => abort(body.request_ids)],
    [
      'POST /abort_request',
      ({ body }: RouteRequest) => {
        only(body, ['rid', 'abort_all'])
        return booleanField(body, 'abort_all', false)
          ? { status: 'aborted', aborted: batcher.abortAll() }
          : abort([requiredText(body, 'rid')])
      },
    ],
    [
      'POST /update_weights_from_disk',
      async ({ body }: RouteRequest) => {
        only(body, ['model_path', 'weight_version', 'abort_all_requests'], ['load_format', 'flush_cache'])
        const path = requiredText(body, 'model_path')
        const numPaused = batcher.numRunning + batcher.numWaiting
        await asked('model_path', async () => {
          const take = await weights.readModel(path)
          if (booleanField(body, 'abort_all_requests', false)) batcher.abortAll()
          take(textField(body, 'weight_version', null))
        })
        return {
          success: true,
          message: `weights of ${path}`,
          num_paused_requests: numPaused,
          weight_version: weights.currentLabel(),
        }
      },
    ],
    [
      'POST /pull_weights',
      async ({ body }: RouteRequest) => {
        only(body, ['local_checkpoint_dir', 'source_dir', 'target_version'])
        const [local, source] = [requiredText(body, 'local_checkpoint_dir'), requiredText(body, 'source_dir')]
        const { target_version: target } = body
        if (!(Number.isSafeInteger(target) && (target as number) >= 0)) {
          throw badField('target_version', target, 'a whole number ≥ 0')
        }
        await asked('source_dir', () => pullWeights(local, source, target as number))
        return { success: true, message: `version ${target} of ${source} is in ${local}` }
      },
    ],
    ['POST /init_weight_transfer_engine', () => ({ message: 'weights are loaded from folders: {"path": …}' })],
    [
      'POST /start_weight_update',
      () => {
        if (update !== null) {
          throw new RequestError(400, 'a weight update is running: finish it first', {
            code: 'update_under_way',
          })
        }
        update = { take: null }
        return { message: 'weight update started' }
      },
    ],
    [
      'POST /update_weights',
      async ({ body }: RouteRequest) => {
        const current = started()
        only(body, ['update_info'])
        const path = requiredText(objectField(body, 'update_info'), 'path')
        await asked('update_info.path', async () => {
          current.take = await weights.readModel(path)
        })
        return { message: `read the weights of ${path}` }
      },
    ],
    [
      'POST /finish_weight_update',
      ({ body }: RouteRequest) => {
        only(body, ['weight_version'])
        const { take } = started()
        update = null
        const label = textField(body, 'weight_version', null)
        if (take === null)
          return { message: 'weight update finished without weights', weight_version: weights.currentLabel() }
        return { message: 'weights applied', weight_version: take(label) }
      },
    ],
    [
      'POST /update_weight_version',
      ({ body }: RouteRequest) => {
        only(body, ['new_version', 'abort_all_requests'])
        const label = requiredText(body, 'new_version')
        if (booleanField(body, 'abort_all_requests', false)) batcher.abortAll()
        return { success: true, new_version: weights.relabel(label) }
      },
    ],
    [
      'POST /weight_checker',
      ({ body }: RouteRequest) => {
        only(body, ['action'])
        const action = requiredText(body, 'action')
        if (action !== 'checksum') throw badField('action', action, '"checksum"')
        return { checksums: weights.checksums() }
      },
    ],
    [
      'POST /v1/load_lora_adapter',
      async ({ body }) => ({ message: `adapters: ${(await loadAdapter(body)).join(', ')}` }),
    ],
    ['POST /v1/unload_lora_adapter', ({ body }) => ({ message: `adapters: ${unloadAdapter(body).join(', ')}` })],
    ['POST /load_lora_adapter', async ({ body }) => ({ success: true, loaded_adapters: await loadAdapter(body) })],
    ['POST /unload_lora_adapter', ({ body }) => ({ success: true, loaded_adapters: unloadAdapter(body) })],
  ])
}

function requiredText(body: Body, name: string): string {
  const value = textField(body, name, '')
  if (value === '') throw badField(name, body[name], 'a text that is not empty')
  return value
}

/** Turns errors in files into errors of the field that names them. */
async function asked<T>(param: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof InputError)) throw error
    throw new RequestError(400, `${param}: ${error.message}`, { param, code: 'bad_weights' })
  }
}
