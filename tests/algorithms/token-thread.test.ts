import { afterEach, describe, expect, test } from 'vitest'
import { describeLoss, prepareLoss } from '../../src/algorithms/losses/losses.ts'
import { ThreadTurns } from '../../src/algorithms/tokens/gradient-turns.ts'
import { packBatch } from '../../src/algorithms/tokens/token-batch.ts'
import {
  alone as goAlone,
  slotRoom,
  TokenLearner,
  tokenLearnerPlan,
} from '../../src/algorithms/tokens/token-learner.ts'
import { type PartLoss, TokenThread, type TokenWork } from '../../src/algorithms/tokens/token-thread.ts'
import { Clock } from '../../src/base/clock.ts'
import { Random, Stream } from '../../src/base/random.ts'
import { listColumns, takeArena } from '../../src/components/arena.ts'
import { column } from '../../src/components/column.ts'
import { createKernels, NUM_SLOTS, spansOf } from '../../src/kernels/bind.ts'
import { transformer } from '../../src/language/transformer/model.ts'
import { updateOf } from '../support/updates.ts'

const optimizer = { optimizer: 'adam', momentum: 0, weightDecay: 0 } as const
const shape = {
  model_type: 'llama',
  vocab_size: 8,
  hidden_size: 8,
  num_hidden_layers: 2,
  num_attention_heads: 2,
  intermediate_size: 16,
  max_position_embeddings: 32,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  initializer_range: 0.8,
}
const model = transformer(shape)
const ROWS = 16

/** 60 sequences of 2 to 9 tokens. */
function batch() {
  const random = new Random(3)
  const offsets = [0]
  const token: number[] = []
  for (let i = 0; i < 60; i++) {
    random.draw(Stream.reset, i, 0, 0)
    const length = 2 + Math.floor(random.uniform(0) * 8)
    for (let t = 0; t < length; t++) {
      if (t % 4 === 0) random.draw(Stream.reset, i, 1, t / 4)
      token.push(Math.floor(random.uniform(t % 4) * 8))
    }
    offsets.push(token.length)
  }
  return packBatch({ ...spansOf(offsets), token, lossMask: token.map(() => 1) }, ROWS)
}

/** Two threads over the same weights and slots. */
function threads() {
  const plan = {
    weights: column('f32', model.numParameters),
    learner: tokenLearnerPlan(model, ROWS, 32, optimizer, false, null, 32, 2),
  }
  const { arena, columns } = takeArena(plan)
  model.initialize(columns.weights, new Random(7), 0)
  const kernels = createKernels(arena.memory, 'plain')
  const { packed, gradient, reference, passed } = columns.learner
  const made = [0, 1].map(
    (index) =>
      new TokenThread(
        model,
        columns.weights,
        { packed: packed[index]!, gradient, reference, passed },
        kernels,
        null,
        new Clock(),
      ),
  )
  return { first: made[0]!, second: made[1]!, gradient, passed }
}

const derive: PartLoss = (part, { logprob }, { dLogprob, dEntropy }) => {
  for (let row = 0; row < ROWS; row++) dLogprob[row] = logprob[row]! * 0.1 - part
  dEntropy.fill(0.01)
}

describe('micro-batches that threads share', () => {
  test('give every slot the same bits, whichever thread takes which, and when', () => {
    const work = () => ({ batch: batch(), temperature: 1, taken: new Int32Array(new SharedArrayBuffer(4)) })
    const { first: sole, gradient: alone } = threads()
    sole.differentiate(work(), derive, 0)
    expect(batch().parts.length - 1).toBeGreaterThan(NUM_SLOTS) // Some slots have two micro-batches.
    for (const call of [1, 2, 4, 20]) {
      const { first, second, gradient } = threads()
      const shared = work()
      let calls = 0
      // While the first is in the middle of a slot, the second takes all that are left.
      const interrupted: PartLoss = (part, evaluated, derivatives) => {
        derive(part, evaluated, derivatives)
        if (++calls === call) second.differentiate(shared, derive, 0)
      }
      first.differentiate(shared, interrupted, 0)
      expect(calls).toBeLessThan(batch().parts.length)
      expect(gradient).toEqual(alone)
    }
  })

  test('are each evaluated once, and every token has its place', () => {
    const { first, second } = threads()
    const whole = batch()
    const columns = [0, 1].map(() => updateOf(whole))
    const work = (which: number, taken: number) => ({
      kind: 'evaluate' as const,
      whose: 'policy' as const,
      batch: whole,
      temperature: 1,
      said: columns[which]!,
      taken: Int32Array.of(taken),
    })
    first.run(work(0, 0))
    const half = Math.floor((whole.parts.length - 1) / 2)
    second.run(work(1, half))
    const { begin, end } = whole.spans
    whole.order.forEach((_, i) => {
      const [all, some] = columns.map(({ logprob }) => logprob.subarray(begin[i], end[i]))
      if (i >= whole.parts[half]!) expect(some).toEqual(all)
      else expect(some!.every((each) => each === 0)).toBe(true)
    })
    expect(columns[0]!.entropy.filter((each) => each > 0)).toHaveLength(whole.token.length - 60)
  })
})

describe('a learner and another thread', () => {
  const loss = describeLoss('sft')

  /** A learner, another thread, and what the learner told it. */
  function pair(isAlone = false) {
    const plan = {
      weights: column('f32', model.numParameters),
      learner: tokenLearnerPlan(model, ROWS, 32, optimizer, false, null, 32, 2),
    }
    const { arena, columns } = takeArena(plan)
    model.initialize(columns.weights, new Random(7), 0)
    const kernels = createKernels(arena.memory, 'plain')
    const { packed, gradient, reference, passed } = columns.learner
    const told: TokenWork[] = []
    const post = (work: TokenWork): void => void told.push(work)
    return {
      learner: new TokenLearner(
        model,
        columns.weights,
        columns.learner,
        kernels,
        null,
        isAlone ? null : { post, check() {} },
      ),
      other: new TokenThread(
        model,
        columns.weights,
        { packed: packed[1]!, gradient, reference, passed },
        kernels,
        null,
        new Clock(),
      ),
      kernels,
      told,
    }
  }

  function differentiate({ learner, kernels }: ReturnType<typeof pair>, whole: ReturnType<typeof batch>) {
    const update = updateOf(whole)
    const learned = { spans: whole.spans, lossMask: update.learned }
    const totals = prepareLoss(loss, learned, update.prepared, kernels)
    const given = { oldLogprob: new Float32Array(whole.token.length), referenceLogprob: null, oldValue: null }
    return learner.differentiate(whole, loss, totals, { ...given, wholeTokens: null }, update, 1)
  }

  test('meet before and after each work, and whoever does it, the gradient and the sums are the same', () => {
    const sole = pair(true)
    const wanted = goAlone(differentiate(sole, batch()))
    expect(sole.told).toEqual([])
    for (const otherWorks of [true, false]) {
      const both = pair()
      const steps = differentiate(both, batch())
      expect(steps.next().done).toBe(false) // The other knows what to do.
      expect(both.told).toHaveLength(1)
      if (otherWorks) both.other.run(both.told[0]!)
      expect(steps.next().done).toBe(false) // All is done.
      const { done, value } = steps.next()
      expect(done).toBe(true)
      expect(value).toEqual(wanted)
      expect(both.learner.trained.gradient).toEqual(sole.learner.trained.gradient)
    }
  })

  test('do not meet for a single micro-batch', () => {
    const both = pair()
    const single = packBatch({ ...spansOf([0, 3, 5]), token: [1, 2, 3, 4, 5], lossMask: [1, 1, 1, 1, 1] }, ROWS)
    goAlone(differentiate(both, single))
    expect(both.told).toEqual([])
    const double = packBatch({ ...spansOf([0, 3, 5]), token: [1, 2, 3, 4, 5], lossMask: [1, 1, 1, 1, 1] }, 2)
    expect(differentiate(both, double).next().done).toBe(false)
    expect(both.told.map(({ kind }) => kind)).toEqual(['differentiate'])
  })

  test('a batch without a sequence has a gradient of 0, whatever the last one was', () => {
    const sole = pair(true)
    goAlone(differentiate(sole, batch()))
    expect(sole.learner.trained.gradient.some((slope) => slope !== 0)).toBe(true)
    const none = packBatch({ ...spansOf([0]), token: [], lossMask: [] }, ROWS)
    goAlone(differentiate(sole, none))
    expect(sole.learner.trained.gradient.every((slope) => slope === 0)).toBe(true)
  })
})

describe('the columns of a learner that threads share', () => {
  const bytesOf = (plan: ReturnType<typeof tokenLearnerPlan>) =>
    listColumns(plan).reduce((sum, { name, bytes }) => sum + (name.startsWith('packed') ? 0 : bytes), 0)

  const plan = (threads: number) => tokenLearnerPlan(model, ROWS, 32, optimizer, false, null, 32, threads)

  test('have as many gradient slots for any number of threads, and one for a large model', () => {
    expect(bytesOf(plan(7))).toBe(bytesOf(plan(1)))
    expect(Object.keys(plan(7).packed)).toHaveLength(7)
    expect(tokenLearnerPlan(model, ROWS, 32, optimizer, false)).toEqual(plan(1))
    expect(plan(1).gradient.rows).toBe(NUM_SLOTS * model.numParameters)
    const few = (sequences: number) => tokenLearnerPlan(model, ROWS, 32, optimizer, false, null, 32, 1, sequences)
    const slots = [1, 3, 99].map((sequences) => few(sequences).gradient.rows / model.numParameters)
    expect(slots).toEqual([2, 3, NUM_SLOTS])
    const sizes = { ...shape, hidden_size: 1024, intermediate_size: 4096, num_hidden_layers: 2 }
    const large = transformer(sizes)
    expect(tokenLearnerPlan(large, ROWS, 32, optimizer, false).gradient.rows).toBe(large.numParameters)
    const tied = transformer({ ...sizes, tie_word_embeddings: true })
    expect(tokenLearnerPlan(tied, ROWS, 32, optimizer, false).gradient.rows).toBe(tied.numParameters + 8 * 1024)
  })
})

describe('a single gradient slot', () => {
  const room = slotRoom.elements
  afterEach(() => {
    slotRoom.elements = room
  })

  test.each([false, true])('has the gradient that several have, with embeddings tied: %s', (isTied) => {
    const made = transformer({ ...shape, tie_word_embeddings: isTied })
    const [several, sole] = [room, 0].map((elements) => {
      slotRoom.elements = elements
      const plan = {
        weights: column('f32', made.numParameters),
        learner: tokenLearnerPlan(made, ROWS, 32, optimizer, false),
      }
      const { arena, columns } = takeArena(plan)
      made.initialize(columns.weights, new Random(7), 0)
      const learner = new TokenLearner(made, columns.weights, columns.learner, createKernels(arena.memory, 'plain'))
      const update = updateOf(batch())
      for (let t = 0; t < update.dLogprob.length; t++) update.dLogprob[t] = Math.sin(t)
      // The second time: nothing of the first is left.
      for (let times = 0; times < 2; times++) learner.backward(batch(), update, update, 1, 0)
      return learner.trained.gradient
    })
    const largest = Math.max(...several!.map(Math.abs))
    several!.forEach((slope, i) => {
      expect(Math.abs(slope - sole![i]!)).toBeLessThan(1e-5 * largest)
    })
  })

  test.each([0, 3])('is left by a thread whose micro-batch %i throws, so that no other waits', (failing) => {
    slotRoom.elements = 0
    const { first, passed } = threads()
    const work = { batch: batch(), temperature: 1, taken: new Int32Array(1) }
    const throwing: PartLoss = (part, evaluated, derivatives) => {
      if (part === failing) throw new Error('no loss')
      derive(part, evaluated, derivatives)
    }
    expect(() => first.differentiate(work, throwing, 0)).toThrow('no loss')
    const numParts = work.batch.parts.length - 1
    expect([...passed].every((count) => count > numParts)).toBe(true)
  })

  test('is not waited for where a thread has ended without an error', () => {
    const passed = new Int32Array(new SharedArrayBuffer(4))
    const turns = new ThreadTurns(passed, null, new Clock(), () => {
      throw new Error('a thread has ended')
    })
    turns.part = 1
    expect(() => turns.begin(0)).toThrow('a thread has ended') // It would sleep for ever.
  })

  test('is waited for by nobody after an error', () => {
    const passed = new Int32Array(new SharedArrayBuffer(4 * 3))
    const [failing, other] = [0, 1].map(() => new ThreadTurns(passed, null, new Clock(), () => {}))
    failing!.begin(0)
    failing!.end(0)
    expect([...passed]).toEqual([1, 0, 0])
    failing!.fail()
    other!.part = 4
    for (const stage of [0, 1, 2]) other!.begin(stage) // It would sleep for ever.
    other!.part = 0
    other!.end(1) // A micro-batch before the one that failed leaves that in place.
    expect(passed[1]).toBeGreaterThan(4)
  })
})
