/**
 * The lanes of a cohort as bitecs entities. An entity has the cohort's components and the tag `Present`, and the query for them decides
 * which lanes work: for episodes in the next rollout (`episodes/population.ts`), for conversations when they are free
 * (`conversations/population.ts`). Observers detect added and removed entities, so that queries run only after changes.
 */
import { addComponents, addEntity, observe, onAdd, onRemove, query, removeEntity, type World } from 'bitecs'

/** The tag of entities that work in their cohort. */
export const Present: object = {}

/** The mark of a row without an entity. */
export const NOBODY = 0xffffffff

/** The entities of one cohort, and the row of each. */
export class LaneEntities {
  readonly #ecs: World
  readonly #terms: object[]
  /** The entity of each row, from row 0. */
  lanes = new Uint32Array(0)
  /** The row of each entity of the world; −1 for entities without a row in this cohort. */
  #rows = new Int32Array(0)
  /** Whether entities were added or removed since rows were last assigned. */
  hasChanged = true

  /** Creates `count` entities in rows 0 to `count` − 1, before the first query. */
  constructor(ecs: World, components: readonly object[], count: number) {
    this.#ecs = ecs
    this.#terms = [...components, Present]
    observe(ecs, onAdd(...this.#terms), () => {
      this.hasChanged = true
    })
    observe(ecs, onRemove(...this.#terms), (entity) => {
      this.hasChanged = true
      if (this.rowOf(entity) >= 0) this.#rows[entity] = -1 // Another entity may get this number soon.
    })
    this.seat(this.spawn(count))
    this.askAgain()
  }

  /** Makes the next settlement query again even without a change. */
  askAgain(): void {
    this.hasChanged = true
  }

  get count(): number {
    return query(this.#ecs, this.#terms).length
  }

  rowOf(entity: number): number {
    return this.#rows[entity] ?? -1
  }

  /** Creates `count` entities, without rows yet. */
  spawn(count: number): number[] {
    return Array.from({ length: count }, () => {
      const entity = addEntity(this.#ecs)
      addComponents(this.#ecs, entity, this.#terms)
      return entity
    })
  }

  /** Removes the entity of a row, unless it has gone already. */
  removeRow(row: number): void {
    const entity = this.lanes[row]!
    if (this.rowOf(entity) === row) removeEntity(this.#ecs, entity)
  }

  has(entity: number): boolean {
    return query(this.#ecs, this.#terms).includes(entity)
  }

  remove(entity: number): void {
    removeEntity(this.#ecs, entity)
  }

  /** Queries the entities: the rows whose entities still exist, ascending, and the entities without a row. */
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

  /** Assigns each entity the row of its index in the list, in which `NOBODY` marks rows without one. Returns them as `lanes`. */
  seat(entities: ArrayLike<number>): Uint32Array {
    for (const entity of this.lanes) if (entity !== NOBODY) this.#rows[entity] = -1
    this.lanes = Uint32Array.from(entities)
    const last = this.lanes.reduce((most, entity) => (entity === NOBODY ? most : Math.max(most, entity)), -1)
    if (last >= this.#rows.length) {
      const rows = new Int32Array(Math.max(last + 1, 2 * this.#rows.length)).fill(-1)
      rows.set(this.#rows)
      this.#rows = rows
    }
    for (const [row, entity] of this.lanes.entries()) if (entity !== NOBODY) this.#rows[entity] = row
    this.hasChanged = false
    return this.lanes
  }
}
