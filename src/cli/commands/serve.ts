import { environmentVariable } from '../../base/environment-variables.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { type FaultKind, serveModel } from '../../entries/engines.ts'
import { boolean, integer, number, strings, text } from '../../entries/settings.ts'
import { stopped } from '../show/signals.ts'
import { endpointKeys, readTls } from '../words/endpoint.ts'
import { askForModule, trustKeys } from '../words/trust.ts'
import { findModel } from './generate.ts'

export const serveKeys = {
  port: integer(8000, 'where it listens; 0: any port that is free', { min: 0, max: 65_535 }),
  host: text('127.0.0.1', 'the address it listens at; 127.0.0.1 is of this machine alone'),
  name: text('', 'what requests call the model; empty: the last part of its path'),
  slots: integer(8, 'answers that are generated at once', { min: 1 }),
  queue: integer(256, 'answers that may wait; more are refused with status 429', { min: 0 }),
  context: integer(0, 'tokens of prompt and answer together, at most; 0: as many as the model was made for', {
    min: 0,
  }),
  control: boolean(false, 'also take pause, resume, abort, and weights and adapters from folders'),
  ...endpointKeys,
  loraRank: integer(0, 'rank of the adapters that may be loaded; 0: none, or as the run has', { min: 0 }),
  loraAlpha: number(0, 'they count alpha / rank times; 0: twice', { min: 0 }),
  loraTargets: strings([], 'projections that they have, like q_proj,v_proj; none named: all'),
  faults: strings([], 'go wrong on purpose, for tests of clients: all, or kinds of faults by name'),
  faultFraction: number(0.2, 'of how many requests one goes wrong', { min: 0, max: 1 }),
  faultSeed: integer(0, 'keys which, and how', { min: 0 }),
  ...trustKeys,
}

/** colonnade serve <run|folder|hub id> [port=8000] */
export const serveCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'a run of a language model, a folder, or an id of the Hugging Face hub')
  const { trust, context, name, loraRank, loraAlpha, loraTargets, faults, faultFraction, faultSeed, ...rest } =
    readKeys(serveKeys, texts)
  const { tlsCert, tlsKey, ...options } = rest
  const model = await findModel(subject, { allowModule: askForModule(trust) }, { loraRank, loraAlpha, loraTargets })
  const named = name === '' ? subject.split('/').findLast((part) => part !== '')! : name
  const kinds = faults.includes('all') ? {} : { kinds: faults as FaultKind[] }
  const wrong = faults.length === 0 ? {} : { faults: { ...kinds, rate: faultFraction, seed: faultSeed } }
  // From the environment, so that no list of processes shows them.
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
  if (faults.length > 0) console.error(`goes wrong on purpose, and tells how at ${server.url}/faults`)
  for (const note of server.notes) console.error(note)
  const say = (line: string) => (json || quiet ? console.error(line) : console.log(line))
  say(`${server.name} at ${server.url}/v1, up to ${server.context} tokens; Ctrl-C stops it`)
  await stopped(async () => {
    say('stops when what it has begun is over; Ctrl-C again ends it at once')
    await server.close()
  })
  return { subject, name: server.name, url: server.url }
}
