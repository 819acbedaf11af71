/** Seaquest of MinAtar 1.0.15 on a 10 × 10 grid (`environments/minatar/seaquest.ts` has its rules), over observations of bytes. */
import { type Random, Stream } from '../../base/random.ts'
import type { GridLanes, NewLanes } from './lanes.ts'

const SIDE = 10
const CHANNELS = 10
const WIDTH = SIDE * SIDE * CHANNELS
const Channel = {
  front: 0,
  back: 1,
  shot: 2,
  trail: 3,
  torpedo: 4,
  fish: 5,
  submarine: 6,
  oxygen: 7,
  aboard: 8,
  diver: 9,
} as const
const Act = { none: 0, left: 1, up: 2, right: 3, down: 4, fire: 5 } as const
const LAST_COLUMN = SIDE - 1
/** The boat is in rows 0 (the surface) to 8; others come in rows 1 to 8, and the last row shows oxygen and divers aboard. */
const DEEPEST = SIDE - 2
const GAUGES = SIDE - 1

const OXYGEN = 200
const DIVERS_ABOARD = 6
const SHOT_STEPS = 5
const TORPEDO_STEPS = 10
const DIVER_SPAWN_STEPS = 30
const DIVER_MOVE_STEPS = 5
/** Steps between two arrivals of enemies, and between two moves of an enemy: initial values and minimum values. */
const SPAWN_STEPS = 20
const SPAWN_STEPS_LEAST = 1
const MOVE_STEPS = 5
const MOVE_STEPS_LEAST = 2

/** A moving thing is a record of this many bytes in a list of its kind, in the order of arrival. */
const FIELDS = 6
const Of = { x: 0, y: 1, isRightward: 2, moveTimer: 3, kind: 4, shotTimer: 5 } as const
const Kind = { fish: 0, submarine: 1 } as const
/**
 * Maximum numbers at a time. At most one enemy arrives per step and stays for 30; a submarine fires every 11 steps, and a torpedo lasts
 * 10. A diver arrives every 30 steps and stays for 60; the boat fires every five steps.
 */
const ENEMIES = 32
const TORPEDOES = 48
const DIVERS = 4
const SHOTS = 4
/** Lengths of the lists, and bytes of a record. */
export const SEA = { enemies: ENEMIES, torpedoes: TORPEDOES, divers: DIVERS, shots: SHOTS, fields: FIELDS } as const
/** Draws of four random numbers per step: for the sticky action and the enemy; for the diver. */
const BLOCKS = 2

/** The state of each lane; `environments/minatar/seaquest.ts` says what the columns are. */
export interface SeaquestState {
  readonly x: Uint8Array
  readonly y: Uint8Array
  readonly isRightward: Uint8Array
  readonly isSurfaced: Uint8Array
  readonly oxygen: Int32Array
  readonly aboard: Int32Array
  readonly spawnSteps: Uint8Array
  readonly moveSteps: Uint8Array
  readonly ramps: Uint8Array
  readonly spawnTimer: Uint8Array
  readonly diverTimer: Uint8Array
  readonly shotTimer: Uint8Array
  readonly enemy: Uint8Array
  readonly numEnemies: Uint8Array
  readonly diver: Uint8Array
  readonly numDivers: Uint8Array
  readonly shot: Uint8Array
  readonly numShots: Uint8Array
  readonly torpedo: Uint8Array
  readonly numTorpedoes: Uint8Array
  readonly lastAction: Uint8Array
  readonly isOver: Uint8Array
}

/** Begins an episode in the lanes rows[0 … count). */
export function seaquestReset(
  state: SeaquestState,
  lanes: Pick<NewLanes, 'observation'>,
  rows: Uint32Array,
  count: number,
): void {
  for (let i = 0; i < count; i++) {
    const n = rows[i]!
    state.x[n] = 5
    state.y[n] = 0
    state.isRightward[n] = 0
    state.isSurfaced[n] = 1
    state.oxygen[n] = OXYGEN
    state.aboard[n] = 0
    state.spawnSteps[n] = SPAWN_STEPS
    state.moveSteps[n] = MOVE_STEPS
    state.ramps[n] = 0
    state.spawnTimer[n] = SPAWN_STEPS
    state.diverTimer[n] = DIVER_SPAWN_STEPS
    state.shotTimer[n] = 0
    for (const list of [state.enemy, state.diver, state.shot, state.torpedo]) {
      const width = list.length / state.x.length
      list.fill(0, n * width, (n + 1) * width)
    }
    state.numEnemies[n] = 0
    state.numDivers[n] = 0
    state.numShots[n] = 0
    state.numTorpedoes[n] = 0
    state.lastAction[n] = Act.none
    state.isOver[n] = 0
    draw(lanes.observation, n, state)
  }
}

/** A step of lanes `from` to `to`. A lane repeats its last action with probability `sticky`. */
export function seaquestStep(
  state: SeaquestState,
  lanes: GridLanes,
  random: Random,
  sticky: number,
  from: number,
  to: number,
): void {
  const { observation, reward, terminated, action, lane, episode, step } = lanes
  for (let n = from; n < to; n++) {
    reward[n] = 0
    if (state.isOver[n] === 1) {
      draw(observation, n, state)
      continue
    }
    random.draw(Stream.step, lane[n]!, episode[n]!, BLOCKS * step[n]!)
    const act = random.uniform(0) < sticky ? state.lastAction[n]! : action[n]!
    state.lastAction[n] = act
    if (state.spawnTimer[n] === 0) {
      addEnemy(state, n, random)
      state.spawnTimer[n] = state.spawnSteps[n]!
    }
    if (state.diverTimer[n] === 0) {
      random.draw(Stream.step, lane[n]!, episode[n]!, BLOCKS * step[n]! + 1)
      addDiver(state, n, random)
      state.diverTimer[n] = DIVER_SPAWN_STEPS
    }
    steer(state, n, act)
    // Submarines move, then their torpedoes, then fish, as in MinAtar: a shot hits the first that it meets.
    event.hits = 0
    event.isOver = state.oxygen[n]! <= 0
    moveShots(state, n)
    moveDivers(state, n)
    moveEnemies(state, n, Kind.submarine)
    moveTorpedoes(state, n)
    moveEnemies(state, n, Kind.fish)
    reward[n] = event.hits
    if (state.spawnTimer[n]! > 0) state.spawnTimer[n] = state.spawnTimer[n]! - 1
    if (state.diverTimer[n]! > 0) state.diverTimer[n] = state.diverTimer[n]! - 1
    if (state.shotTimer[n]! > 0) state.shotTimer[n] = state.shotTimer[n]! - 1
    if (state.y[n]! > 0) {
      state.oxygen[n] = state.oxygen[n]! - 1
      state.isSurfaced[n] = 0
    } else if (state.isSurfaced[n] === 0) {
      if (state.aboard[n] === 0) event.isOver = true
      else reward[n] = event.hits + comeUp(state, n)
    }
    terminated[n] = event.isOver ? 1 : 0
    state.isOver[n] = terminated[n]!
    draw(observation, n, state)
  }
}

/** Events of one lane's step. */
const event = { hits: 0, isOver: false }

/** A random row for arrivals, by a number in [0, 1). */
function rowOf(part: number): number {
  return 1 + Math.floor(part * DEEPEST)
}

/** Adds an enemy at a side, unless one in its row moves the other way. */
function addEnemy({ enemy, numEnemies, moveSteps }: SeaquestState, n: number, random: Random): void {
  const isRightward = random.uniform(1) < 1 / 2 ? 1 : 0
  const kind = random.uniform(2) < 1 / 3 ? Kind.submarine : Kind.fish
  const y = rowOf(random.uniform(3))
  const first = n * ENEMIES * FIELDS
  const end = first + numEnemies[n]! * FIELDS
  for (let at = first; at < end; at += FIELDS) {
    if (enemy[at + Of.y] === y && enemy[at + Of.isRightward] !== isRightward) return
  }
  add(enemy, end, isRightward === 1 ? 0 : LAST_COLUMN, y, isRightward)
  enemy[end + Of.moveTimer] = moveSteps[n]!
  enemy[end + Of.kind] = kind
  enemy[end + Of.shotTimer] = TORPEDO_STEPS
  numEnemies[n] = numEnemies[n]! + 1
}

function addDiver({ diver, numDivers }: SeaquestState, n: number, random: Random): void {
  const isRightward = random.uniform(0) < 1 / 2 ? 1 : 0
  const end = (n * DIVERS + numDivers[n]!) * FIELDS
  add(diver, end, isRightward === 1 ? 0 : LAST_COLUMN, rowOf(random.uniform(1)), isRightward)
  diver[end + Of.moveTimer] = DIVER_MOVE_STEPS
  numDivers[n] = numDivers[n]! + 1
}

function add(list: Uint8Array, at: number, x: number, y: number, isRightward: number): void {
  list[at + Of.x] = x
  list[at + Of.y] = y
  list[at + Of.isRightward] = isRightward
}

/** Removes the record at `at` from a list that ends at `end`, and closes the gap. */
function remove(list: Uint8Array, at: number, end: number): void {
  list.copyWithin(at, at + FIELDS, end)
}

/** Moves a record by one field; false if it leaves the grid. */
function moveOn(list: Uint8Array, at: number): boolean {
  const x = list[at + Of.x]! + (list[at + Of.isRightward] === 1 ? 1 : -1)
  if (x < 0 || x > LAST_COLUMN) return false
  list[at + Of.x] = x
  return true
}

function steer(state: SeaquestState, n: number, act: number): void {
  const { x, y, isRightward, shot, numShots, shotTimer } = state
  if (act === Act.fire && shotTimer[n] === 0) {
    add(shot, (n * SHOTS + numShots[n]!) * FIELDS, x[n]!, y[n]!, isRightward[n]!)
    numShots[n] = numShots[n]! + 1
    shotTimer[n] = SHOT_STEPS
  } else if (act === Act.left) {
    x[n] = Math.max(0, x[n]! - 1)
    isRightward[n] = 0
  } else if (act === Act.right) {
    x[n] = Math.min(LAST_COLUMN, x[n]! + 1)
    isRightward[n] = 1
  } else if (act === Act.up) y[n] = Math.max(0, y[n]! - 1)
  else if (act === Act.down) y[n] = Math.min(DEEPEST, y[n]! + 1)
}

/** Whether the record at `at` is at the boat's front. */
function isAtBoat({ x, y }: SeaquestState, n: number, list: Uint8Array, at: number): boolean {
  return list[at + Of.x] === x[n] && list[at + Of.y] === y[n]
}

/** The first enemy of a kind at the position of another list's record; −1 if there is none. */
function enemyAt({ enemy, numEnemies }: SeaquestState, n: number, kind: number, list: Uint8Array, at: number): number {
  const first = n * ENEMIES * FIELDS
  const end = first + numEnemies[n]! * FIELDS
  for (let each = first; each < end; each += FIELDS) {
    if (enemy[each + Of.kind] === kind && isSamePlace(enemy, each, list, at)) return each
  }
  return -1
}

function isSamePlace(list: Uint8Array, at: number, other: Uint8Array, otherAt: number): boolean {
  return list[at + Of.x] === other[otherAt + Of.x] && list[at + Of.y] === other[otherAt + Of.y]
}

function removeEnemy({ enemy, numEnemies }: SeaquestState, n: number, at: number): void {
  remove(enemy, at, (n * ENEMIES + numEnemies[n]!) * FIELDS)
  numEnemies[n] = numEnemies[n]! - 1
}

function removeShot({ shot, numShots }: SeaquestState, n: number, at: number): void {
  remove(shot, at, (n * SHOTS + numShots[n]!) * FIELDS)
  numShots[n] = numShots[n]! - 1
}

function moveShots(state: SeaquestState, n: number): void {
  const { shot, numShots } = state
  const first = n * SHOTS * FIELDS
  for (let at = first + (numShots[n]! - 1) * FIELDS; at >= first; at -= FIELDS) {
    if (!moveOn(shot, at)) {
      removeShot(state, n, at)
      continue
    }
    const fish = enemyAt(state, n, Kind.fish, shot, at)
    const hit = fish >= 0 ? fish : enemyAt(state, n, Kind.submarine, shot, at)
    if (hit < 0) continue
    removeEnemy(state, n, hit)
    removeShot(state, n, at)
    event.hits++
  }
}

/** Moves divers, and takes them aboard if the boat is there and has room. */
function moveDivers(state: SeaquestState, n: number): void {
  const { diver, numDivers, aboard } = state
  const first = n * DIVERS * FIELDS
  for (let at = first + (numDivers[n]! - 1) * FIELDS; at >= first; at -= FIELDS) {
    let isTaken = isAtBoat(state, n, diver, at) && aboard[n]! < DIVERS_ABOARD
    let isGone = isTaken
    if (!isTaken && diver[at + Of.moveTimer] === 0) {
      diver[at + Of.moveTimer] = DIVER_MOVE_STEPS
      isGone = !moveOn(diver, at)
      isTaken = !isGone && isAtBoat(state, n, diver, at) && aboard[n]! < DIVERS_ABOARD
    } else if (!isTaken) diver[at + Of.moveTimer] = diver[at + Of.moveTimer]! - 1
    if (isTaken) aboard[n] = aboard[n]! + 1
    if (!isTaken && !isGone) continue
    remove(diver, at, first + numDivers[n]! * FIELDS)
    numDivers[n] = numDivers[n]! - 1
  }
}

/** Moves enemies of a kind, also into shots; submarines fire, even in the step in which they are hit. */
function moveEnemies(state: SeaquestState, n: number, kind: number): void {
  const { enemy, numEnemies, moveSteps, shot, numShots, torpedo, numTorpedoes } = state
  const first = n * ENEMIES * FIELDS
  for (let at = first + (numEnemies[n]! - 1) * FIELDS; at >= first; at -= FIELDS) {
    if (enemy[at + Of.kind] !== kind) continue
    if (isAtBoat(state, n, enemy, at)) event.isOver = true
    let isGone = false
    let met = -1
    if (enemy[at + Of.moveTimer] === 0) {
      enemy[at + Of.moveTimer] = moveSteps[n]!
      isGone = !moveOn(enemy, at)
      if (!isGone && isAtBoat(state, n, enemy, at)) event.isOver = true
      else if (!isGone) {
        const firstShot = n * SHOTS * FIELDS
        for (let each = firstShot + (numShots[n]! - 1) * FIELDS; each >= firstShot; each -= FIELDS) {
          if (isSamePlace(enemy, at, shot, each)) met = each
        }
      }
    } else enemy[at + Of.moveTimer] = enemy[at + Of.moveTimer]! - 1
    if (kind === Kind.submarine) {
      if (enemy[at + Of.shotTimer] === 0) {
        enemy[at + Of.shotTimer] = TORPEDO_STEPS
        if (!isGone) {
          const end = (n * TORPEDOES + numTorpedoes[n]!) * FIELDS
          add(torpedo, end, enemy[at + Of.x]!, enemy[at + Of.y]!, enemy[at + Of.isRightward]!)
          numTorpedoes[n] = numTorpedoes[n]! + 1
        }
      } else enemy[at + Of.shotTimer] = enemy[at + Of.shotTimer]! - 1
    }
    if (met >= 0) {
      removeShot(state, n, met)
      event.hits++
    }
    if (met >= 0 || isGone) removeEnemy(state, n, at)
  }
}

function moveTorpedoes(state: SeaquestState, n: number): void {
  const { torpedo, numTorpedoes } = state
  const first = n * TORPEDOES * FIELDS
  for (let at = first + (numTorpedoes[n]! - 1) * FIELDS; at >= first; at -= FIELDS) {
    if (isAtBoat(state, n, torpedo, at)) event.isOver = true
    if (!moveOn(torpedo, at)) {
      remove(torpedo, at, first + numTorpedoes[n]! * FIELDS)
      numTorpedoes[n] = numTorpedoes[n]! - 1
    } else if (isAtBoat(state, n, torpedo, at)) event.isOver = true
  }
}

/** The boat comes up with divers: returns the reward. Enemies become more frequent, and faster after every other time. */
function comeUp({ oxygen, aboard, isSurfaced, moveSteps, spawnSteps, ramps }: SeaquestState, n: number): number {
  const isFull = aboard[n] === DIVERS_ABOARD
  const worth = isFull ? Math.floor((oxygen[n]! * SIDE) / OXYGEN) : 0
  isSurfaced[n] = 1
  oxygen[n] = OXYGEN
  aboard[n] = isFull ? -1 : aboard[n]! - 1
  if (spawnSteps[n]! > SPAWN_STEPS_LEAST || moveSteps[n]! > MOVE_STEPS_LEAST) {
    if (moveSteps[n]! > MOVE_STEPS_LEAST && ramps[n]! % 2 === 1) moveSteps[n] = moveSteps[n]! - 1
    if (spawnSteps[n]! > SPAWN_STEPS_LEAST) spawnSteps[n] = spawnSteps[n]! - 1
    ramps[n] = ramps[n]! + 1
  }
  return worth
}

function draw(observation: Uint8Array, n: number, state: SeaquestState): void {
  const row = n * WIDTH
  const { x, y, isRightward, oxygen, aboard, enemy, diver, shot, torpedo } = state
  observation.fill(0, row, row + WIDTH)
  const boat = row + CHANNELS * (SIDE * y[n]! + x[n]!)
  observation[boat + Channel.front] = 1
  observation[boat + (isRightward[n] === 1 ? -CHANNELS : CHANNELS) + Channel.back] = 1
  const gauges = row + CHANNELS * SIDE * GAUGES
  const air = Math.floor((Math.max(0, oxygen[n]!) * SIDE) / OXYGEN)
  for (let column = 0; column < air; column++) observation[gauges + CHANNELS * column + Channel.oxygen] = 1
  for (let k = 1; k <= aboard[n]!; k++) observation[gauges + CHANNELS * (LAST_COLUMN - k) + Channel.aboard] = 1
  for (let i = 0; i < state.numShots[n]!; i++) mark(observation, row, shot, (n * SHOTS + i) * FIELDS, Channel.shot)
  for (let i = 0; i < state.numTorpedoes[n]!; i++) {
    mark(observation, row, torpedo, (n * TORPEDOES + i) * FIELDS, Channel.torpedo)
  }
  for (let i = 0; i < state.numEnemies[n]!; i++) {
    const at = (n * ENEMIES + i) * FIELDS
    mark(observation, row, enemy, at, enemy[at + Of.kind] === Kind.fish ? Channel.fish : Channel.submarine)
    markTrail(observation, row, enemy, at)
  }
  for (let i = 0; i < state.numDivers[n]!; i++) {
    const at = (n * DIVERS + i) * FIELDS
    mark(observation, row, diver, at, Channel.diver)
    markTrail(observation, row, diver, at)
  }
}

function mark(observation: Uint8Array, row: number, list: Uint8Array, at: number, channel: number): void {
  observation[row + CHANNELS * (SIDE * list[at + Of.y]! + list[at + Of.x]!) + channel] = 1
}

/** Marks the field behind a moving thing, which shows its direction. */
function markTrail(observation: Uint8Array, row: number, list: Uint8Array, at: number): void {
  const behind = list[at + Of.x]! + (list[at + Of.isRightward] === 1 ? -1 : 1)
  if (behind < 0 || behind > LAST_COLUMN) return
  observation[row + CHANNELS * (SIDE * list[at + Of.y]! + behind) + Channel.trail] = 1
}
