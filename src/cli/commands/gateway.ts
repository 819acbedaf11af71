import { randomBytes } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { environmentVariable } from '../../base/environment-variables.ts'
import { type Command, readKeys, splitWords } from '../../base/invocation.ts'
import { findEngine, openGateway } from '../../entries/engines.ts'
import { integer, number, strings, text } from '../../entries/settings.ts'
import { InputError } from '../../index.ts'
import { stopped } from '../show/signals.ts'
import { endpointKeys, readTls } from '../words/endpoint.ts'
import { askForModule, trustKeys } from '../words/trust.ts'
import { findModel } from './generate.ts'

export const gatewayKeys = {
  port: integer(8001, 'port to listen at; 0: any free port', { min: 0, max: 65_535 }),
  host: text('127.0.0.1', 'address to listen at; 127.0.0.1: reachable from this machine only'),
  ...endpointKeys,
  out: text('', 'folder for the operator’s key and the trajectories, one file per finished session'),
  engine: strings(
    ['local'],
    'engine that samples tokens: local (this process), or a server, like vllm:http://127.0.0.1:8000',
  ),
  engineSettings: strings([], 'settings of the engine, like deadline=60'),
  name: text('', 'name of the model; empty: the last part of its path'),
  slots: integer(8, 'answers to generate at the same time', { min: 1 }),
  queue: integer(256, 'maximum of waiting answers; more are refused with status 429', { min: 0 }),
  context: integer(0, "maximum of tokens of prompt and answer together; 0: the model's own maximum", {
    min: 0,
  }),
  temperature: number(1, 'temperature that divides the logits, whatever agents ask for', { above: 0 }),
  topK: integer(0, 'sample from this many most probable tokens; 0: from all', { min: 0 }),
  topP: number(1, 'sample from the fewest tokens that have this probability together', { above: 0, max: 1 }),
  maxSessions: integer(1024, 'maximum of open sessions', { min: 1 }),
  maxCalls: integer(256, 'maximum of calls of a session', { min: 1 }),
  maxTokens: integer(2 ** 20, 'maximum of sampled tokens of a session', { min: 1 }),
  idleSeconds: number(600, 'seconds after which a session without calls is abandoned', { above: 0 }),
  sessionSeconds: number(3600, 'seconds after which an open session is abandoned', { above: 0 }),
  ...trustKeys,
}

/** The operator's key is read from the environment, so that process lists do not show it. */
const KEY = 'COLONNADE_GATEWAY_KEY'

/** colonnade gateway <run|folder|hub id> [port=8001] [engine=vllm:http://…] [out=FOLDER] */
export const gatewayCommand: Command = async ({ words, json, quiet }) => {
  const { subject, texts } = splitWords(words, 'a run of a language model, a folder, or an id of the Hugging Face hub')
  const { trust, context, name, out, engine, engineSettings, temperature, topK, topP, ...rest } = readKeys(
    gatewayKeys,
    texts,
  )
  const { tlsCert, tlsKey, ...options } = rest
  const given = environmentVariable(KEY)
  if (given === undefined && out === '') {
    const expected = "either: the operator's key, or a folder where a new one is written"
    throw new InputError(KEY, 'nothing, and no out=', expected)
  }
  const operatorKey = given ?? randomBytes(24).toString('base64url')
  if (out !== '') await mkdir(out, { recursive: true })
  const keyFile = join(out, 'operator.key')
  if (given === undefined) await writeFile(keyFile, operatorKey, { mode: 0o600 })
  const chooser = await findEngine(engine, engineSettings, 'caller')
  const model = await findModel(subject, { allowModule: askForModule(trust) })
  const gateway = await openGateway({
    ...{ ...model, ...options, operatorKey, sampling: { temperature, topK, topP } },
    name: name === '' ? subject.split('/').findLast((part) => part !== '')! : name,
    ...(context === 0 ? {} : { context }),
    ...(chooser === null ? {} : { engine: chooser }),
    ...(out === '' ? {} : { folder: out }),
    ...(await readTls(tlsCert, tlsKey)),
  })
  for (const note of gateway.notes) console.error(note)
  const say = (line: string) => (json || quiet ? console.error(line) : console.log(line))
  say(`${gateway.name} at ${gateway.url}; Ctrl-C stops it`)
  say(`create sessions with POST ${gateway.url}/sessions and the key in ${given === undefined ? keyFile : KEY}`)
  await stopped(async () => {
    say('stops after the running answers; Ctrl-C again ends it at once')
    await gateway.close()
  })
  const { calls, ended, abandoned } = gateway.counts
  return { subject, name: gateway.name, url: gateway.url, calls, ended, abandoned }
}
