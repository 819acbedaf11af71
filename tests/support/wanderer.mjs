/** Objects that are environments: a walk of two numbers, whose start and gusts are those of the seed; and one that forgets its seed. */

import { fromObjects } from '../../dist/src/entries/environments.js'
import { box, discrete } from '../../dist/src/index.js'

export class Wanderer {
  constructor(draws = () => 0) {
    this.draws = draws
  }

  reset(seed) {
    this.state = seed
    this.at = [this.next(), this.next()]
    this.steps = 0
    this.isOver = false
    return { observation: this.at, info: { seed } }
  }

  /** Numbers in [−0.5, 0.5), by the seed alone. */
  next() {
    this.state = (Math.imul(this.state, 1664525) + 1013904223) >>> 0
    return this.state / 2 ** 32 - 0.5 + this.draws()
  }

  step(action) {
    if (this.isOver) throw new Error('the episode is over')
    this.at = this.at.map((x, i) => Math.min(Math.max(x + 0.25 * ((action >> i) & 1) + 0.3 * this.next() - 0.1, -2), 2))
    this.steps++
    const [x, y] = this.at
    const [terminated, truncated] = [x > 1.5, this.steps === 17]
    this.isOver = terminated || truncated
    return { observation: new Float64Array(this.at), reward: x - y, terminated, truncated }
  }
}

const options = {
  module: import.meta.url,
  observationSpace: box({ low: -2, high: 2, shape: [2] }),
  actionSpace: discrete(4),
  maxEpisodeSteps: 20,
}

export const wanderer = fromObjects(() => new Wanderer(), { ...options, id: 'Wanderer-v0' })

/** Answers when all that is under way has been done. */
class Patient extends Wanderer {
  async step(action) {
    return super.step(action)
  }
}

export const patient = fromObjects(() => new Patient(), { ...options, id: 'Patient-v0' })

export const forgetful = fromObjects(() => new Wanderer(() => 1e-3 * Math.random()), { ...options, id: 'Forgetful-v0' })
