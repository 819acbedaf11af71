/**
 * Takes back what an update wrote to a replay: the rows that its rollout replaced, and the priorities that it changed. So the state
 * before an update needs no copy of the whole replay.
 */
import type { Column } from '../../components/column.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { Undo } from '../algorithm.ts'
import type { Overwritten, ReplayColumns, ReplayShape } from './replay.ts'

export class ReplayUndo implements Undo, Overwritten {
  /** `counts` is not one of them: it has three numbers. */
  readonly columns: readonly Column[]
  readonly #replay: ReplayColumns
  readonly #kernels: Kernels
  /** The columns of rows, and of each as many rows as a rollout has. */
  readonly #rows: readonly Column[]
  #former: readonly Column[] = []
  readonly #numBlocks: number
  readonly #numSteps: number
  /** The first replaced block of numLanes rows; undefined before a rollout is stored. */
  #head: number | undefined
  /** Rows whose priority was changed and what it was, in order. */
  #changed = new Uint32Array()
  #priority = new Float32Array()
  #count = 0
  /** Changed priorities of an update, at most. */
  readonly #most: number
  #isOpen = false

  /** `draws`: rows that an update draws and gives other priorities, at most. */
  constructor(
    replay: ReplayColumns,
    { numLanes, numSteps }: Pick<ReplayShape, 'numLanes' | 'numSteps'>,
    draws: number,
    kernels: Kernels,
  ) {
    const { rows, finalObservation, finalActionMask, tree } = replay
    this.#replay = replay
    this.#kernels = kernels
    this.#rows = [...Object.values(rows), finalObservation, finalActionMask]
    this.columns = [...this.#rows, tree]
    this.#numBlocks = rows.reward.length / numLanes
    this.#numSteps = numSteps
    this.#most = 2 * numSteps * numLanes + draws
  }

  begin(): void {
    if (!this.#isOpen) {
      const ofRollout = (column: Column) => column.slice(0, (column.length / this.#numBlocks) * this.#numSteps)
      this.#former = this.#rows.map(ofRollout)
      this.#changed = new Uint32Array(this.#most)
      this.#priority = new Float32Array(this.#most)
      this.#isOpen = true
    }
    this.#head = undefined
    this.#count = 0
  }

  keepRows(head: number): void {
    if (!this.#isOpen) return
    this.#head = head
    const untilEnd = Math.min(this.#numSteps, this.#numBlocks - head)
    for (const [i, column] of this.#rows.entries()) {
      const width = column.length / this.#numBlocks
      const former = this.#former[i]!
      former.set(column.subarray(head * width, (head + untilEnd) * width))
      former.set(column.subarray(0, (this.#numSteps - untilEnd) * width), untilEnd * width)
    }
  }

  keepPriorities(rows: Uint32Array, count: number): void {
    if (!this.#isOpen) return
    const { tree } = this.#replay
    for (let i = 0; i < count; i++) {
      this.#changed[this.#count] = rows[i]!
      this.#priority[this.#count++] = tree[tree.length / 2 + rows[i]!]!
    }
  }

  takeBack(): void {
    const head = this.#head
    if (head !== undefined) {
      const untilEnd = Math.min(this.#numSteps, this.#numBlocks - head)
      for (const [i, column] of this.#rows.entries()) {
        const width = column.length / this.#numBlocks
        const former = this.#former[i]!
        column.set(former.subarray(0, untilEnd * width), head * width)
        column.set(former.subarray(untilEnd * width))
      }
    }
    // The newest first, so that a row that was changed twice ends with what it had at first.
    const { tree, listed, priority } = this.#replay
    while (this.#count > 0) {
      listed[0] = this.#changed[--this.#count]!
      priority[0] = this.#priority[this.#count]!
      this.#kernels.setPriorities(tree, listed, priority, 1)
    }
  }
}
