import { join } from 'node:path'
import { environmentVariable } from '../../base/environment-variables.ts'
import { isThere } from '../../base/files/files.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { fraction } from '../../base/settings.ts'
import { type FaultKind, serveModel, serveTinker } from '../../entries/engines.ts'
import { boolean, integer, number, strings, text } from '../../entries/settings.ts'
import { InputError, kindOfRun } from '../../index.ts'
import { stopped } from '../show/signals.ts'
import { endpointKeys, readTls } from '../words/endpoint.ts'
import { askForModule, trustKeys } from '../words/trust.ts'
import { findModel } from './generate.ts'

export const serveKeys = {
  port: integer(8000, 'port to listen at; 0: any free port', { min: 0, max: 65_535 }),
  host: text('127.0.0.1', 'address to listen at; 127.0.0.1: reachable from this machine only'),
  name: text('', 'name of the model in requests; empty: the last part of its path'),
  slots: integer(8, 'answers to generate at the same time', { min: 1 }),
  queue: integer(256, 'maximum of waiting answers; more are refused with status 429', { min: 0 }),
  context: integer(0, "maximum of tokens of prompt and answer together; 0: the model's own maximum", {
    min: 0,
  }),
  tinker: boolean(false, "run a training service with Tinker's protocol: each client trains its own adapters"),
  folder: text('tinker', 'with tinker=true: folder for the weights that clients save'),
  control: boolean(
    false,
    'also serve the control routes, which pause, resume and abort, and load weights and adapters from folders',
  ),
  ...endpointKeys,
  loraRank: integer(0, "rank of the adapters that can be loaded; 0: the run's rank, or no adapters", { min: 0 }),
  loraAlpha: number(0, 'alpha of the adapters, whose scale is alpha / rank; 0: twice the rank', { min: 0 }),
  loraTargets: strings([], 'projections with adapters, like q_proj,v_proj; empty: all'),
  faults: strings([], 'faults to inject, for tests of clients: all, or kinds by name'),
  faultFraction: fraction(0.2, 'fraction of requests that get a fault'),
  faultSeed: integer(0, 'seed of the faults', { min: 0 }),
  ...trustKeys,
}

const TINKER_KEYS: readonly string[] = [
  'tinker',
  'folder',
  'port',
  'host',
  'name',
  'slots',
  'context',
  'tlsCert',
  'tlsKey',
]

/** colonnade serve <run|folder|hub id> [port=8000] */
export const serveCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'a run of a language model, a folder, or an id of the Hugging Face hub')
  if (texts.tinker === 'true') return serveTraining(subject, texts, json || quiet)
  const { trust, context, name, loraRank, loraAlpha, loraTargets, faults, faultFraction, faultSeed, ...rest } =
    readKeys(serveKeys, texts)
  const { tlsCert, tlsKey, tinker: _, folder, ...options } = rest
  if (folder !== serveKeys.folder.default) throw new InputError('folder', folder, 'no folder, or tinker=true')
  const model = await findModel(subject, { allowModule: askForModule(trust) }, { loraRank, loraAlpha, loraTargets })
  const named = name === '' ? subject.split('/').findLast((part) => part !== '')! : name
  const kinds = faults.includes('all') ? {} : { kinds: faults as FaultKind[] }
  const wrong = faults.length === 0 ? {} : { faults: { ...kinds, rate: faultFraction, seed: faultSeed } }
  // From the environment, so that process lists do not show them.
  const apiKey = environmentVariable('COLONNADE_SERVE_KEY')
  const controlKey = environmentVariable('COLONNADE_CONTROL_KEY')
  const server = await serveModel({
    ...model,
    ...options,
    name: named,
    ...(context === 0 ? {} : { context }),
    ...wrong,
    ...(await readTls(tlsCert, tlsKey)),
    ...(apiKey === undefined ? {} : { apiKey }),
    ...(controlKey === undefined ? {} : { controlKey }),
  })
  if (faults.length > 0) console.error(`injects faults, and reports them at ${server.url}/faults`)
  for (const note of server.notes) console.error(note)
  const say = (line: string) => (json || quiet ? console.error(line) : console.log(line))
  say(`${server.name} at ${server.url}/v1, up to ${server.context} tokens; Ctrl-C stops it`)
  await stopped(async () => {
    say('stops after the running answers; Ctrl-C again ends it at once')
    await server.close()
  })
  return { subject, name: server.name, url: server.url }
}

async function serveTraining(subject: string, texts: Record<string, string>, isQuiet: boolean) {
  const wrong = Object.keys(texts).find((key) => !TINKER_KEYS.includes(key))
  if (wrong !== undefined) throw new InputError(wrong, 'tinker=true', `only ${TINKER_KEYS.join(', ')} with it`)
  const { folder, port, host, name, slots, context, tlsCert, tlsKey } = readKeys(serveKeys, texts)
  const model = (await kindOfRun(subject)) === null ? subject : join(subject, 'model')
  if (model !== subject && !(await isThere(model))) {
    throw new InputError(
      'run',
      `${subject}, which has no model folder`,
      'a run that trained a whole model, or the folder of a model',
    )
  }
  const apiKey = environmentVariable('COLONNADE_SERVE_KEY')
  const server = await serveTinker({
    ...{ model, folder, port, host, slots, ...(name === '' ? {} : { name }) },
    ...(context === 0 ? {} : { context }),
    ...(await readTls(tlsCert, tlsKey)),
    ...(apiKey === undefined ? {} : { apiKey }),
  })
  for (const note of server.notes) console.error(note)
  const say = (line: string) => (isQuiet ? console.error(line) : console.log(line))
  say(`training service at ${server.url} for base model ${server.name}; Ctrl-C stops it`)
  say(`  tinker.ServiceClient(base_url="${server.url}", api_key="${apiKey === undefined ? 'tml-any' : '…'}")`)
  await stopped(() => server.close())
  return { subject, name: server.name, url: server.url }
}
