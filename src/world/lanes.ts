/**
 * Who is there: the lanes of a cohort as bitecs entities. An entity of a cohort has the cohort's components and the tag
 * `Present`, and the query for them decides which lanes the next rollout has. What is added or removed in between is noticed;
 * the rows of the columns follow when the rollout is over (`population.ts`).
 */
import { addComponents, addEntity, observe, onAdd, onRemove, query, removeEntity, type World } from 'bitecs'
import { assert } from '../base/errors.ts'

/** A tag of the entities that are in their cohort. */
export const Present: object = {}

/** The entities of one cohort, and the row of each. */
export class LaneEntities {
  readonly #ecs: World
  readonly #terms: object[]
  /** The entity of each row that is taken. */
  #lanes = new Uint32Array(0)
  /** The row of each entity of the world, −1 where it has none in this cohort. */
  #rows = new Int32Array(0)
  #hasChanged = false

  /** Makes the first `count` entities, in rows 0 to `count`. */
  constructor(ecs: World, components: readonly object[], count: number) {
    this.#ecs = ecs
    this.#terms = [...components, Present]
    observe(ecs, onAdd(...this.#terms), () => {
      this.#hasChanged = true
    })
    observe(ecs, onRemove(...this.#terms), (entity) => {
      this.#hasChanged = true
      if (this.rowOf(entity) >= 0) this.#rows[entity] = -1 // The number may be that of another entity soon.
    })
    this.spawn(count)
    this.seat(this.find().newcomers)
    assert(this.#lanes.length === count, `a cohort of ${count} lanes was found as ${this.#lanes.length}`)
  }

  /** The entity of each row, from row 0. */
  get lanes(): Uint32Array {
    return this.#lanes
  }

  /** Whether entities have come or gone since they had their rows. */
  get hasChanged(): boolean {
    return this.#hasChanged
  }

  /** How many entities there are now. */
  get count(): number {
    return query(this.#ecs, this.#terms).length
  }

  /** The row of an entity, or −1. */
  rowOf(entity: number): number {
    return this.#rows[entity] ?? -1
  }

  /** Makes `count` entities. They have no rows yet. */
  spawn(count: number): number[] {
    return Array.from({ length: count }, () => {
      const entity = addEntity(this.#ecs)
      addComponents(this.#ecs, entity, this.#terms)
      return entity
    })
  }

  /** Removes the entity of a row, unless it has gone already. */
  removeRow(row: number): void {
    const entity = this.#lanes[row]!
    if (this.rowOf(entity) === row) removeEntity(this.#ecs, entity)
  }

  /** Whether it is an entity of this cohort. */
  has(entity: number): boolean {
    return query(this.#ecs, this.#terms).includes(entity)
  }

  /** Removes an entity. */
  remove(entity: number): void {
    removeEntity(this.#ecs, entity)
  }

  /** What the query finds: the rows whose entities are still there, rising, and the entities that have no row yet. */
  find(): { readonly rows: Uint32Array; readonly newcomers: number[] } {
    const rows: number[] = []
    const newcomers: number[] = []
    for (const entity of query(this.#ecs, this.#terms)) {
      const row = this.rowOf(entity)
      if (row >= 0) rows.push(row)
      else newcomers.push(entity)
    }
    return { rows: Uint32Array.from(rows).sort(), newcomers }
  }

  /** Gives each entity the row of its place in the list. */
  seat(entities: ArrayLike<number>): void {
    this.#lanes = Uint32Array.from(entities)
    const last = this.#lanes.reduce((most, entity) => Math.max(most, entity), -1)
    if (last >= this.#rows.length) {
      const rows = new Int32Array(Math.max(last + 1, 2 * this.#rows.length)).fill(-1)
      rows.set(this.#rows)
      this.#rows = rows
    }
    for (let row = 0; row < this.#lanes.length; row++) this.#rows[this.#lanes[row]!] = row
    this.#hasChanged = false
  }
}

/** Makes `numLanes` entities with these components, which stay, and returns them as the query finds them. */
export function createLanes(ecs: World, components: readonly object[], numLanes: number): Uint32Array {
  return new LaneEntities(ecs, components, numLanes).lanes
}
