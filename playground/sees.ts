/** Shows what the policy sees in one lane, and what it does there. */
import type { Scene } from './scenes.ts'

export interface Seen {
  readonly observation: Float32Array
  readonly low: readonly number[]
  readonly high: readonly number[]
  /** 0 for real numbers. */
  readonly numActions: number
  readonly action: readonly number[]
  readonly probability: number
  readonly value: number
  readonly episodeReturn: number
}

/** Numbers beyond these are not listed: a grid is drawn in its tile. */
const MOST = 12

export class Sees {
  readonly #list: HTMLElement
  readonly #said: HTMLElement
  #meters: HTMLMeterElement[] = []
  #of: Scene | undefined

  constructor(list: HTMLElement, said: HTMLElement) {
    this.#list = list
    this.#said = said
  }

  show(scene: Scene, seen: Seen): void {
    const { observation, numActions, action, probability, value, episodeReturn } = seen
    if (this.#of !== scene) this.#begin(scene, seen)
    for (const [i, meter] of this.#meters.entries()) {
      meter.value = observation[i]!
      meter.nextElementSibling!.textContent = observation[i]!.toFixed(2)
    }
    const more =
      observation.length > MOST
        ? `${observation.filter((each) => each !== 0).length} of ${observation.length} fields are set. `
        : ''
    const did =
      numActions > 0
        ? `It chose ${action[0]} (${Math.round(100 * Math.min(1, probability))} %)`
        : `It chose ${action.map((each) => each.toFixed(2)).join(', ')}`
    this.#said.textContent = `${more}${did}, expects ${value.toFixed(1)}, and has ${episodeReturn.toFixed(1)}.`
  }

  #begin(scene: Scene, { observation, low, high }: Seen): void {
    this.#of = scene
    this.#meters = []
    this.#list.replaceChildren()
    if (observation.length > MOST) return
    for (let i = 0; i < observation.length; i++) {
      const meter = document.createElement('meter')
      // Bounds of positions and speeds may be infinite.
      meter.min = Math.max(-4, low[i] ?? -4)
      meter.max = Math.min(4, high[i] ?? 4)
      const [name, number] = [document.createElement('span'), document.createElement('output')]
      name.textContent = scene.names?.[i] ?? `number ${i}`
      meter.setAttribute('aria-label', name.textContent)
      const row = document.createElement('div')
      row.append(name, meter, number)
      this.#list.append(row)
      this.#meters.push(meter)
    }
  }
}
