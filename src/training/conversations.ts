/**
 * The training of a cohort of conversations: supervised steps on the environment's own answers, then updates from sampled
 * conversations. It lets the cohort collect, learns, counts what happened, and can be stopped after any tick and resumed to the
 * same bits.
 *
 * Caches of keys and values are not in a checkpoint: prefill makes them again to the bit.
 */

import { prepareLoss, totalsOf } from '../algorithms/losses.ts'
import { learningRateOf } from '../algorithms/optimizer.ts'
import { type RlDefinition, rlRates } from '../algorithms/rl.ts'
import { scheduleFactor } from '../algorithms/schedule.ts'
import { type SftDefinition, sftRates } from '../algorithms/sft.ts'
import { markLearned, minibatchOf, packBatch, type TokenBatch, type TokenSequences } from '../algorithms/token-batch.ts'
import { alone, type Together, TokenLearner, type TokenLossSums } from '../algorithms/token-learner.ts'
import type { TokenUpdateColumns, TokenWork } from '../algorithms/token-thread.ts'
import {
  asConversations,
  type ConversationCohort,
  type ConversationDraft,
  cancelReplies,
  exampleAt,
  refreshWeights,
  segmentsOf,
  takeUp,
  takeUpSegments,
} from '../cohorts/conversations.ts'
import { fingerprint, withoutModule } from '../definition.ts'
import { InputError } from '../errors.ts'
import { PolicySum, Standing, spansOf, TokenSum } from '../kernels/bind.ts'
import { checkSampling } from '../policies/transformer/sampling.ts'
import { Stream } from '../random.ts'
import type { Tensor } from '../safetensors.ts'
import { Trajectories, type TrajectoryRows } from '../tables/trajectories.ts'
import { type TextOrigin, writeTrajectories } from '../tables/trajectory-table.ts'
import { lessonOf } from '../text/examples.ts'
import type { TrainingExample } from '../text/turn-ids.ts'
import { awaitAnswers, runSystems } from '../tick.ts'
import type { World } from '../world.ts'
import type { ConversationRecord, Manifest } from './checkpoint.ts'
import type { RunRecord } from './run-folder.ts'
import { compare, compareUpTo } from './snapshot.ts'
import { endWhenDropped } from './team.ts'
import { refuseGroups } from './text/group-filter.ts'
import { mismatchKl, rangeOf, rewardMetrics, type TextMetrics } from './text/metrics.ts'
import { examplesPlan, microBatchRows, type TextLearnerColumns, textLearnerPlan } from './text/plan.ts'
import { TextTeam } from './text/team.ts'
import { columnsFor, inOwnMemory, prepareUpdate } from './text/token-update.ts'
import { packTrajectories, unpackTrajectories } from './text/trajectory-snapshot.ts'
import { type Goal, nextTurn, type SavedTraining, type Training } from './training.ts'

/** What a training of conversations does, in this order; what is not given is left out. */
export interface Phases {
  readonly sft?: SftDefinition
  readonly rl?: RlDefinition
}

/** What became of a cohort of conversations so far. */
export interface ConversationProgress {
  /** Supervised steps done. */
  readonly sftSteps: number
  /** Updates of reinforcement learning done. */
  readonly rlUpdates: number
  /** Examples that are longer than the context, and are passed over or cut. */
  readonly tooLong: { readonly skipped: number; readonly cut: number }
}

/**
 * Gives a cohort of conversations a learner. What is returned binds it, when all who need columns have said so.
 * @throws InputError if the world's memory is taken already, or the algorithms do not fit the cohort or one another.
 */
export function reserveConversations(world: World, name: string, phases: Phases): () => ConversationTraining {
  const { sft, rl } = phases
  if (sft !== undefined && rl !== undefined && sft.settings.optimizer !== rl.settings.optimizer) {
    throw new InputError('rl.optimizer', rl.settings.optimizer, `${sft.settings.optimizer}, as in sft`)
  }
  const draft = world.draft(name)
  if (draft.kind !== 'conversations') {
    const got = 'one of conversations, and a cohort of episodes'
    throw new InputError(`algorithm of ${name}`, got, 'one of episodes, like ppo()')
  }
  if (rl !== undefined) checkSampled(rl, draft)
  world.reserve(draft, {
    learner: textLearnerPlan(draft.opened, phases, world.threads.count),
    use: { asked: (rl?.settings.updates ?? 0) > 0, learned: (sft?.settings.steps ?? 0) > 0 },
  })
  return () => new ConversationTraining(world, name, phases)
}

/** Trains one cohort of conversations. */
export class ConversationTraining implements Training<TextMetrics> {
  readonly world: World
  readonly phases: Phases
  readonly #cohort: ConversationCohort
  readonly #learner: TokenLearner
  readonly #columns: TextLearnerColumns
  /** Its own lanes alone move while it collects. */
  readonly #moved: readonly ConversationCohort[]
  readonly #microBatchRows: number
  #sftSteps = 0
  #rlUpdates = 0
  #ticks = 0
  /** The trajectories are those of an update that is done. */
  #isBetweenUpdates = true
  /** Groups dropped for this update, by reason; and those that were judged and kept. */
  #drops: Record<string, number> = {}
  readonly #admitted = new Set<number>()
  #seconds = 0
  /** Null where there is one thread. */
  readonly #team: TextTeam | null
  /** `midway` in a tick, or an update: the columns are at no place from which to go on. */
  #doing: 'nothing' | 'collecting' | 'midway' = 'nothing'

  /** Use `reserveConversations`. */
  constructor(world: World, name: string, phases: Phases) {
    this.world = world
    this.phases = phases
    this.#cohort = asConversations(`algorithm of ${name}`, world.cohort(name))
    this.#moved = [this.#cohort]
    this.#microBatchRows = microBatchRows(this.#cohort.context)
    const { model, weights, quantized, adapter, learner } = this.#cohort
    const columns = learner as TextLearnerColumns
    this.#columns = columns
    const team = world.threads.count === 1 ? null : new TextTeam(world, this.#cohort)
    this.#team = team
    if (team !== null) endWhenDropped(this, team)
    const post = team && ((work: TokenWork) => team.post(work))
    this.#learner = new TokenLearner(model, quantized ?? weights, columns, world.kernels, adapter, post)
    this.#learner.start()
    this.#cohort.released = 0
    const algorithms = [phases.sft, phases.rl].map((algorithm) => algorithm && withoutModule(algorithm))
    this.#cohort.source = `${this.#cohort.environment.id} ${fingerprint(this.#cohort.source, algorithms)}`
  }

  /** Steps and updates done. */
  get update(): number {
    return this.#sftSteps + this.#rlUpdates
  }

  /** Ticks done. */
  get steps(): number {
    return this.#ticks
  }

  get progress(): ConversationProgress {
    const { numSkipped = 0, numCut = 0 } = this.#cohort.examples ?? {}
    return {
      sftSteps: this.#sftSteps,
      rlUpdates: this.#rlUpdates,
      tooLong: { skipped: numSkipped, cut: numCut },
    }
  }

  /** Ticks and optimizer steps done: what checkpoints are numbered by. */
  get moves(): number {
    return this.#ticks + this.#sftSteps + this.#rlUpdates
  }

  /** Seconds of collecting and learning. */
  get seconds(): number {
    return this.#seconds
  }

  /** The cohort that learns. */
  get cohort(): ConversationCohort {
    return this.#cohort
  }

  isDone({ phase, signal }: Goal): boolean {
    return signal?.aborted === true || this.#next(phase) === undefined
  }

  /** The phase that has something to do, if there is one. */
  #next(only: Goal['phase']): 'sft' | 'rl' | undefined {
    const { sft, rl } = this.phases
    if (only !== 'rl' && sft !== undefined && this.#sftSteps < sft.settings.steps) return 'sft'
    if (only !== 'sft' && rl !== undefined && this.#rlUpdates < rl.settings.updates) return 'rl'
    return undefined
  }

  /** A supervised step, or an update with its conversations in `trajectories`. */
  async advance({ phase, signal }: Goal): Promise<TextMetrics | undefined> {
    if (this.#next(phase) === 'sft') return this.#do('midway', () => this.#superviseOnce(this.phases.sft!))
    const rl = this.phases.rl!
    const { engine, version } = this.#cohort
    if (engine.version !== version) await refreshWeights(this.#cohort, version)
    if (this.#isBetweenUpdates) {
      if (this.#rlUpdates === 0) this.#learner.start() // What the model has become by now is the reference.
      this.#cohort.trajectories.clear()
      this.#cohort.released += rl.settings.groupsPerUpdate * rl.settings.groupSize
      this.#drops = {}
      this.#admitted.clear()
      this.#isBetweenUpdates = false
    }
    let started = 0 // When the workers are there.
    const isWhole = await this.#do('collecting', () => {
      started = performance.now()
      return this.#collect(rl, signal).finally(() => cancelReplies(this.#cohort))
    })
    const rolloutSeconds = (performance.now() - started) / 1000
    this.#seconds += rolloutSeconds
    return isWhole ? this.#do('midway', () => this.#learn(rl, rolloutSeconds)) : undefined
  }

  close(): void {
    this.#team?.end()
  }

  /** Does something with the workers there. */
  async #do<T>(what: 'collecting' | 'midway', action: () => Promise<T>): Promise<T> {
    if (this.#doing !== 'nothing') throw new InputError('trainer', 'a call in the middle of another', 'one after it')
    this.#doing = what
    try {
      await this.#team?.wake()
      return await action()
    } catch (error) {
      throw this.#team === null ? error : this.#team.fail(error)
    } finally {
      this.#team?.rest()
      this.#doing = 'nothing'
    }
  }

  /** Goes through what all threads do together. */
  async #together<T>(steps: Together<T>): Promise<T> {
    return this.#team === null ? alone(steps) : this.#team.run(steps)
  }

  checkBetween(action: string): void {
    if (this.#doing !== 'midway') return
    throw new InputError(action, 'a call in the middle of a tick or an update', 'one between two')
  }

  async #superviseOnce({ settings, loss }: SftDefinition): Promise<TextMetrics> {
    const started = performance.now()
    const { batchSize, steps, learningRate, schedule, warmupFraction, maxGradNorm } = settings
    const lessons = Array.from({ length: batchSize }, (_, i) => {
      const { promptId } = exampleAt(this.#cohort, this.world.kernels, this.#sftSteps * batchSize + i)
      return lessonOf(this.#cohort, promptId)
    })
    const batch = packBatch(this.#inColumns(lessons.flat()), this.#microBatchRows)
    const update = columnsFor(this.#columns.update, { rows: batch.order.length, tokens: batch.token.length })
    markLearned(update.learned, batch)
    const learned = { spans: batch.spans, lossMask: update.learned }
    const totals = prepareLoss(loss, learned, update.prepared, this.world.kernels)
    const none = new Float32Array(0)
    const given = { oldLogprob: none, referenceLogprob: null, oldValue: none, wholeTokens: null }
    const sums = await this.#together(
      this.#learner.differentiate(batch, loss, totals, given, update, 1, this.#sftSteps),
    )
    const rate =
      learningRateOf(learningRate, sftRates, this.#cohort) *
      scheduleFactor(schedule, warmupFraction, this.#sftSteps, steps)
    const gradNorm = this.#learner.descend(settings, rate, maxGradNorm)
    this.#sftSteps++
    await refreshWeights(this.#cohort, this.#cohort.version + 1)
    this.#seconds += (performance.now() - started) / 1000
    return {
      phase: 'sft',
      step: this.#sftSteps,
      seconds: this.#seconds,
      loss: sums.policy[PolicySum.loss]!,
      learningRate: rate,
      gradNorm,
      tokens: totals.numTokens,
      rl: null,
    }
  }

  /** A step's examples in columns, one after another: the planned ones where they have room. */
  #inColumns(examples: readonly TrainingExample[]): TokenSequences {
    const offsets = new Int32Array(examples.length + 1)
    for (const [i, { ids }] of examples.entries()) offsets[i + 1] = offsets[i]! + ids.length
    const size = { rows: examples.length, tokens: offsets.at(-1)! }
    const planned = this.#columns.examples
    const { token, lossMask } = size.tokens <= planned.token.length ? planned : inOwnMemory(examplesPlan(size))
    for (const [i, example] of examples.entries()) {
      token.set(example.ids, offsets[i])
      lossMask.set(example.lossMask, offsets[i])
    }
    return { ...spansOf(offsets), token, lossMask }
  }

  /**
   * Ticks until the groups of the next update are whole and admitted; false if it was stopped before. Groups that the filter
   * drops are replaced by others, as many at a time as are missing.
   * @throws InputError where more groups were dropped than may be.
   */
  async #collect(rl: RlDefinition, signal: AbortSignal | undefined): Promise<boolean> {
    const { settings } = rl
    const { trajectories } = this.#cohort
    const size = settings.groupsPerUpdate * settings.groupSize
    let rested = performance.now()
    const { clock } = this.world
    for (;;) {
      while (trajectories.numConversations < size) {
        if (signal?.aborted) return false
        this.#doing = 'midway'
        clock.start()
        const moved = runSystems(this.world, this.#moved)
        if (moved !== undefined) await moved
        this.#doing = 'collecting'
        clock.rest() // Replies that are owed have a time limit of their own.
        this.#ticks++
        const waiting = awaitAnswers(this.#moved)
        if (waiting !== undefined) await (signal === undefined ? waiting : orAborted(waiting, signal))
        if (performance.now() - rested < 50) continue
        await nextTurn() // Interrupts and timers come through.
        rested = performance.now()
      }
      const missing = this.#admit(rl)
      if (missing === 0) return true
      this.#cohort.released += missing * settings.groupSize
    }
  }

  /** Drops the groups that the filter refuses. Returns how many. */
  #admit({ settings, filter }: RlDefinition): number {
    if (filter === null) return 0
    const { trajectories, tokenizer } = this.#cohort
    const { keep, dropped } = refuseGroups(trajectories, tokenizer, filter, this.#admitted, this.#drops)
    if (dropped === 0) return 0
    const total = Object.values(this.#drops).reduce((sum, count) => sum + count, 0)
    if (total > settings.dropsMax) {
      const reasons = Object.entries(this.#drops).map(([reason, count]) => `${count} ${reason}`)
      const got = `${total} groups dropped for update ${this.#rlUpdates + 1} (${reasons.join(', ')})`
      throw new InputError(
        'rl.dropsMax',
        got,
        `at most ${settings.dropsMax}: another filter, or a task that is neither too easy nor too hard`,
      )
    }
    trajectories.keep(keep)
    return dropped
  }

  async #learn({ settings, loss }: RlDefinition, rolloutSeconds: number): Promise<TextMetrics> {
    const started = performance.now()
    const { trajectories } = this.#cohort
    const { updates, learningRate, schedule, warmupFraction, maxGradNorm, updateEpochs, temperature } = settings
    const { numMinibatches } = settings
    const rows = trajectories.order()
    const columns = trajectories.rows(rows)
    if (!columns.known.includes(1)) {
      const first = columns.error.find((text) => text !== null) ?? 'no reason given'
      const got = `no reward of ${rows.length} conversations known (${first})`
      throw new InputError(`${this.#cohort.environment.id}, update ${this.#rlUpdates + 1}`, got, 'at least one')
    }
    const batch = packBatch(columns, this.#microBatchRows, this.#dealMinibatches(columns.segment, numMinibatches))
    const { kernels } = this.world
    const update = columnsFor(this.#columns.update, { rows: rows.length, tokens: trajectories.numTokens })
    const { totals, given, conversations, numRecomputed } = await this.#together(
      prepareUpdate(this.#learner, kernels, loss, columns, batch, update, temperature),
    )
    const { spans } = batch
    const { counted, weight } = update.prepared
    const isCorrected = loss.settings.correction !== 'none'
    const { oldLogprob, behaviorLogprob } = given
    const mismatch = {
      mismatchKl: oldLogprob === behaviorLogprob ? null : mismatchKl(oldLogprob, behaviorLogprob, counted, spans),
      importanceWeight: isCorrected ? rangeOf(weight, counted, spans) : null,
    }
    // Not by ticks, whose number depends on when replies come.
    const firstStep = this.#sftSteps + this.#rlUpdates * updateEpochs * numMinibatches
    const first: { sums: TokenLossSums; gradNorm: number }[] = []
    const rate =
      learningRateOf(learningRate, rlRates, this.#cohort) *
      scheduleFactor(schedule, warmupFraction, this.#rlUpdates, updates)
    for (let step = 0; step < updateEpochs * numMinibatches; step++) {
      const part = numMinibatches === 1 ? batch : minibatchOf(batch, step % numMinibatches)
      const [from, to] = [part.parts[0]!, part.parts.at(-1)!]
      const own = numMinibatches === 1 ? totals : totalsOf(loss, update.prepared, spans, from, to, totals.numRejected)
      if (own.numTokens === 0 && totals.numTokens > 0) continue // Its rewards are unknown: others have something to learn.
      const sums = await this.#together(
        this.#learner.differentiate(part, loss, own, given, update, temperature, firstStep + step),
      )
      const gradNorm = this.#learner.descend(settings, rate, maxGradNorm)
      if (step < numMinibatches) first.push({ sums, gradNorm })
    }
    // Of returns and critics each token has its own.
    if (loss.settings.advantage === 'group') {
      trajectories.setAdvantages(advantagesOf(rows, batch, update, conversations))
    }
    this.#rlUpdates++
    await refreshWeights(this.#cohort, this.#cohort.version + 1)
    this.#isBetweenUpdates = true
    const updateSeconds = (performance.now() - started) / 1000
    this.#seconds += updateSeconds
    const sums = { policy: sumOf(first, 'policy'), value: sumOf(first, 'value') }
    const gradNorm = first.reduce((sum, each) => sum + each.gradNorm, 0) / first.length
    const learned = sums.policy[PolicySum.tokens]!
    const per = (sum: number) => sums.policy[sum]! / learned
    const { sampled, tokens } = countTokens(columns)
    return {
      phase: 'rl',
      step: this.#rlUpdates,
      seconds: this.#seconds,
      loss: (sums.policy[PolicySum.loss]! + sums.value[TokenSum.loss]!) / first.length,
      learningRate: rate,
      gradNorm,
      tokens: totals.numTokens,
      rl: {
        ...rewardMetrics(columns, totals),
        ...mismatch,
        entropy: per(PolicySum.entropy),
        kl: { k1: per(PolicySum.k1), k2: per(PolicySum.k2), k3: per(PolicySum.k3) },
        referenceKl:
          given.referenceLogprob === null
            ? null
            : {
                k1: per(PolicySum.referenceK1),
                k2: per(PolicySum.referenceK2),
                k3: per(PolicySum.referenceK3),
              },
        ratio: per(PolicySum.ratio),
        valueLoss: loss.settings.advantage === 'critic' ? sums.value[TokenSum.loss]! / first.length : null,
        clipRatio: { low: per(PolicySum.clippedLow), high: per(PolicySum.clippedHigh) },
        completionLength: sampled / conversations.length,
        trajectories: conversations.length,
        drops: this.#drops,
        sampledTokens: sampled,
        trainedTokens: updateEpochs * tokens,
        numRecomputed,
        rolloutSeconds,
        updateSeconds,
      },
    }
  }

  /** The update's rows in minibatches of as many conversations each as can be, dealt by chance that the update keys. */
  #dealMinibatches(segment: Int32Array, count: number): number[][] | undefined {
    if (count === 1) return undefined
    const { random } = this.#cohort
    const conversations: number[][] = []
    segment.forEach((place, row) => {
      if (place === 0) conversations.push([row])
      else conversations.at(-1)!.push(row)
    })
    for (let i = conversations.length - 1; i > 0; i--) {
      random.draw(Stream.shuffle, NO_EPOCH, this.#rlUpdates, i)
      const j = Math.floor(random.uniform(0, 0, i + 1))
      const swapped = conversations[i]!
      conversations[i] = conversations[j]!
      conversations[j] = swapped
    }
    const cut = (m: number) => Math.floor((m * conversations.length) / count)
    return Array.from({ length: count }, (_, m) => conversations.slice(cut(m), cut(m + 1)).flat())
  }

  /** Writes this update's conversations, sorted by group and member, as an Arrow file. */
  async writeTrajectories(path: string): Promise<void> {
    const { environment, policyDefinition, tokenizer, trajectories } = this.#cohort
    const origin: TextOrigin = {
      environment: environment.id,
      model: policyDefinition.id,
      tokenizer: tokenizer.id,
      algorithm: this.phases.rl?.settings.loss ?? 'none',
      seed: this.world.seed,
      promptOf: (promptId) => JSON.stringify(environment.example(promptId).prompt),
      answerOf: (promptId) => environment.example(promptId).answer ?? null,
      decode: (ids) => tokenizer.decode(ids),
    }
    await writeTrajectories(path, trajectories, origin)
  }

  saved(): SavedTraining {
    const { sft, rl } = this.phases
    const { name, environment, policyDefinition, numLanes, rewardReduction } = this.#cohort
    const { histories, supports, trajectories, version, released, source } = this.#cohort
    const over = packTrajectories(trajectories, `${name}.trajectories`)
    const open = packTrajectories(segmentsOf(this.#cohort), `${name}.segments`)
    const record: ConversationRecord = {
      kind: 'conversations',
      environment: withoutModule(environment),
      policy: withoutModule(policyDefinition),
      sft: sft === undefined ? null : withoutModule(sft),
      rl: rl === undefined ? null : withoutModule(rl),
      numLanes,
      rewardReduction,
      seconds: this.#seconds,
      sftSteps: this.#sftSteps,
      rlUpdates: this.#rlUpdates,
      version,
      ticks: this.#ticks,
      isBetweenUpdates: this.#isBetweenUpdates,
      released,
      drops: { ...this.#drops },
      admitted: [...this.#admitted],
      histories: histories.map((history) => [...history]),
      supports: supports.map((ids) => [...ids]),
      source,
      trajectories: over.rows,
      segments: open.rows,
    }
    return { tensors: [...over.tensors, ...open.tensors], cohorts: { [name]: record } }
  }

  async restore(manifest: Manifest, tensors: ReadonlyMap<string, Tensor>): Promise<void> {
    const { name, numLanes, histories, supports, trajectories } = this.#cohort
    const record = manifest.cohorts[name] as ConversationRecord
    trajectories.clear()
    unpackTrajectories(trajectories, `${name}.trajectories`, record.trajectories, tensors)
    const open = new Trajectories()
    unpackTrajectories(open, `${name}.segments`, record.segments, tensors)
    takeUpSegments(this.#cohort, open)
    histories.splice(0, numLanes, ...record.histories.map((history) => [...history]))
    supports.splice(0, numLanes, ...record.supports.map((ids) => [...ids]))
    this.#cohort.source = record.source
    takeUp(this.#cohort)
    this.#sftSteps = record.sftSteps
    this.#rlUpdates = record.rlUpdates
    this.#ticks = record.ticks
    this.#isBetweenUpdates = record.isBetweenUpdates
    this.#cohort.released = record.released
    this.#drops = { ...record.drops }
    this.#admitted.clear()
    for (const group of record.admitted) this.#admitted.add(group)
    this.#seconds = record.seconds
    await refreshWeights(this.#cohort, record.version)
  }

  compareCheckpoint(subject: string, { seed, cohorts }: Manifest): string[] {
    const { name } = this.#cohort
    const record = cohorts[name]!
    compare(subject, `kind of cohort ${name}`, record.kind, 'conversations')
    const { rlUpdates, isBetweenUpdates, sftSteps, ...said } = record as ConversationRecord
    const warnings = this.compareRun(subject, { ...said, seed })
    const { sft } = this.phases
    if ((rlUpdates > 0 || !isBetweenUpdates) && sft !== undefined) {
      compare(subject, 'sft, steps, after which updates came', sftSteps, sft.settings.steps)
    }
    return warnings
  }

  compareRun(subject: string, run: Omit<RunRecord, 'algorithm'>): string[] {
    const { environment, policyDefinition, numLanes, rewardReduction } = this.#cohort
    const { sft, rl } = this.phases
    compare(subject, 'environment', run.environment, withoutModule(environment))
    compare(subject, 'policy', run.policy, withoutModule(policyDefinition))
    const warnings = [
      ...compareUpTo(subject, 'sft', 'steps', run.sft, sft === undefined ? null : withoutModule(sft)),
      ...compareUpTo(subject, 'rl', 'updates', run.rl, rl === undefined ? null : withoutModule(rl)),
    ]
    compare(subject, 'numLanes', run.numLanes, numLanes)
    compare(subject, 'rewardReduction', run.rewardReduction, rewardReduction)
    return warnings
  }
}

/** Refuses to learn from another distribution than the one sampled from without a correction. */
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

/** Tokens of the rows, and those of them that the model chose. */
function countTokens({ begin, end, lossMask }: TrajectoryRows): { sampled: number; tokens: number } {
  let [sampled, tokens] = [0, 0]
  for (let i = 0; i < begin.length; i++) {
    tokens += end[i]! - begin[i]!
    for (let t = begin[i]!; t < end[i]!; t++) sampled += lossMask[t]!
  }
  return { sampled, tokens }
}

/** The trajectories' advantages in the order of the table, each row its conversation's; NaN for those that were left out. */
function advantagesOf(
  rows: readonly number[],
  { order }: TokenBatch,
  { prepared: { advantage, standing } }: TokenUpdateColumns,
  conversations: readonly (readonly number[])[],
): Float64Array {
  const advantages = new Float64Array(rows.length).fill(Number.NaN)
  conversations.forEach((places, c) => {
    const learns = standing[c] === Standing.learns || standing[c] === Standing.equal
    if (learns) for (const place of places) advantages[rows[order[place]!]!] = advantage[c]!
  })
  return advantages
}

/** Settles with the promise, or once the signal is aborted. */
async function orAborted(waiting: Promise<void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return
  let stop = () => {}
  const aborted = new Promise<void>((resolve) => {
    stop = resolve
  })
  signal.addEventListener('abort', stop)
  await Promise.race([waiting, aborted])
  signal.removeEventListener('abort', stop)
}

/** Stands for an epoch in the key of the minibatches' order. */
const NO_EPOCH = 0xfffffffe

/** The sums of several steps, one by one. */
function sumOf(steps: readonly { readonly sums: TokenLossSums }[], key: 'policy' | 'value'): Float64Array {
  const whole = steps[0]!.sums[key].slice()
  for (const { sums } of steps.slice(1)) for (const [i, value] of sums[key].entries()) whole[i] = whole[i]! + value
  return whole
}
