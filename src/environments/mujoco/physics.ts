/**
 * MuJoCo in one thread, by DeepMind's WebAssembly build (`@mujoco/mujoco`, an optional peer): a model, and one `MjData` into which the
 * lanes are loaded one after another. A lane's columns hold MuJoCo's full integration state with the solver's warm start, so a step depends
 * on its lane alone. MuJoCo's arrays are views of its memory.
 */
import { InputError, show } from '../../base/errors.ts'
import { type Random, Stream } from '../../base/random.ts'
import { readModel } from './model-file.ts'

type View = Float64Array<ArrayBuffer>

/** A model of the package: the parts that are used here. */
export interface MjModel {
  readonly nq: number
  readonly nv: number
  readonly nu: number
  readonly opt: { readonly timestep: number }
  readonly actuator_ctrlrange: View
  readonly body_mass: View
  readonly geom_type: Int32Array
  readonly geom_size: View
  delete(): void
}

/** The arrays of the integration state, in MuJoCo's order (`mjtState`), after `time`. `eq_active` is left out: nothing here changes it. */
const STATE = [
  ...['qpos', 'qvel', 'act', 'history', 'qacc_warmstart', 'ctrl', 'qfrc_applied', 'xfrc_applied'],
  ...['mocap_pos', 'mocap_quat', 'userdata', 'plugin_state'],
] as const

/** Arrays that the model's last `mj_step` or `mj_forward` computed. */
const COMPUTED = [
  ...['xpos', 'xipos', 'site_xpos', 'geom_xpos', 'geom_xmat', 'cinert', 'cvel', 'cfrc_ext'],
  ...['qfrc_actuator', 'qfrc_constraint', 'sensordata', 'subtree_com'],
] as const

type Name =
  | ((typeof COMPUTED)[number] | 'qpos' | 'qvel' | 'act' | 'qacc_warmstart' | 'ctrl')
  | ('qfrc_applied' | 'xfrc_applied' | 'mocap_pos' | 'mocap_quat' | 'userdata')

type MjData = { time: number; delete(): void } & Readonly<Record<string, View>>

interface Mujoco {
  readonly MjModel: { from_xml_string(xml: string): MjModel }
  readonly MjData: new (model: MjModel) => MjData
  mj_resetData(model: MjModel, data: MjData): void
  mj_forward(model: MjModel, data: MjData): void
  mj_step(model: MjModel, data: MjData): void
  mj_rnePostConstraint(model: MjModel, data: MjData): void
  mj_name2id(model: MjModel, type: number, name: string): number
  readonly mjtObj: Readonly<Record<'mjOBJ_BODY' | 'mjOBJ_SITE' | 'mjOBJ_GEOM' | 'mjOBJ_JOINT', { value: number }>>
}

let loading: Promise<Mujoco> | undefined

/** @throws InputError if the package is not installed. */
async function loadMujoco(subject: string): Promise<Mujoco> {
  const { importPackage, NotInstalled } = await import('../../base/files/packages.ts')
  loading ??= importPackage<{ default: () => Promise<Mujoco> }>('@mujoco/mujoco').then((module) => module.default())
  try {
    return await loading
  } catch (cause) {
    loading = undefined
    if (!(cause instanceof NotInstalled)) throw cause
    throw new InputError(subject, 'no @mujoco/mujoco', 'npm install @mujoco/mujoco', { cause })
  }
}

/** A model in this thread. */
export class Physics {
  readonly #mujoco: Mujoco
  readonly #data: MjData
  readonly model: MjModel
  /** Number of values of the integration state in a lane. */
  readonly stateWidth: number
  /** Seconds per step of the model. */
  readonly timestep: number
  /** Of each body, in kg; each geom's type (`mjtGeom`), and its three sizes. */
  readonly mass: Float64Array
  readonly geomType: Int32Array
  readonly geomSize: Float64Array
  #views!: Readonly<Record<Name, View>>
  #state!: readonly View[]

  constructor(mujoco: Mujoco, model: MjModel) {
    this.#mujoco = mujoco
    this.model = model
    this.#data = new mujoco.MjData(model)
    this.timestep = model.opt.timestep
    this.mass = Float64Array.from(model.body_mass)
    this.geomType = Int32Array.from(model.geom_type)
    this.geomSize = Float64Array.from(model.geom_size)
    this.#view()
    this.stateWidth = 1 + this.#state.reduce((sum, { length }) => sum + length, 0)
  }

  /** MuJoCo's arrays by their names in `mjData`. Read them anew in each call, since their memory may move. */
  get data(): Readonly<Record<Name, View>> {
    if (this.#views.qpos.buffer.byteLength === 0) this.#view()
    return this.#views
  }

  get time(): number {
    return this.#data.time
  }

  #view(): void {
    const data = this.#data
    this.#state = STATE.map((name) => data[name]!)
    const names = [...STATE, ...COMPUTED] as readonly Name[]
    this.#views = Object.fromEntries(names.map((name) => [name, data[name]!])) as Record<Name, View>
  }

  /** The index of a named body, site or joint. @throws InputError for a name that the model does not have. */
  idOf(kind: 'body' | 'site' | 'joint' | 'geom', name: string): number {
    const { mjtObj } = this.#mujoco
    const types = { body: 'mjOBJ_BODY', site: 'mjOBJ_SITE', joint: 'mjOBJ_JOINT', geom: 'mjOBJ_GEOM' } as const
    const id = this.#mujoco.mj_name2id(this.model, mjtObj[types[kind]].value, name)
    if (id < 0) throw new InputError(kind, show(name), `the name of a ${kind} of the model`)
    return id
  }

  /** Loads lane n's integration state. */
  load(state: Float64Array, n: number): void {
    if (this.#views.qpos.buffer.byteLength === 0) this.#view()
    let at = n * this.stateWidth
    this.#data.time = state[at++]!
    for (const view of this.#state) for (let i = 0; i < view.length; i++) view[i] = state[at++]!
  }

  /** Stores lane n's integration state. */
  store(state: Float64Array, n: number): void {
    if (this.#views.qpos.buffer.byteLength === 0) this.#view()
    let at = n * this.stateWidth
    state[at++] = this.#data.time
    for (const view of this.#state) for (let i = 0; i < view.length; i++) state[at++] = view[i]!
  }

  /** Makes `count` steps of the model, then computes the forces on bodies after the last one (`mj_rnePostConstraint`). */
  step(count: number): void {
    const mujoco = this.#mujoco
    for (let i = 0; i < count; i++) mujoco.mj_step(this.model, this.#data)
    mujoco.mj_rnePostConstraint(this.model, this.#data)
  }

  /** Restores the model's initial state. */
  reset(): void {
    this.#mujoco.mj_resetData(this.model, this.#data)
  }

  /** Computes everything that depends on positions and velocities, without a step. */
  forward(): void {
    this.#mujoco.mj_forward(this.model, this.#data)
  }
}

/** Compiled models by file or text. A thread's worlds share them, since they hold no state of a lane. */
const compiled = new Map<string, Physics>()

/**
 * Compiles a model, given as MJCF or as a file of it. `subject` is for errors.
 * @throws InputError if the package is not installed, or MuJoCo refuses the model.
 */
export async function compileModel(subject: string, given: string | URL): Promise<Physics> {
  const key = String(given)
  const known = compiled.get(key)
  if (known !== undefined) return known
  const mujoco = await loadMujoco(subject)
  const text = given instanceof URL ? readModel(given) : given
  let model: MjModel
  try {
    model = mujoco.MjModel.from_xml_string(text)
  } catch (cause) {
    const got = (cause as Error).message.replaceAll(/\s+/g, ' ').trim()
    throw new InputError(`${subject} model`, got, 'a model that MuJoCo compiles', { cause })
  }
  const physics = new Physics(mujoco, model)
  compiled.set(key, physics)
  return physics
}

/** Random numbers of a reset, one after another. */
export class ResetNoise {
  #random!: Random
  #lane = 0
  #episode = 0
  #drawn = 0

  begin(random: Random, lane: number, episode: number): void {
    this.#random = random
    this.#lane = lane
    this.#episode = episode
    this.#drawn = 0
  }

  uniform(low: number, high: number): number {
    const word = this.#next(1)
    return this.#random.uniform(word, low, high)
  }

  /** Standard normal. */
  normal(): number {
    this.#drawn += this.#drawn % 2
    return this.#random.normal(this.#next(2), 0)
  }

  /** The index of the next `count` words. */
  #next(count: number): number {
    const word = this.#drawn % 4
    if (word === 0) this.#random.draw(Stream.reset, this.#lane, this.#episode, this.#drawn / 4)
    this.#drawn += count
    return word
  }
}
