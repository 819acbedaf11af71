/**
 * Trains a cohort of conversations with a collector, a backend and a list of phases: supervised steps on the
 * environment's answers, then updates from sampled conversations. It can be stopped after any tick and resumed with the
 * same bits.
 *
 * Caches of keys and values are not in checkpoints: prefill recreates them bit for bit.
 */
import { comparisonOf } from '../../algorithms/losses/losses.ts'
import type { GradientPool } from '../../algorithms/shared-gradient.ts'
import type { RlDefinition } from '../../algorithms/tokens/rl.ts'
import { type TokenLearnerColumns, trainedOf } from '../../algorithms/tokens/token-learner.ts'
import { traceBuffer, Work } from '../../base/clock.ts'
import { type DefinitionRecord, fingerprint, withoutModule } from '../../base/definition.ts'
import { InputError } from '../../base/errors.ts'
import type { Tensor } from '../../base/files/safetensors.ts'
import { withTodaysNames } from '../../base/former-names.ts'
import { checkMetricNames } from '../../base/metrics.ts'
import { ConversationPhase, candidateIdsOf, setCandidateIds } from '../../components/conversation.ts'
import type { Reply } from '../../environments/text.ts'
import { TokenTexts } from '../../language/tokenizers/token-texts.ts'
import { bitsOf } from '../../language/transformer/quantized.ts'
import { checkSampling } from '../../language/transformer/sampling.ts'
import { Trajectories } from '../../tables/trajectories/trajectories.ts'
import { type TextOrigin, writeTrajectories } from '../../tables/trajectories/trajectory-table.ts'
import { asConversations } from '../../world/cohort.ts'
import {
  type ConversationCohort,
  type ConversationDraft,
  segmentsOf,
  takeUp,
  takeUpSegments,
} from '../../world/conversations/cohort.ts'
import { leavingRows, restoreSpeakers } from '../../world/conversations/population.ts'
import type { World } from '../../world/world.ts'
import type { BackendContext, BackendDefinition } from '../backends/backend.ts'
import { localBackend } from '../backends/local-backend.ts'
import type { BackendRecord, ConversationRecord, Manifest } from '../folder/checkpoint.ts'
import type { RunRecord } from '../folder/run-record.ts'
import { compare, compareUpTo } from '../folder/snapshot.ts'
import { GroupCollector } from '../text/collect/group-collector.ts'
import { packTrajectories, unpackTrajectories } from '../text/collect/trajectory-snapshot.ts'
import type { TextMetrics } from '../text/evaluate/metrics.ts'
import { metricsLine } from '../text/evaluate/metrics-lines.ts'
import { type Phase, type PhaseParts, publishWeights } from '../text/learn/phase.ts'
import { backendShape, type TextLearnerColumns, textReservation } from '../text/learn/plan.ts'
import { RlPhase } from '../text/learn/rl-phase.ts'
import { SftPhase } from '../text/learn/sft-phase.ts'
import { TextTeam } from '../text/learn/team.ts'
import { Aborted } from '../threads/orders.ts'
import { endWhenDropped } from '../threads/team.ts'
import type { Collector, CollectorDefinition, SavedCollector } from './collector.ts'
import type { Phases } from './trainer-options.ts'
import type { Goal, SavedTraining, Training } from './training.ts'

/** Statistics of a cohort of conversations so far. */
export interface ConversationProgress {
  readonly sftSteps: number
  readonly rlUpdates: number
  /** Examples longer than the context that were skipped or cut. */
  readonly tooLong: { readonly skipped: number; readonly cut: number }
}

export interface ConversationTrainingOptions {
  /** Record every interval of work. */
  readonly profile: boolean
  /** The training backend; default this process. */
  readonly backend?: BackendDefinition | undefined
  /** The collector for reinforcement learning; default the cohort's lanes. */
  readonly collector?: CollectorDefinition | undefined
}

/** Reserves a backend; the result binds it. @throws InputError if the memory is taken, or the phases do not fit. */
export function reserveConversations(
  world: World,
  name: string,
  phases: Phases,
  { profile, backend = localBackend, collector = laneCollector }: ConversationTrainingOptions,
): () => ConversationTraining {
  const { sft, rl } = phases
  if (sft !== undefined && rl !== undefined && sft.settings.optimizer !== rl.settings.optimizer) {
    throw new InputError('rl.optimizer', rl.settings.optimizer, `${sft.settings.optimizer}, as in sft`)
  }
  const draft = world.draft(name)
  if (draft.kind !== 'conversations') {
    const got = 'one of conversations, and a cohort of episodes'
    throw new InputError(`algorithm of ${name}`, got, 'an algorithm for episodes, like ppo()')
  }
  if (rl !== undefined) {
    checkSampled(rl, draft)
    const { noTraining } = draft.options.engine ?? {}
    if (noTraining !== undefined) throw new InputError(`engine of ${name}`, noTraining, 'an engine that takes weights')
  }
  const sampledWhileLearning = draft.options.engine?.samplesByServicePath === true && rl !== undefined && runsAhead(rl)
  world.reserve(draft, {
    ...textReservation(draft, phases, world.threads.count, backend),
    use: {
      asked: (rl?.settings.updates ?? 0) > 0,
      learned: (sft?.settings.updates ?? 0) > 0,
      compared: sft === undefined ? null : comparisonOf(sft.loss),
    },
  })
  return () => new ConversationTraining(world, name, phases, { profile, backend, collector, sampledWhileLearning })
}

/** Collects conversations of the cohort's environment in its lanes. */
const laneCollector: CollectorDefinition = (world, cohort, rl) => new GroupCollector(world, cohort, rl)

export class ConversationTraining implements Training<TextMetrics> {
  readonly world: World
  readonly phases: Phases
  readonly traces: readonly Float64Array[]
  readonly cohort: ConversationCohort
  readonly #tokenTexts: TokenTexts
  readonly #parts: PhaseParts
  /** In the order of training. */
  readonly #sft: SftPhase | null
  readonly #rl: RlPhase | null
  readonly #collector: Collector | null
  /** Seconds of collecting and learning. */
  seconds = 0
  /** Null with one thread. */
  readonly #team: TextTeam | null
  #advancing: Phase | null = null
  /** It was stopped before its end. */
  #isUnderWay = false
  /** The next update waits for it. */
  #waiting: Promise<unknown> = Promise.resolve()
  /** The backend's start, until a checkpoint is restored: its failure is that of an update. */
  #started: Promise<void> | null

  /** Use `reserveConversations`. */
  constructor(
    world: World,
    name: string,
    phases: Phases,
    {
      profile,
      backend,
      collector,
      sampledWhileLearning,
    }: { [K in keyof ConversationTrainingOptions]-?: NonNullable<ConversationTrainingOptions[K]> } & Pick<
      BackendContext,
      'sampledWhileLearning'
    >,
  ) {
    this.world = world
    this.phases = phases
    const cohort = asConversations(`algorithm of ${name}`, world.cohort(name))
    this.cohort = cohort
    this.#tokenTexts = new TokenTexts(cohort.tokenizer)
    this.traces = profile ? Array.from({ length: world.threads.count - 1 }, () => traceBuffer()) : []
    const team = world.threads.count === 1 ? null : new TextTeam(world, cohort, this.traces)
    this.#team = team
    if (team !== null) endWhenDropped(this, team)
    const { sft, rl } = phases
    cohort.released = 0
    this.#collector = rl === undefined ? null : collector(world, cohort, rl)
    const pool = this.#collector?.pool
    if (pool !== undefined) checkShares(cohort, backend, pool, sft)
    const parts = {
      world,
      cohort,
      backend: backend.create({ ...backendContext(world, cohort, phases, team), sampledWhileLearning, pool }),
      columns: cohort.learner as TextLearnerColumns,
    }
    this.#parts = parts
    this.#started = parts.backend.start()
    this.#sft = sft === undefined ? null : new SftPhase(parts, sft)
    this.#rl = rl === undefined ? null : new RlPhase(parts, rl, this.#collector!, () => this.#sft?.done ?? 0)
    const algorithms = [sft, rl].map((algorithm) => algorithm && withoutModule(algorithm))
    cohort.source = `${cohort.environment.id} ${fingerprint(cohort.source, algorithms)}`
  }

  /** Steps and updates done. */
  get update(): number {
    return (this.#sft?.done ?? 0) + (this.#rl?.done ?? 0)
  }

  /** Ticks done. */
  get steps(): number {
    return this.#collector?.progress.ticks ?? 0
  }

  get progress(): ConversationProgress {
    const { numSkipped = 0, numCut = 0 } = this.cohort.examples ?? {}
    return {
      sftSteps: this.#sft?.done ?? 0,
      rlUpdates: this.#rl?.done ?? 0,
      tooLong: { skipped: numSkipped, cut: numCut },
    }
  }

  /** Ticks, supervised steps and updates done. */
  get checkpointNumber(): number {
    return this.steps + this.update
  }

  isDone({ phase, signal }: Goal): boolean {
    return signal?.aborted === true || this.#next(phase) === undefined
  }

  #next(only: Goal['phase']): Phase | undefined {
    const phases = [only !== 'rl' ? this.#sft : null, only !== 'sft' ? this.#rl : null]
    return phases.find((phase) => phase !== null && phase.done < phase.total) ?? undefined
  }

  /** Does a supervised step, or an update with its conversations in `trajectories`. */
  async advance({ phase: only, signal }: Goal): Promise<TextMetrics | undefined> {
    if (this.#advancing !== null) throw new InputError('trainer', 'a call during another call', 'one call at a time')
    const { engine, version } = this.cohort
    const phase = this.#next(only)!
    this.#advancing = phase
    try {
      await this.#waiting
      await this.#started
      await this.#team?.wake()
      if (engine.version !== version) await publishWeights(this.#parts, version)
      const started = performance.now() // When the workers have started.
      const { clock } = this.world
      if (this.#isUnderWay) clock.charge(Work.waiting)
      else clock.start()
      clock.rest() // Nothing checks the progress until the next tick.
      this.#isUnderWay = true
      const metrics = await phase.advance(signal)
      this.seconds += (performance.now() - started) / 1000
      if (metrics === undefined) return undefined
      this.#isUnderWay = false
      const told = { ...metrics, seconds: this.seconds, phaseSeconds: clock.seconds() }
      checkMetricNames(`${told.phase} metrics`, phase.metrics, metricsLine(told))
      return told
    } catch (error) {
      // The columns of weights and optimizer are as before the gradient in which the threads failed.
      if (error instanceof Aborted) this.#parts.backend.takeUpColumns?.()
      throw this.#team === null ? error : this.#team.fail(error)
    } finally {
      this.#team?.rest()
      this.#advancing = null
    }
  }

  /** A checkpoint is on disk. */
  kept({ cohorts }: Pick<Manifest, 'cohorts'>): void {
    this.#collector?.kept?.((cohorts[this.cohort.name] as ConversationRecord).rlUpdates)
  }

  async halt(): Promise<void> {
    await this.#collector?.end?.()
  }

  close(): void {
    if (this.#collector?.end !== undefined) void this.#collector.end()
    else this.#collector?.close()
    this.#parts.backend.close?.()
    this.#team?.end()
  }

  checkBetween(action: string): void {
    const isLearningElsewhere = this.#advancing !== null && this.#parts.backend.takeUpColumns === undefined
    if (this.#advancing?.isMidway !== true && !isLearningElsewhere) return
    throw new InputError(action, 'a call during a tick or an update', 'a call between two updates')
  }

  /** Writes the newest update's conversations (while collecting: the finished ones) as Arrow, by group and member. */
  async writeTrajectories(path: string): Promise<void> {
    const { environment, policyDefinition, tokenizer, trajectories } = this.cohort
    const origin: TextOrigin = {
      environment: environment.id,
      model: policyDefinition.id,
      tokenizer: tokenizer.id,
      algorithm: this.phases.rl?.settings.loss ?? 'none',
      seed: this.world.seed,
      promptOf: (promptId) => JSON.stringify(environment.example(promptId).prompt),
      answerOf: (promptId) => environment.example(promptId).answer ?? null,
      decode: (ids) => tokenizer.decode(ids),
      textsOf: (ids) => this.#tokenTexts.of(ids),
    }
    const isLearned = this.#collector?.isBetweenUpdates === true
    await writeTrajectories(path, trajectories, origin, isLearned ? this.#collector.rows() : trajectories.order())
  }

  /** @throws InputError after a failed update. */
  saved(): SavedTraining {
    this.#rl?.check('state of the trainer')
    const { sft, rl } = this.phases
    const { name, environment, policyDefinition, numLanes, rewardReduction } = this.cohort
    const { conversation, histories, drawings, replies, trajectories, version, source } = this.cohort
    const over = packTrajectories(trajectories, `${name}.trajectories`)
    const open = packTrajectories(segmentsOf(this.cohort), `${name}.segments`)
    const leaving = leavingRows(this.cohort)
    const record: ConversationRecord = {
      kind: 'conversations',
      environment: withoutModule(environment),
      policy: withoutModule(policyDefinition),
      sft: sft === undefined ? null : withoutModule(sft),
      rl: rl === undefined ? null : withoutModule(rl),
      numLanes,
      rewardReduction,
      seconds: this.seconds,
      sftSteps: this.#sft?.done ?? 0,
      rlUpdates: this.#rl?.done ?? 0,
      version,
      ...(this.#collector?.saved() ?? NOTHING_COLLECTED),
      histories: histories.map((history) => [...history]),
      drawings: drawings.map((ofLane) => [...ofLane]),
      candidates: histories.map((_, n) => [...candidateIdsOf(conversation, n)]),
      replies: replies.map((reply, n) => (conversation.phase[n] === ConversationPhase.ended ? reply : null)),
      ...(leaving.length > 0 && { leaving }),
      source,
      trajectories: over.rows,
      segments: open.rows,
    }
    return { tensors: [...over.tensors, ...open.tensors], cohorts: { [name]: record } }
  }

  /** Makes the next update wait for a checkpoint, because weights and the backend's state are not copied for it. */
  waitFor(saving: Promise<unknown>): void {
    this.#waiting = saving.catch(() => {})
  }

  /** Lets the backend save its outside state beside the checkpoint of this path; undefined if there is none. */
  async keepBackend(path: string): Promise<BackendRecord | undefined> {
    const { backend } = this.#parts
    if (backend.takeUpColumns !== undefined) return undefined
    const name = backendPath(path, this.cohort.name)
    const kept = await backend.saveCheckpoint(name)
    return { id: backend.id, name: kept === name ? null : kept }
  }

  /** Lets the backend load its saved state. @throws InputError if it cannot. */
  async loadBackend(path: string, { backends }: Manifest): Promise<void> {
    const record = backends?.[this.cohort.name]
    if (record !== undefined) {
      await this.#parts.backend.loadCheckpoint(record.name ?? backendPath(path, this.cohort.name))
    }
  }

  async restore(manifest: Manifest, tensors: ReadonlyMap<string, Tensor>): Promise<void> {
    const { name, numLanes, conversation, histories, drawings, replies, trajectories } = this.cohort
    const record = manifest.cohorts[name] as ConversationRecord
    trajectories.clear()
    unpackTrajectories(trajectories, `${name}.trajectories`, record.trajectories, tensors)
    const open = new Trajectories()
    unpackTrajectories(open, `${name}.segments`, record.segments, tensors)
    takeUpSegments(this.cohort, open)
    histories.splice(0, numLanes, ...record.histories.map((history) => [...history]))
    for (const [n, ofLane] of drawings.entries()) {
      ofLane.clear()
      for (const [turn, drawing] of record.drawings?.[n] ?? []) ofLane.set(turn, drawing)
    }
    for (const [n, ids] of record.candidates.entries()) setCandidateIds(conversation, n, ids)
    for (const [n, reply] of (record.replies ?? []).entries()) replies[n] = reply as Reply | null
    this.cohort.source = record.source
    takeUp(this.cohort)
    restoreSpeakers(this.cohort, record.leaving ?? [])
    if (this.#sft !== null) this.#sft.done = record.sftSteps
    this.#rl?.restore(record.rlUpdates)
    if (this.#collector !== null && record.admission !== null)
      this.#collector.restore({ ...record, admission: record.admission })
    this.seconds = record.seconds
    this.#started = null
    await this.#parts.backend.takeUpColumns?.()
    await publishWeights(this.#parts, record.version)
  }

  compareCheckpoint(subject: string, { seed, cohorts, backends }: Manifest): string[] {
    const { name } = this.cohort
    const { id, takeUpColumns } = this.#parts.backend
    compare(subject, `backend of ${name}`, backends?.[name]?.id ?? null, takeUpColumns === undefined ? id : null)
    const record = cohorts[name]!
    compare(subject, `kind of cohort ${name}`, record.kind, 'conversations')
    const { rlUpdates, isBetweenUpdates, sftSteps, ...said } = record as ConversationRecord
    const warnings = this.compareRun(subject, { ...said, seed })
    const { sft } = this.phases
    if ((rlUpdates > 0 || !isBetweenUpdates) && sft !== undefined) {
      compare(subject, 'sft, updates, followed by those of rl', sftSteps, sft.settings.updates)
    }
    return warnings
  }

  compareRun(subject: string, run: Omit<RunRecord, 'algorithm'>): string[] {
    const { environment, policyDefinition, numLanes, rewardReduction } = this.cohort
    const { sft, rl } = this.phases
    compare(subject, 'environment', todays(run.environment), withoutModule(environment))
    compare(subject, 'policy', run.policy, withoutModule(policyDefinition))
    const warnings = [
      ...compareUpTo(subject, 'sft', 'updates', todays(run.sft), sft === undefined ? null : withoutModule(sft)),
      ...compareUpTo(subject, 'rl', 'updates', todays(run.rl), rl === undefined ? null : withoutModule(rl)),
    ]
    compare(subject, 'numLanes', run.numLanes, numLanes)
    compare(subject, 'rewardReduction', run.rewardReduction, rewardReduction)
    return warnings
  }
}

/** A definition's record with former setting names replaced. */
function todays<R extends DefinitionRecord | null>(record: R): R {
  return record && { ...record, parameters: withTodaysNames(record.id, record.parameters) }
}

/** Refuses to train on another distribution than the sampled one without a correction. */
function checkSampled({ settings, loss }: RlDefinition, { name, options }: ConversationDraft): void {
  const { groupSize = 1, explore = true } = options
  const sampling = checkSampling(options.sampling ?? {})
  if (settings.groupSize !== groupSize) {
    throw new InputError('rl.groupSize', String(settings.groupSize), `${groupSize}, as ${name} begins conversations`)
  }
  if (!explore) throw new InputError(name, 'explore: false', 'explore: true: a group needs answers that differ')
  if (loss.settings.correction !== 'none') return
  for (const key of ['temperature', 'topK', 'topP', 'minP'] as const) {
    if (settings[key] === sampling[key]) continue
    const expected = `${sampling[key]}, as ${name} samples, or a correction of the loss`
    throw new InputError(`rl.${key}`, String(settings[key]), expected)
  }
}

/** @throws InputError if several processes cannot compute the gradients of a training. */
function checkShares(
  { name, model, weights, quantized, adapter, learner }: ConversationCohort,
  backend: BackendDefinition,
  { shareCount }: GradientPool,
  sft: Phases['sft'],
): void {
  const { length } = trainedOf(quantized ?? weights, adapter)
  const refused = [
    [backend.id !== localBackend.id, `backend ${backend.id}`, 'backend local'],
    [model.device !== 'none', `languageModel.device ${model.device}`, 'device none'],
    [(sft?.settings.teacher ?? '') !== '', 'sft.teacher', 'no teacher'],
    [
      ((learner as Partial<TokenLearnerColumns>).gradient?.length ?? 0) < 2 * length,
      `${length} trained weights in ${name}, whose gradient has one slot`,
      'at most 16,777,216 (for example an adapter)',
    ],
  ] as const
  for (const [isSo, got, expected] of refused) {
    if (isSo) throw new InputError('learners', `${shareCount}, and ${got}`, `1, or ${expected}`)
  }
}

/** Whether conversations run during updates. */
function runsAhead({ settings: { maxStaleness, overSampling } }: RlDefinition): boolean {
  return maxStaleness > 0 || overSampling > 1
}

/** The path of a file backend's part of a checkpoint. */
function backendPath(path: string, cohort: string): string {
  return `${path}.${encodeURIComponent(cohort)}`
}

function backendContext(
  world: World,
  cohort: ConversationCohort,
  phases: Phases,
  team: TextTeam | null,
): Omit<BackendContext, 'sampledWhileLearning'> {
  const { weights: whole, quantized, adapter, learner: columns } = cohort
  const weights = quantized ?? whole
  const { kernels, kernelBuild, clock } = world
  const opened = { ...cohort, adapter: adapter?.lora ?? null, weightBits: bitsOf(cohort.model, weights) }
  const shape = backendShape(opened, phases, world.threads.count)
  const trained = trainedOf(weights, adapter)
  return { ...shape, weights, adapter, trained, columns, kernels, kernelBuild, clock, team }
}

/** The record of a training that collects nothing. */
const NOTHING_COLLECTED: Omit<SavedCollector, 'admission'> & { readonly admission: null } = {
  ...{ ticks: 0, isBetweenUpdates: true, released: 0 },
  ...{ admission: null, delivery: null, ages: [] },
}
