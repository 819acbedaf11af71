/**
 * Lanes as bitecs entities. bitecs keeps a Set of components for every entity, 260 bytes a lane though all lanes of a cohort
 * have the same ones. Once a cohort's lanes are made, their sets are let go; whoever asks for a lane's set gets one made on
 * the spot, and from then on that lane has it for itself.
 */
import { $internal, addComponents, addEntity, type EntityId, type InternalWorld, query, type World } from 'bitecs'
import { assert } from '../errors.ts'

/** Makes `numLanes` entities with these components, and returns them as the query for the components finds them. */
export function createLanes(ecs: World, components: readonly object[], numLanes: number): Uint32Array {
  const terms = [...components]
  for (let n = 0; n < numLanes; n++) addComponents(ecs, addEntity(ecs), terms)
  const lanes = Uint32Array.from(query(ecs, terms))
  assert(lanes.length === numLanes, `a cohort of ${numLanes} lanes was found as ${lanes.length}`)
  const context = (ecs as unknown as InternalWorld)[$internal]
  if (!(context.entityComponents instanceof ComponentSets))
    context.entityComponents = new ComponentSets(context.entityComponents)
  ;(context.entityComponents as ComponentSets).share(lanes, terms)
  return lanes
}

/** bitecs's map from entities to their components, with the sets of untouched lanes not yet made. */
class ComponentSets extends Map<EntityId, Set<object>> {
  readonly #shared: { readonly first: number; readonly end: number; readonly components: readonly object[] }[] = []
  readonly #removed = new Set<EntityId>()

  /** From now on these lanes, whose numbers follow one another, share a list of components. */
  share(lanes: Uint32Array, components: readonly object[]): void {
    const first = lanes[0]!
    assert(lanes[lanes.length - 1] === first + lanes.length - 1, 'the lanes of a cohort do not follow one another')
    for (const lane of lanes) super.delete(lane)
    this.#shared.push({ first, end: first + lanes.length, components })
  }

  override get(entity: EntityId): Set<object> | undefined {
    const own = super.get(entity)
    if (own !== undefined || this.#removed.has(entity)) return own
    const shared = this.#shared.find(({ first, end }) => entity >= first && entity < end)
    if (shared === undefined) return undefined
    const made = new Set(shared.components)
    super.set(entity, made)
    return made
  }

  override has(entity: EntityId): boolean {
    return this.get(entity) !== undefined
  }

  override delete(entity: EntityId): boolean {
    const isPresent = this.has(entity)
    this.#removed.add(entity)
    super.delete(entity)
    return isPresent
  }

  override *keys(): MapIterator<EntityId> {
    for (const { first, end } of this.#shared) {
      for (let entity = first; entity < end; entity++)
        if (!super.has(entity) && !this.#removed.has(entity)) yield entity
    }
    yield* super.keys()
  }
}
