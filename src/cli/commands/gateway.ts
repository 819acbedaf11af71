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
  port: integer(8001, 'where it listens; 0: any port that is free', { min: 0, max: 65_535 }),
  host: text('127.0.0.1', 'the address it listens at; 127.0.0.1 is of this machine alone'),
  ...endpointKeys,
  out: text('', 'a folder for the trajectories, a file for each session that has ended, and for the operator’s key'),
  engine: strings(['local'], 'who chooses tokens: local, this process; or a server, like vllm:http://127.0.0.1:8000'),
  engineSettings: strings([], 'settings of the engine, like deadline=60'),
  name: text('', 'what the model is called; empty: the last part of its path'),
  slots: integer(8, 'answers that are generated at once', { min: 1 }),
  queue: integer(256, 'answers that may wait; more are refused with status 429', { min: 0 }),
  context: integer(0, 'tokens of prompt and answer together, at most; 0: as many as the model was made for', {
    min: 0,
  }),
  temperature: number(1, 'logits are divided by it, whatever agents ask for', { above: 0 }),
  topK: integer(0, 'only so many of the most probable tokens; 0: all', { min: 0 }),
  topP: number(1, 'only the most probable tokens that come to this probability', { above: 0, max: 1 }),
  maxSessions: integer(1024, 'sessions that are open at once', { min: 1 }),
  maxCalls: integer(256, 'calls of a session', { min: 1 }),
  maxTokens: integer(2 ** 20, 'tokens that the model chooses in a session', { min: 1 }),
  idleSeconds: number(600, 'seconds after which a session is abandoned that asks nothing', { above: 0 }),
  sessionSeconds: number(3600, 'seconds after which a session is abandoned that is not ended', { above: 0 }),
  ...trustKeys,
}

/** Where the operator's key comes from, so that no list of processes shows it. */
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
    throw new InputError(
      KEY,
      'nothing, and no out=',
      "either: the operator's key, or a folder where a new one is written",
    )
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
  say(`sessions are made by POST ${gateway.url}/sessions with the key of ${given === undefined ? keyFile : KEY}`)
  await stopped(async () => {
    say('stops when what it has begun is over; Ctrl-C again ends it at once')
    await gateway.close()
  })
  const { calls, ended, abandoned } = gateway.counts
  return { subject, name: gateway.name, url: gateway.url, calls, ended, abandoned }
}
