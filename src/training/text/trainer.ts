/**
 * The trainer of language models: supervised steps on the environment's own answers, then updates from sampled conversations.
 * It lets a world collect, learns, counts what happened, and can be stopped after any tick and resumed to the same bits.
 */

import { type PreparedLoss, preparedLossPlan, prepareLoss, totalsOf } from '../../algorithms/losses.ts'
import { learningRateOf } from '../../algorithms/optimizer.ts'
import { type RlDefinition, rlRates } from '../../algorithms/rl.ts'
import { scheduleFactor } from '../../algorithms/schedule.ts'
import { type SftDefinition, sftRates } from '../../algorithms/sft.ts'
import { minibatchOf, packBatch, type TokenBatch } from '../../algorithms/token-batch.ts'
import {
  alone,
  type Together,
  TokenLearner,
  type TokenLearnerColumns,
  type TokenLossSums,
} from '../../algorithms/token-learner.ts'
import type { TokenWork } from '../../algorithms/token-thread.ts'
import { createBeats } from '../../clock.ts'
import {
  asConversations,
  type ConversationCohort,
  type ConversationDraft,
  exampleAt,
  letGoReplies,
  refreshWeights,
  segmentsOf,
  takeUp,
  takeUpSegments,
} from '../../cohorts/conversations.ts'
import { fingerprint, withoutModule } from '../../definition.ts'
import { InputError, show } from '../../errors.ts'
import { PolicySum, Standing, TokenSum } from '../../kernels/bind.ts'
import { checkSampling } from '../../policies/transformer/sampling.ts'
import { Stream } from '../../random.ts'
import type { Tensor } from '../../safetensors.ts'
import { Trajectories } from '../../tables/trajectories.ts'
import { type TextOrigin, writeTrajectories } from '../../tables/trajectory-table.ts'
import { lessonOf } from '../../text/examples.ts'
import { awaitAnswers, runSystems } from '../../tick.ts'
import { VERSION } from '../../version.ts'
import { checkWorld, type World } from '../../world.ts'
import { type Manifest, readCheckpoint, type TextRecord, writeCheckpoint } from '../checkpoint.ts'
import { type RunRecord, refuseOtherTraining } from '../run-folder.ts'
import { compare, compareUpTo, differences, folderOf, restoreTensors, savedTensors } from '../snapshot.ts'
import { endWhenDropped, refuseInWorker } from '../team.ts'
import { refuseGroups } from './group-filter.ts'
import { mismatchKl, rangeOf, rewardMetrics, type TextMetrics } from './metrics.ts'
import { microBatchRows, textLearnerPlan } from './plan.ts'
import { TextTeam } from './team.ts'
import { inHeap, prepareUpdate } from './token-update.ts'
import { packTrajectories, unpackTrajectories } from './trajectory-snapshot.ts'

/** What a trainer of language models does, in this order; what is not given is left out. */
export interface TextTraining {
  readonly sft?: SftDefinition
  readonly rl?: RlDefinition
}

/** How a trainer of language models goes about its work. */
export interface TextTrainerOptions {
  /**
   * How many threads share the lanes of a tick and the micro-batches of an update: this one and workers beside it. Default 1.
   * The results are the same bits for any number.
   */
  readonly threads?: number
  /**
   * Where `save()` and `restore()` keep checkpoints unless they are told otherwise. `supervise()` and `updates()` refuse a
   * folder that holds another training, or checkpoints of this one that are yet to come, before they train.
   */
  readonly folder?: string
}

/**
 * Gives a world's cohort of conversations a learner.
 * @throws InputError if the world's memory is taken already, or has no such cohort; several threads are asked for and it has
 * other cohorts; or a worker's import calls this.
 */
export function createTextTrainer(world: World, training: TextTraining, options: TextTrainerOptions = {}): TextTrainer {
  refuseInWorker('createTextTrainer')
  return new TextTrainer(world, training, options)
}

/** Trains a world's only cohort of conversations. */
export class TextTrainer {
  readonly world: World
  readonly training: TextTraining
  readonly #cohort: ConversationCohort
  readonly #learner: TokenLearner
  readonly #microBatchRows: number
  readonly #folder: string | undefined
  #sftSteps = 0
  #rlUpdates = 0
  #ticks = 0
  /** The trajectories are those of an update that is done. */
  #isBetweenUpdates = true
  /** Groups dropped for this update, by reason; and those that were judged and kept. */
  #drops: Record<string, number> = {}
  readonly #admitted = new Set<number>()
  #seconds = 0
  #beats: Int32Array | undefined
  /** Null where there is one thread. */
  readonly #team: TextTeam | null
  /** `midway` in a tick, or an update: the columns are at no place from which to go on. */
  #doing: 'nothing' | 'collecting' | 'midway' = 'nothing'

  /** Use `createTextTrainer`. */
  constructor(world: World, training: TextTraining, { threads = 1, folder }: TextTrainerOptions = {}) {
    checkWorld('createTextTrainer(world, training)', world)
    if (folder !== undefined) folderOf('createTextTrainer(world, training, { folder })', folder)
    const { sft, rl } = training ?? {}
    const optimizer = (sft ?? rl)?.settings
    if (optimizer === undefined)
      throw new InputError('createTextTrainer(world, training)', show(training), 'sft, rl or both')
    if (sft !== undefined && rl !== undefined && sft.settings.optimizer !== rl.settings.optimizer) {
      throw new InputError('rl.optimizer', rl.settings.optimizer, `${sft.settings.optimizer}, as in sft`)
    }
    const cohorts = world.drafts.filter((draft) => draft.kind === 'conversations')
    if (cohorts.length !== 1) {
      const got = `${cohorts.length} cohorts of conversations`
      throw new InputError('createTextTrainer(world, training)', got, 'a world with one')
    }
    if (rl !== undefined) checkSampled(rl, cohorts[0]!)
    if (threads !== 1) {
      if (world.drafts.length > 1) {
        throw new InputError('threads', `${show(threads)}, and cohorts without conversations`, 'threads: 1')
      }
      world.split(threads)
    }
    world.reserve(cohorts[0]!, {
      learner: textLearnerPlan(cohorts[0]!.opened, training, threads),
      use: { asked: (rl?.settings.updates ?? 0) > 0, learned: (sft?.settings.steps ?? 0) > 0 },
    })
    this.world = world
    this.training = training
    this.#folder = folder
    this.#cohort = asConversations('createTextTrainer(world, training)', world.cohort(cohorts[0]!.name))
    this.#microBatchRows = microBatchRows(this.#cohort.context)
    const { model, weights, quantized, adapter, learner } = this.#cohort
    const columns = learner as TokenLearnerColumns
    const team = threads === 1 ? null : new TextTeam(world, this.#cohort)
    this.#team = team
    if (team !== null) endWhenDropped(this, team)
    const post = team && ((work: TokenWork) => team.post(work))
    this.#learner = new TokenLearner(model, quantized ?? weights, columns, world.kernels, adapter, post)
    this.#learner.start()
    this.#cohort.released = 0
    const algorithms = [sft, rl].map((algorithm) => algorithm && withoutModule(algorithm))
    this.#cohort.source = `${this.#cohort.environment.id} ${fingerprint(this.#cohort.source, algorithms)}`
  }

  /** Supervised steps done. */
  get sftSteps(): number {
    return this.#sftSteps
  }

  /** Updates of reinforcement learning done. */
  get rlUpdates(): number {
    return this.#rlUpdates
  }

  /** Ticks and optimizer steps done: what checkpoints are numbered by. */
  get moves(): number {
    return this.#ticks + this.#sftSteps + this.#rlUpdates
  }

  /** Seconds of collecting and learning. */
  get seconds(): number {
    return this.#seconds
  }

  /** Examples that are longer than the context, and are passed over or cut. */
  get tooLong(): { readonly skipped: number; readonly cut: number } {
    const { numSkipped = 0, numCut = 0 } = this.#cohort.examples ?? {}
    return { skipped: numSkipped, cut: numCut }
  }

  /** Where the caller's thread says that it goes on; workers run nothing that could be stuck. */
  get beats(): Int32Array {
    if (this.#beats === undefined) {
      this.#beats = createBeats(1)
      this.world.clock.beat = this.#beats
    }
    return this.#beats
  }

  /** The cohort that learns. */
  get cohort(): ConversationCohort {
    return this.#cohort
  }

  /**
   * Supervised steps up to the number that `sft` says, yielding after each.
   * @throws InputError before the first if the trainer's `folder` holds another training, or checkpoints that this one has yet
   * to come to.
   */
  async *supervise(): AsyncGenerator<TextMetrics, void, undefined> {
    await this.#refuseFolder()
    const { sft } = this.training
    while (sft !== undefined && this.#sftSteps < sft.settings.steps) {
      yield await this.#do('midway', () => this.#superviseOnce(sft))
      await nextTurn()
    }
  }

  /**
   * Updates up to the number that `rl` says, yielding after each, with the update's conversations in `trajectories`. Ends
   * after the next tick once the signal is aborted; a later call goes on where it ended.
   * @throws InputError before the first tick if the trainer's `folder` holds another training, or checkpoints that this one has
   * yet to come to.
   */
  async *updates(signal?: AbortSignal): AsyncGenerator<TextMetrics, void, undefined> {
    await this.#refuseFolder()
    const { rl } = this.training
    while (rl !== undefined && this.#rlUpdates < rl.settings.updates) {
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
        return this.#collect(rl, signal).finally(() => letGoReplies(this.#cohort))
      })
      const rolloutSeconds = (performance.now() - started) / 1000
      this.#seconds += rolloutSeconds
      if (!isWhole) return
      yield await this.#do('midway', () => this.#learn(rl, rolloutSeconds))
      await nextTurn()
    }
  }

  async #refuseFolder(): Promise<void> {
    if (this.#folder === undefined) return
    await refuseOtherTraining(this.#folder, {
      number: this.moves,
      compareCheckpoint: (subject, manifest) => void this.#compareCheckpoint(subject, manifest),
      compareRun: (subject, run) => void this.#compareRun(subject, run),
    })
  }

  /** Sends the workers home; a later step or update takes others. */
  close(): void {
    this.world.close()
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

  #checkNotMidway(action: string): void {
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
    const batch = packBatch(concatenate(lessons.flat()), this.#microBatchRows)
    const prepared = inHeap(preparedLossPlan(batch.order.length, batch.token.length, 0))
    const totals = prepareLoss(loss, batch, prepared, this.world.kernels)
    const none = new Float32Array(0)
    const given = { oldLogprob: none, referenceLogprob: null, oldValue: none, wholeTokens: null }
    const sums = await this.#together(
      this.#learner.differentiate(batch, loss, prepared, totals, given, 1, this.#sftSteps),
    )
    const rate =
      learningRateOf(learningRate, sftRates, this.#cohort) *
      scheduleFactor(schedule, warmupFraction, this.#sftSteps, steps)
    const gradNorm = this.#learner.descend(settings, rate, maxGradNorm)
    this.#sftSteps++
    refreshWeights(this.#cohort, this.#cohort.version + 1)
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
        const moved = runSystems(this.world, this.world.cohorts)
        if (moved !== undefined) await moved
        this.#doing = 'collecting'
        clock.rest() // Replies that are owed have a time limit of their own.
        this.#ticks++
        const waiting = awaitAnswers(this.world.cohorts)
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
  #admit({ settings }: RlDefinition): number {
    if (settings.filter === 'none') return 0
    const { trajectories, tokenizer } = this.#cohort
    const { keep, dropped } = refuseGroups(trajectories, tokenizer, settings.filter, this.#admitted, this.#drops)
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
    const columns = trajectories.take(rows).columns()
    if (!columns.known.includes(1)) {
      const first = columns.error.find((text) => text !== null) ?? 'no reason given'
      const got = `no reward of ${rows.length} conversations known (${first})`
      throw new InputError(`${this.#cohort.environment.id}, update ${this.#rlUpdates + 1}`, got, 'at least one')
    }
    const batch = packBatch(columns, this.#microBatchRows, this.#dealMinibatches(columns.segment, numMinibatches))
    const { kernels } = this.world
    const { prepared, totals, given, conversations, numRecomputed } = await this.#together(
      prepareUpdate(this.#learner, kernels, loss, columns, batch, temperature),
    )
    const isCorrected = loss.settings.correction !== 'none'
    const { oldLogprob, behaviourLogprob } = given
    const mismatch = {
      mismatchKl: oldLogprob === behaviourLogprob ? null : mismatchKl(oldLogprob, behaviourLogprob, prepared.counted),
      importanceWeight: isCorrected ? rangeOf(prepared.weight, prepared.counted) : null,
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
      const own = numMinibatches === 1 ? totals : totalsOf(loss, prepared, batch.offsets, from, to, totals.numRejected)
      if (own.numTokens === 0 && totals.numTokens > 0) continue // Its rewards are unknown: others have something to learn.
      const sums = await this.#together(
        this.#learner.differentiate(part, loss, prepared, own, given, temperature, firstStep + step),
      )
      const gradNorm = this.#learner.descend(settings, rate, maxGradNorm)
      if (step < numMinibatches) first.push({ sums, gradNorm })
    }
    // Of returns and critics each token has its own.
    if (loss.settings.advantage === 'group') {
      trajectories.setAdvantages(advantagesOf(rows, batch, prepared, conversations))
    }
    this.#rlUpdates++
    refreshWeights(this.#cohort, this.#cohort.version + 1)
    this.#isBetweenUpdates = true
    const updateSeconds = (performance.now() - started) / 1000
    this.#seconds += updateSeconds
    const sums = { policy: sumOf(first, 'policy'), value: sumOf(first, 'value') }
    const gradNorm = first.reduce((sum, each) => sum + each.gradNorm, 0) / first.length
    const learned = sums.policy[PolicySum.tokens]!
    const per = (sum: number) => sums.policy[sum]! / learned
    const sampled = columns.lossMask.reduce((sum, flag) => sum + flag, 0)
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
        trainedTokens: updateEpochs * columns.token.length,
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
      algorithm: this.training.rl?.settings.loss ?? 'none',
      seed: this.world.seed,
      promptOf: (promptId) => JSON.stringify(environment.example(promptId).prompt),
      answerOf: (promptId) => environment.example(promptId).answer ?? null,
      decode: (ids) => tokenizer.decode(ids),
    }
    await writeTrajectories(path, trajectories, origin)
  }

  /**
   * Writes a checkpoint of the run in the folder, after any tick, and returns its path. The folder is the trainer's where none
   * is given.
   * @throws InputError if there is no folder, it cannot be written, or in the middle of a tick or an update.
   */
  async save(folder?: string): Promise<string> {
    const target = folderOf('trainer.save(folder)', folder, this.#folder)
    this.#checkNotMidway('trainer.save()')
    const { world, training } = this
    const { environment, policyDefinition, numLanes, rewardReduction, histories, supports, trajectories } = this.#cohort
    const over = packTrajectories(trajectories, 'trajectories')
    const open = packTrajectories(segmentsOf(this.#cohort), 'segments')
    // Copied before anything is waited for: a caller need not wait for the writing before the next tick.
    const tensors: Tensor[] = [...savedTensors(world).map((tensor) => ({ ...tensor, bytes: tensor.bytes.slice() }))]
    tensors.push(...over.tensors, ...open.tensors)
    const text: TextRecord = {
      environment: withoutModule(environment),
      policy: withoutModule(policyDefinition),
      sft: training.sft === undefined ? null : withoutModule(training.sft),
      rl: training.rl === undefined ? null : withoutModule(training.rl),
      numLanes,
      rewardReduction,
      sftSteps: this.#sftSteps,
      rlUpdates: this.#rlUpdates,
      version: this.#cohort.version,
      ticks: this.#ticks,
      isBetweenUpdates: this.#isBetweenUpdates,
      released: this.#cohort.released,
      drops: { ...this.#drops },
      admitted: [...this.#admitted],
      histories: histories.map((history) => [...history]),
      supports: supports.map((ids) => [...ids]),
      source: this.#cohort.source,
      trajectories: over.rows,
      segments: open.rows,
    }
    return writeCheckpoint(target, tensors, {
      colonnade: VERSION,
      node: process.version,
      kernels: world.kernelBuild,
      seed: world.seed,
      update: this.moves,
      steps: this.#ticks,
      seconds: this.#seconds,
      cohorts: {},
      text,
    })
  }

  /**
   * Takes up the newest checkpoint of the folder, or that of the given number. Returns what a user should be warned of. How many
   * steps and updates there are to be need not be what it was: a training that was complete then goes on. The folder is the
   * trainer's where none is given.
   * @throws InputError if there is none, it is corrupt, or it is of another training; then nothing is changed.
   */
  async restore(folder?: string, number?: number): Promise<readonly string[]> {
    const source = folderOf('trainer.restore(folder)', folder, this.#folder)
    this.#checkNotMidway('trainer.restore()')
    const { path, manifest, tensors } = await readCheckpoint(source, number)
    const subject = `checkpoint ${path}`
    const { text, warnings } = this.#compareCheckpoint(subject, manifest)
    const { numLanes, histories, supports, trajectories } = this.#cohort
    restoreTensors(subject, this.world, tensors)
    trajectories.clear()
    unpackTrajectories(trajectories, 'trajectories', text.trajectories, tensors)
    const open = new Trajectories()
    unpackTrajectories(open, 'segments', text.segments, tensors)
    takeUpSegments(this.#cohort, open)
    histories.splice(0, numLanes, ...text.histories.map((history) => [...history]))
    supports.splice(0, numLanes, ...text.supports.map((ids) => [...ids]))
    this.#cohort.source = text.source
    takeUp(this.#cohort)
    this.#sftSteps = text.sftSteps
    this.#rlUpdates = text.rlUpdates
    this.#ticks = text.ticks
    this.#isBetweenUpdates = text.isBetweenUpdates
    this.#cohort.released = text.released
    this.#drops = { ...text.drops }
    this.#admitted.clear()
    for (const group of text.admitted) this.#admitted.add(group)
    this.#seconds = manifest.seconds
    this.#cohort.version = text.version
    return [...warnings, ...differences(manifest, this.world)]
  }

  /**
   * What a checkpoint says of this training, and what a user should be warned of.
   * @throws InputError that names the first part in which it is of another one.
   */
  #compareCheckpoint(subject: string, { seed, text }: Manifest): { text: TextRecord; warnings: string[] } {
    if (text === undefined) throw new InputError(subject, 'one of no language model', 'one of this training')
    const warnings = this.#compareRun(subject, { ...text, seed })
    const { sft } = this.training
    if ((text.rlUpdates > 0 || !text.isBetweenUpdates) && sft !== undefined) {
      compare(subject, 'sft, steps, after which updates came', text.sftSteps, sft.settings.steps)
    }
    return { text, warnings }
  }

  /** As above, of what a run and a checkpoint say both. */
  #compareRun(subject: string, run: Omit<RunRecord, 'algorithm'>): string[] {
    const { environment, policyDefinition, numLanes, rewardReduction } = this.#cohort
    const { sft, rl } = this.training
    compare(subject, 'seed', run.seed, this.world.seed)
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

/** The examples one after another. */
function concatenate(examples: readonly { ids: readonly number[]; lossMask: readonly number[] }[]) {
  const offsets = [0]
  for (const { ids } of examples) offsets.push(offsets.at(-1)! + ids.length)
  return { offsets, token: examples.flatMap(({ ids }) => ids), lossMask: examples.flatMap((each) => each.lossMask) }
}

/** The trajectories' advantages in the order of the table, each row its conversation's; NaN for those that were left out. */
function advantagesOf(
  rows: readonly number[],
  { order }: TokenBatch,
  { advantage, standing }: PreparedLoss,
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

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

/** Stands for an epoch in the key of the minibatches' order. */
const NO_EPOCH = 0xfffffffe

/** The sums of several steps, one by one. */
function sumOf(steps: readonly { readonly sums: TokenLossSums }[], key: 'policy' | 'value'): Float64Array {
  const whole = steps[0]!.sums[key].slice()
  for (const { sums } of steps.slice(1)) for (const [i, value] of sums[key].entries()) whole[i] = whole[i]! + value
  return whole
}
