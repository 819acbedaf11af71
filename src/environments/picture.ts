/**
 * Pictures of grid observations: a box of rows × columns × channels. A field has the color of its first nonzero channel. A channel that
 * is 1 on every field, such as whose turn it is, describes no field and is not drawn.
 */
import { checkGiven, InputError, show } from '../base/errors.ts'
import type { BoxSpace, Space } from '../base/space.ts'
import type { ObservationColumn } from '../components/observation.ts'

/** Red, green and blue, from 0 to 255: the background, then the channels. */
export const pictureColors: readonly (readonly [number, number, number])[] = [
  [24, 26, 32],
  [86, 180, 233],
  [230, 159, 0],
  [120, 120, 130],
  [213, 94, 0],
  [0, 158, 115],
  [240, 228, 66],
  [204, 121, 167],
  [0, 114, 178],
  [250, 250, 250],
  [150, 80, 40],
  [130, 200, 130],
  [200, 60, 60],
  [100, 100, 200],
  [180, 180, 90],
  [90, 180, 180],
]

/** A grid of colors. */
export interface Picture {
  readonly rows: number
  readonly columns: number
  /** Color of each field, row by row from the top, as an index of `pictureColors`. */
  readonly fields: Uint8Array
}

/** The picture of one observation. @throws InputError if observations are not a grid of at most 15 channels. */
export function gridPicture(space: Space, observation: ObservationColumn): Picture {
  checkGiven('space of gridPicture', space, ['kind'])
  checkGiven('observation of gridPicture', observation, 'a list')
  const [rows, columns, channels] = gridShape(space)
  const numFields = rows * columns
  if (observation.length !== numFields * channels) {
    throw new InputError(
      'observation',
      `${observation.length} numbers`,
      `${numFields * channels}, an observation of the space`,
    )
  }
  const fields = new Uint8Array(numFields)
  for (let channel = channels - 1; channel >= 0; channel--) {
    const isSet = (field: number) => observation[field * channels + channel] !== 0
    let numSet = 0
    for (let field = 0; field < numFields; field++) if (isSet(field)) numSet++
    if (numSet === numFields) continue
    for (let field = 0; field < numFields; field++) if (isSet(field)) fields[field] = channel + 1
  }
  return { rows, columns, fields }
}

/** Whether observations are a grid that can be drawn. */
export function isGrid(space: Space): boolean {
  checkGiven('space of isGrid', space, ['kind'])
  return space.kind === 'box' && space.shape.length === 3 && space.shape[2]! < pictureColors.length
}

function gridShape(space: Space): readonly [rows: number, columns: number, channels: number] {
  if (isGrid(space)) return (space as BoxSpace).shape as [number, number, number]
  const expected = `a grid: rows × columns × 1 to ${pictureColors.length - 1} channels`
  throw new InputError('observationSpace', show(space), expected)
}
