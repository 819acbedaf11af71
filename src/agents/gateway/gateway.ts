/**
 * A gateway between unmodified agents and an engine that is trained. Agents use the APIs of OpenAI or Anthropic; the
 * gateway records ids, log-probabilities and weight versions until a session gets its reward. An agent needs only
 * another base URL and key.
 *
 * The gateway sets the sampling, not the agents, since all data must come from one distribution. A session's text is
 * visible to anyone with its key or id. Creating and rewarding sessions takes the operator's key, which agents do not
 * have.
 */
import { randomBytes } from 'node:crypto'
import { checkOptions, InputError, show } from '../../base/errors.ts'
import { admitting, checkedSecret, keyCheck, secretOf, unknownKey } from '../../base/http/keys.ts'
import { type Body, listen, RequestError, type RequestHead, type Route } from '../../base/http/server.ts'
import type { Trajectories } from '../../tables/trajectories/trajectories.ts'
import type { ModelHost } from '../dialects/dialect.ts'
import { Hints } from '../dialects/hints.ts'
import { DRAWING } from '../dialects/known-fields.ts'
import { modelRoutes } from '../dialects/routes.ts'
import { checkFields, integerField } from '../serving/fields.ts'
import { closing, plainNote, type ServeOptions } from '../serving/server.ts'
import type { CallCounts } from './call-tree.ts'
import { SessionArchive, type SessionEnd } from './session-archive.ts'
import {
  checkReward,
  type EndedSession,
  SESSION_LIMITS,
  type Session,
  type SessionLimits,
  type SessionPlace,
  type SessionReward,
  Sessions,
} from './sessions.ts'
import { drawingFields, type SourceOptions, sourceFrom } from './source.ts'

/** Options of `openGateway`: a world whose engine answers, or a model. */
export interface GatewayOptions
  extends SourceOptions,
    Partial<SessionLimits>,
    Pick<ServeOptions, 'host' | 'port' | 'maxBodyBytes' | 'tls' | 'strict'> {
  /** The key that creates and rewards sessions, at least 16 characters; default random. */
  readonly operatorKey?: string
  /** The folder to which each session created over HTTP is written when it ends, before the response; default none. */
  readonly folder?: string
}

const OPTIONS: readonly (keyof GatewayOptions)[] = [
  ...(['world', 'engine', 'sampling', 'name', 'host', 'port', 'maxBodyBytes', 'operatorKey', 'folder'] as const),
  'strict',
  ...(['policy', 'weights', 'adapter', 'environment', 'seed', 'slots', 'queue', 'context'] as const),
  ...(Object.keys(SESSION_LIMITS) as (keyof SessionLimits)[]),
]

/** A session that a program opened, and must end. */
export interface GatewaySession {
  readonly number: number
  readonly id: string
  readonly key: string
  /** Base URLs for clients of OpenAI and of Anthropic. */
  readonly openaiUrl: string
  readonly anthropicUrl: string
  /** The reward sent over HTTP; null without one. */
  readonly said: Required<SessionReward> | null
  /** The last answer's text; null before the first. */
  readonly completion: string | null
  /** Why its last refused call was refused; null if none was. */
  readonly refusal: string | null
  /** Ends the session and returns its rows with the reward. */
  end(reward: SessionReward): EndedSession
}

/** Counts of a gateway's sessions and calls. */
export interface GatewayCounts extends CallCounts {
  readonly open: number
  readonly ended: number
  /** Ended sessions that got no reward in time. */
  readonly abandoned: number
  /** Open sessions that are over, but whose files could not be written yet. */
  readonly unwritten: number
  /** For each field that changed no answer: the number of requests with it. */
  readonly hints: Readonly<Record<string, number>>
}

/** A running gateway. */
export interface Gateway {
  /** Like `http://127.0.0.1:8001`, without a trailing slash. */
  readonly url: string
  readonly name: string
  readonly operatorKey: string
  /** Rows of ended sessions that were created over HTTP; none with `folder`, whose files have them. */
  readonly trajectories: Trajectories
  readonly counts: GatewayCounts
  /** Tensors that were left out, one sentence each. */
  readonly notes: readonly string[]
  /** Opens a session for a program, which must end it: it never times out. */
  openSession(place?: Partial<SessionPlace>): GatewaySession
  /** Holds all answers and settles when the engine is at rest; `resume` continues them. */
  pause(): Promise<void>
  resume(): void
  /** Lets turns end (`now`: aborts them), abandons HTTP sessions, and stops. @throws InputError for unwritten files. */
  close(options?: { readonly now?: boolean }): Promise<void>
}

/**
 * Opens a gateway from OpenAI's chat completions, completions and Responses and Anthropic's Messages to the engine of a
 * world or a model.
 * @throws InputError if options, model and engine do not fit, if the engine's log-probabilities are not those of the
 * sampled distribution, or if the address is not available.
 * @example
 * const gateway = await openGateway({ world })
 * const session = gateway.openSession()
 * const client = new OpenAI({ baseURL: session.openaiUrl, apiKey: session.key })
 */
export async function openGateway(options: GatewayOptions): Promise<Gateway> {
  checkOptions('openGateway', options, OPTIONS)
  const { world, host = '127.0.0.1', port = 0, maxBodyBytes = 4 * 2 ** 20, folder } = options
  const operatorKey = options.operatorKey ?? randomBytes(24).toString('base64url')
  const operator = checkedSecret('operatorKey', operatorKey)
  const limits = checkedLimits(options)
  const { sourceOf, notes } = await sourceFrom(options)
  const hints = new Hints(options.strict ?? false)
  const archive = new SessionArchive(folder ?? null, sourceOf)
  const sessions = new Sessions(limits, await archive.nextNumber())
  let totals: Omit<GatewayCounts, 'open' | 'unwritten' | 'hints'> = { ...NO_CALLS, ended: 0, abandoned: 0 }

  const forget = (session: Session, { counts }: EndedSession, isAbandoned: boolean): void => {
    sessions.remove(session)
    const { ended, abandoned } = totals
    totals = { ...added(totals, counts), ended: ended + 1, abandoned: abandoned + (isAbandoned ? 1 : 0) }
  }
  /** Ends a session that a program opened. */
  const end = (session: Session, worth: SessionReward): EndedSession => {
    const ended = session.close(checkReward(`session ${session.number}`, worth))
    forget(session, ended, false)
    return ended
  }
  /** Ends a session created over HTTP and keeps its rows. */
  const keep = async (session: Session, sessionEnd: SessionEnd): Promise<EndedSession> => {
    const ended = await archive.keep(session, sessionEnd)
    forget(session, ended, sessionEnd.isAbandoned)
    return ended
  }
  const abandon = (session: Session, error: string): Promise<unknown> => {
    return keep(session, { worth: { reward: null, components: {}, error }, isAbandoned: true })
  }
  /** Ends abandoned sessions, and retries failed writes. */
  const sweep = async (): Promise<void> => {
    const unwritten = [...archive.unwritten]
    const others = [...sessions.abandoned(Date.now())].filter(([session]) => !archive.unwritten.has(session))
    const work = [
      ...unwritten.map(([session, sessionEnd]) => keep(session, sessionEnd)),
      ...others.flatMap(([session, error]) => (session.isHeld ? [] : [abandon(session, error)])),
    ]
    await Promise.allSettled(work) // The archive reports failures and retries them.
  }
  const sweeping = setInterval(() => void sweep(), 1000)
  sweeping.unref()

  const admitOperator = keyCheck([operator], "this requires the operator's key")
  const sessionOf = ({ headers, params: { id } }: RequestHead): Session => {
    const session = id === undefined ? sessions.byKey(secretOf(headers)) : sessions.byId(id)
    if (session !== null) return session
    if (id !== undefined)
      throw new RequestError(404, 'there is no such session, or it has ended', { code: 'no_session' })
    throw unknownKey('no session has this key, or it has ended')
  }
  const model = modelRoutes({
    host: (): ModelHost => ({ ...sourceOf(), hints }),
    asker(head, begins) {
      const session = sessionOf(head)
      const number = begins ? session.begin() : 0
      const drawn = (body: Body) => {
        for (const name of DRAWING) if (body[name] != null) hints.add(name)
        return { ...body, ...drawingFields(sourceOf(), session, number) }
      }
      const { responses, signal } = session
      return { client: session, drawn, responses, signal, over: (refusal) => session.end(Date.now(), refusal) }
    },
  })
  const operating: [string, Route][] = [
    [
      'POST /sessions',
      ({ body }) => {
        checkFields(body, { taken: PLACE, ignored: [], refused: {} })
        archive.checkWritten()
        const { served, name } = sourceOf()
        const session = sessions.open(placeOf(body), served, name, Date.now())
        return { id: session.id, key: session.key, number: session.number, ...urlsOf(listening.url, session) }
      },
    ],
    [
      'GET /sessions/:id',
      (head) => {
        const session = sessionOf(head)
        const { number, place, calls } = session
        return { number, ...place, ...calls.counts, tokens: calls.numTokens }
      },
    ],
    [
      'POST /sessions/:id/reward',
      async ({ body, ...head }) => {
        checkFields(body, { taken: ['reward', 'components', 'error'], ignored: [], refused: {} })
        const session = sessionOf(head)
        const worth = checkReward(`session ${session.number}`, body as unknown as SessionReward)
        if (session.isHeld) {
          session.said = worth // The program that opened it ends it.
          return { number: session.number, ...session.calls.counts }
        }
        const { number, rows, counts } = await keep(session, { worth, isAbandoned: false })
        return { number, rows: rows.length, ...counts }
      },
    ],
  ]
  const routes = new Map<string, Route>([
    ...admitting([...model, ...model.map(underSession)], sessionOf),
    ...admitting(operating, admitOperator),
    [
      'GET /health',
      () => {
        const { batcher } = sourceOf().served
        if (batcher.state === 'stopping') throw new RequestError(503, 'the gateway is stopping', { code: 'stopping' })
        archive.checkWritten()
        return { status: 'ok', state: batcher.state, running: batcher.numRunning, waiting: batcher.numWaiting }
      },
    ],
  ])
  const listening = await listen(routes, { host, port, maxBodyBytes, tls: options.tls ?? null })
  return {
    ...{ url: listening.url, operatorKey, trajectories: archive.trajectories, name: options.name ?? 'model' },
    notes: [...notes, ...plainNote(host, options.tls ?? null)],
    get counts() {
      let counts: CallCounts = totals
      for (const { calls } of sessions) counts = added(counts, calls.counts)
      const { ended, abandoned } = totals
      return {
        ...counts,
        open: sessions.size,
        ended,
        abandoned,
        unwritten: archive.unwritten.size,
        hints: hints.counts,
      }
    },
    openSession(place = {}) {
      const { served, name } = sourceOf()
      const session = sessions.open(place, served, name, Date.now(), true)
      const { openai_base_url: openaiUrl, anthropic_base_url: anthropicUrl } = urlsOf(listening.url, session)
      return {
        ...{ number: session.number, id: session.id, key: session.key, openaiUrl, anthropicUrl },
        get said() {
          return session.said
        },
        get completion() {
          return session.calls.completion
        },
        get refusal() {
          return session.refusal
        },
        end: (worth) => end(session, worth),
      }
    },
    pause() {
      const { batcher } = sourceOf().served
      batcher.set('frozen')
      return batcher.still()
    },
    resume() {
      const { batcher } = sourceOf().served
      if (batcher.state === 'frozen') batcher.set('open')
    },
    async close(how) {
      clearInterval(sweeping)
      await closing(listening, sourceOf().served.batcher, { ownsEngine: world === undefined })(how)
      await sweep()
      const left = [...sessions].filter((session) => !session.isHeld && !archive.unwritten.has(session))
      await Promise.allSettled(left.map((session) => abandon(session, 'abandoned: the gateway was closed')))
      archive.checkAllWritten()
    },
  }
}

function underSession([key, route]: [string, Route]): [string, Route] {
  return [key.replace(' /', ' /sessions/:id/'), route]
}

const PLACE = ['prompt_id', 'group', 'member', 'epoch']
const NO_CALLS: CallCounts = { calls: 0, continued: 0, rewritten: 0, retokenized: 0, repeated: 0 }

function added(a: CallCounts, b: CallCounts): CallCounts {
  return {
    calls: a.calls + b.calls,
    continued: a.continued + b.continued,
    rewritten: a.rewritten + b.rewritten,
    retokenized: a.retokenized + b.retokenized,
    repeated: a.repeated + b.repeated,
  }
}

function checkedLimits(options: GatewayOptions): SessionLimits {
  const limits = { ...SESSION_LIMITS }
  for (const name of Object.keys(SESSION_LIMITS) as (keyof SessionLimits)[]) {
    const value = options[name]
    if (value === undefined) continue
    const isFine = name.endsWith('Seconds')
      ? value > 0 && Number.isFinite(value)
      : Number.isSafeInteger(value) && value >= 1
    if (!isFine)
      throw new InputError(name, show(value), name.endsWith('Seconds') ? 'seconds above 0' : 'a whole number ≥ 1')
    Object.assign(limits, { [name]: value })
  }
  return limits
}

function placeOf(body: Body): Partial<SessionPlace> {
  const place = {
    promptId: integerField(body, 'prompt_id', undefined, 0, 2 ** 31 - 1),
    group: integerField(body, 'group', undefined, 0, 2 ** 31 - 1),
    member: integerField(body, 'member', undefined, 0, 2 ** 31 - 1),
    epoch: integerField(body, 'epoch', undefined, 0, 2 ** 31 - 1),
  }
  return Object.fromEntries(Object.entries(place).filter(([, value]) => value !== undefined))
}

function urlsOf(url: string, { id }: Session) {
  return { openai_base_url: `${url}/sessions/${id}/v1`, anthropic_base_url: `${url}/sessions/${id}` }
}
